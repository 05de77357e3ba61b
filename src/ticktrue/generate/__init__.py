"""Program + prompt -> tokens."""

from ticktrue.generate.sampler import GREEDY_SAMPLING, Drawn, LogProb, Sampling
from ticktrue.generate.session import Obtain, Session, Step, step_kind
from ticktrue.generate.speculate import Drafter, Round, SlotStep, Speculation

__all__ = [
    "GREEDY_SAMPLING", "Drafter", "Drawn", "LogProb", "Obtain", "Round", "Sampling", "Session", "SlotStep", "Speculation", "Step",
    "step_kind",
]  # fmt: skip
