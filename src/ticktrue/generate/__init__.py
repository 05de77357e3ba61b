"""Program + prompt -> tokens."""

from ticktrue.generate.sampler import GREEDY_SAMPLING, Drawn, LogProb, Sampling
from ticktrue.generate.session import Obtain, Session, Step, step_kind

__all__ = ["GREEDY_SAMPLING", "Drawn", "LogProb", "Obtain", "Sampling", "Session", "Step", "step_kind"]
