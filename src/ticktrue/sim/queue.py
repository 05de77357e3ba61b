"""Whether the receive FIFOs of another machine could hold what a timetable sends at its pace: if not, it needs another one."""

import numpy as np

from ticktrue.hw import System
from ticktrue.isa import Op
from ticktrue.program import Flat
from ticktrue.program import columns as col
from ticktrue.sim.machine import Machine

_FACTS = ("c2c_jitter_cycles", "c2c_guard_cycles", "deskew_hold_cycles")


def overflow(flat: Flat, machine: Machine, system: System) -> int:
    """Vectors by which a FIFO would be too short for the messages of one SEND, as stated apart; 0 or less where all fit.

    A bound from above: a message is counted whole as soon as its first vector comes. Messages of several SENDs on a link are
    not added up.
    """
    rows = flat.rows[flat.rows[:, col.C_OP] == Op.SEND]
    if not len(rows):
        return 0
    pattern, width = rows[:, col.C_PATTERN], rows[:, col.C_WIDTH]
    n, p, m, q = (rows[:, c] for c in (col.C_N, col.C_P, col.C_M, col.C_Q))
    wait = (machine.latency - _least(flat, system))[pattern] + (width - 1) * machine.slot.max(axis=1)[pattern]
    wait = wait + sum(system.chip.value(fact) for fact in _FACTS)
    between = np.where(m > 1, q - (n - 1) * p, p)
    apart = np.maximum(np.where(n > 1, np.minimum(p, between), between), 1)
    waiting = np.minimum(n * m * width, width * -(-wait // apart) + 1)
    single = (n == 1) & (m == 1)
    need = np.where(single, width, waiting)
    return int(need.max()) - system.chip.value("c2c_fifo_vectors")


def _least(flat: Flat, system: System) -> np.ndarray:
    """Latency of the fastest link of each pattern: int64[patterns]."""
    plan, matrix = flat.plan, system.latency_matrix().astype(np.int64)
    out = np.zeros(plan.patterns, dtype=np.int64)
    for pattern in range(plan.patterns):
        peers = plan.reach(pattern)[:, 1:]
        latency = matrix[np.arange(plan.chips)[:, None], peers]
        out[pattern] = latency[latency >= 0].min(initial=1 << 30) if (latency >= 0).any() else 0
    return out
