"""How long a program takes: a cycle-exact replay, independent of the scheduler, and where the cycles go."""

from ticktrue.sim.clock import deskew_cycles
from ticktrue.sim.context import bucket_of, masked_cycles
from ticktrue.sim.critical import phase_of
from ticktrue.sim.replay import pick, replay, simulate
from ticktrue.sim.result import CAUSES, ChainTimes, Segment, Share, Timing, UnitUse
from ticktrue.sim.sensitivity import Assumed, assumed_constants, movers
from ticktrue.sim.use import ports_of, row_busy, unit_name
from ticktrue.sim.verdict import Mismatch

__all__ = [
    "CAUSES",
    "Assumed",
    "ChainTimes",
    "Mismatch",
    "Segment",
    "Share",
    "Timing",
    "UnitUse",
    "assumed_constants",
    "bucket_of",
    "deskew_cycles",
    "masked_cycles",
    "movers",
    "phase_of",
    "pick",
    "ports_of",
    "replay",
    "row_busy",
    "simulate",
    "unit_name",
]
