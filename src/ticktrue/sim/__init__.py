"""How long a program takes: a cycle-exact replay, independent of the scheduler, and where the cycles go."""

from ticktrue.sim.replay import deskew_cycles, replay, simulate
from ticktrue.sim.result import CAUSES, ChainTimes, Segment, Share, Timing, UnitUse
from ticktrue.sim.verdict import Mismatch

__all__ = [
    "CAUSES",
    "ChainTimes",
    "Mismatch",
    "Segment",
    "Share",
    "Timing",
    "UnitUse",
    "deskew_cycles",
    "replay",
    "simulate",
]
