"""What the replay needs of a machine beside its op table: how long a result is under way, and what fills the way."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ticktrue.hw import System
from ticktrue.isa import OPS, Kind, Op, OpTable
from ticktrue.program import Flat, Plan
from ticktrue.program import columns as col
from ticktrue.program.types import Int64
from ticktrue.sim.settle_kernel import MAP, REDUCE, RESHAPE

_KIND = np.array([int(i.kind) for i in OPS], dtype=np.int64)
_SHAPE = np.where(_KIND == Kind.REDUCE, REDUCE, np.where(_KIND == Kind.RESHAPE, RESHAPE, MAP)).astype(
    np.int64
)


@dataclass(frozen=True, slots=True)
class Machine:
    """Op table and links as the rows of one plan see them.

    `latency` int64[patterns]: of the slowest link of each pattern's tier, so that copies share one offset and a link
    keeps order. `slot` int64[patterns, chips]:
    cycles a vector holds the slowest link to the k-th peer.
    """

    table: OpTable
    latency: npt.NDArray[np.int64]
    slot: npt.NDArray[np.int64]

    @staticmethod
    def of(system: System, plan: Plan) -> "Machine":
        """The machine that `system` is to the chips of `plan`."""
        return Machine(OpTable.of(system.chip), _latency(system, plan), _slowest(system.slot_matrix(), plan))

    def same_as(self, other: "Machine") -> bool:
        """Whether rows take the same time on both: capacities that only make a program legal do not count."""
        a, b = self.table, other.table
        same = a.weight_load_bytes == b.weight_load_bytes and a.guard == b.guard
        pairs = ((a.latency, b.latency), (a.ports, b.ports), (a.port_vectors, b.port_vectors))
        links = ((self.latency, other.latency), (self.slot, other.slot))
        return same and all(np.array_equal(x, y) for x, y in (*pairs, *links))

    def slots(self, rows: Int64) -> Int64:
        """Cycles that one vector of a row would hold its link: int64[R]; of no meaning for rows without a link."""
        k = np.clip(rows[:, col.C_K], 0, self.slot.shape[1] - 1)
        return self.slot[rows[:, col.C_PATTERN], k]

    def arrival(self, rows: Int64) -> Int64:
        """Cycles from a row's event (a fold's last event) to its result at whoever hears it: int64[R].

        A SEND's result is what the RECEIVE hears: link latency, one slot included, the packet's further slots, and guard.
        """
        op = rows[:, col.C_OP]
        rest = (rows[:, col.C_WIDTH] - 1) * self.slot.max(axis=1)[rows[:, col.C_PATTERN]]
        link = self.latency[rows[:, col.C_PATTERN]] + rest + self.table.guard
        return self.table.latency[op] + np.where(op == Op.SEND, link, 0)

    def write_end(self, rows: Int64) -> Int64:
        """Cycles from the end of a row's last event until what it wrote can be read; 0 where it writes nothing."""
        op = rows[:, col.C_OP]
        write = (op == Op.STORE) | (op == Op.SCATTER) | (op == Op.LATCH)
        return np.where(write, self.table.latency[op], 0)


def _slowest(matrix: npt.NDArray[np.int32], plan: Plan) -> Int64:
    """Largest entry over all chips for the k-th peer of each pattern, 0 where there is none: int64[patterns, chips]."""
    out = np.zeros((plan.patterns, plan.chips), dtype=np.int64)
    for pattern in range(plan.patterns):
        peer = plan.reach(pattern)
        out[pattern, 1 : peer.shape[1]] = matrix[np.arange(plan.chips)[:, None], peer].max(axis=0)[1:]
    return out


def _latency(system: System, plan: Plan) -> Int64:
    """Largest latency of the tiers (own tray, other trays) that the links of each pattern belong to: int64[patterns]."""
    matrix = system.latency_matrix()[: plan.chips, : plan.chips]
    tray = np.arange(plan.chips) // (plan.tray or plan.chips)
    same = np.equal.outer(tray, tray)
    near, far = (int(matrix[tier].max(initial=0)) for tier in (same, ~same))
    out = np.zeros(plan.patterns, dtype=np.int64)
    for pattern in range(plan.patterns):
        inside = same[np.arange(plan.chips)[:, None], plan.reach(pattern)[:, 1:]]
        out[pattern] = max(near if inside.any() else 0, far if not inside.all() else 0)
    return out


def shape_of(rows: Int64) -> Int64:
    """MAP, REDUCE or RESHAPE of each row: int64[R]."""
    return _SHAPE[rows[:, col.C_OP]]


def stagger_of(flat: Flat) -> Int64:
    """Cycles by which each peer copy is later than its row's stated offset: int64[R]."""
    k = flat.rows[:, col.C_K]
    ports = max(int(flat.table.ports[_UNIT_WRITE]), 1)
    return np.where(k > 0, (k - 1) // ports, 0)


_UNIT_WRITE = int(OPS[Op.STORE].units[0])
