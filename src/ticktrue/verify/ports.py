"""Whether units (V101) and memory ports (V102) serve one event a cycle, planes keep tiles (V110), streams suffice (V111)."""

from dataclasses import dataclass

import numpy as np

from ticktrue.isa import Dtype, Op, Unit
from ticktrue.program import columns as col
from ticktrue.program import output_progression
from ticktrue.program.types import Int64
from ticktrue.verify.conflict_kernel import sweep
from ticktrue.verify.scope import Scope
from ticktrue.verify.stored import ELEMENT_BYTES, YIELDS
from ticktrue.verify.verdict import LIMIT

_USE = (col.C_ISSUE, col.C_N, col.C_P, col.C_M, col.C_Q, col.C_W)
BEAT_STREAMS, NARROW_STREAMS = 4, 2


@dataclass(frozen=True, slots=True)
class Uses:
    """Holds of resources: `resource` int64[U], `row` int64[U], `use` int64[U, 6] = (start, n, p, m, q, w)."""

    resource: Int64
    row: Int64
    use: Int64

    def conflicts(self) -> tuple[Int64, int]:
        """Class rows and first cycle of each pair that holds one resource at once, and how many pairs there are."""
        order = np.lexsort((self.row, self.use[:, 0], self.resource))
        found, count = sweep(
            np.ascontiguousarray(self.resource[order]), np.ascontiguousarray(self.use[order]), 4 * LIMIT
        )
        rows = self.row[order]
        pairs = np.stack([rows[found[:, 0]], rows[found[:, 1]], found[:, 2]], axis=1).astype(np.int64)
        return pairs, int(count)


def check_pace(scope: Scope) -> None:
    """Finds rows whose own events follow each other faster than their port is free; the exact tests rely on it."""
    rows = scope.rows
    n, p, m, q, w = (rows[:, c] for c in _USE[1:])
    fast = ((n > 1) & (w > p)) | ((m > 1) & ((n - 1) * p + w > q))
    unit = rows[:, col.C_UNIT]
    memory, link = unit <= Unit.MEM_WRITE, (unit == Unit.C2C_SEND) | (unit == Unit.C2C_RECV)
    text = "holds its port for {} cycles, longer than until its next event"
    scope.each("V101", fast & ~memory & ~link, text, w)
    scope.each("V102", fast & memory, text, w)
    scope.each(
        "V107", fast & link, "holds its link for {} cycles (slots), longer than until its next event", w
    )


def check_ports(scope: Scope) -> None:
    """Finds pairs of rows on one port in one cycle, and planes that lose a tile."""
    rows = scope.rows
    unit, op = rows[:, col.C_UNIT], rows[:, col.C_OP]
    units = np.int64(len(Unit))
    plain = np.flatnonzero(
        (unit != Unit.C2C_SEND) & (unit != Unit.C2C_RECV) & (op != Op.PASS) & (op != Op.INSTALL)
    )
    passes, installs = np.flatnonzero(op == Op.PASS), np.flatnonzero(op == Op.INSTALL)
    parts = [
        (rows[plain, col.C_PORT] * units + unit[plain], plain),
        (np.full(len(installs), int(Unit.MXM_LOAD)), installs),
    ]
    for byte in range(int(ELEMENT_BYTES.max())):
        size = ELEMENT_BYTES[rows[rows[passes, col.C_S1], col.C_DTYPE]]
        used = passes[size > byte]
        plane = rows[used, col.C_PORT] * size[size > byte] + byte
        parts.append((plane * units + int(Unit.MXM_PLANE), used))
    resource, row = np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])
    uses = Uses(resource, row, rows[row][:, _USE])
    pairs, count = uses.conflicts()
    for a, b, cycle in _once(pairs):
        memory = rows[a, col.C_UNIT] <= Unit.MEM_WRITE
        code, verb = ("V102", "serves two events") if memory else ("V101", "is driven twice")
        message = (
            f"chip 0 {scope.port(a)} {verb} at cycle {cycle:_}: by {scope.name(a)} and by {scope.name(b)}"
        )
        scope.add(code, a, message, second=b, cycle=cycle)
    scope.findings.count(count - len(pairs))
    _planes(scope, installs)


def _once(pairs: Int64) -> list[tuple[int, int, int]]:
    """Each pair of rows once, though it meets on several byte planes."""
    seen: dict[tuple[int, int], int] = {}
    for a, b, cycle in pairs.tolist():
        seen.setdefault((a, b), cycle)
    return [(a, b, cycle) for (a, b), cycle in seen.items()]


def _holds(scope: Scope, installs: Int64) -> tuple[Int64, Int64]:
    """(start, cycles) for which each INSTALL's tile, of each round, needs its plane: to the end of its last PASS."""
    rows = scope.rows
    loaded = rows[:, col.C_ISSUE] + (rows[:, col.C_N] - 1) * rows[:, col.C_P] + rows[:, col.C_W]
    end = loaded.copy()
    passes = np.flatnonzero(rows[:, col.C_OP] == Op.PASS)
    tile = rows[passes, col.C_S1]
    # of a PASS that uses one tile in several rounds the last round counts; of one with a tile per round, its own
    rounds = np.where(rows[tile, col.C_M] > 1, 0, (rows[passes, col.C_M] - 1) * rows[passes, col.C_Q])
    np.maximum.at(end, tile, loaded[passes] + rounds)
    start = rows[:, col.C_ISSUE]
    if scope.system.chip.value("mxm_double_buffer"):
        start = np.minimum(loaded + scope.flat.table.latency[Op.INSTALL], end - 1)
    return start[installs], np.maximum(end[installs] - start[installs], 1)


def _planes(scope: Scope, installs: Int64) -> None:
    """V110: a plane holds a tile from its INSTALL's issue (double buffer: from when it is in) to its last PASS."""
    rows = scope.rows
    start, hold = _holds(scope, installs)
    m, q = rows[installs, col.C_M], rows[installs, col.C_Q]
    own = np.zeros(len(rows), dtype=bool)
    own[installs[(m > 1) & (hold > q)]] = True
    scope.each(
        "V110", own, "overwrites its own tile before its last pass: a tile is needed longer than q =", None
    )
    fine = ~own[installs]
    use = np.stack([start, np.ones_like(m), np.zeros_like(m), m, q, hold], axis=1)[fine]
    size = ELEMENT_BYTES[rows[installs, col.C_DTYPE]][fine]
    kept = installs[fine]
    parts = [(rows[kept[size > b], col.C_PORT] * size[size > b] + b, kept[size > b], use[size > b])
             for b in range(int(ELEMENT_BYTES.max()))]  # fmt: skip
    uses = Uses(*(np.concatenate([p[i] for p in parts]) for i in range(3)))
    pairs, count = uses.conflicts()
    for a, b, cycle in _once(pairs):
        message = (f"chip 0 MXM plane {int(rows[b, col.C_PORT])} is overwritten at cycle {cycle:_} by {scope.name(b)} before the "
                   f"last pass of the tile of {scope.name(a)}")  # fmt: skip
        scope.add("V110", b, message, second=a, cycle=cycle)
    scope.findings.count(count - len(pairs))


def check_streams(scope: Scope) -> None:
    """Finds the first cycle at which more streams are live than the chip has, and the two rows that began last."""
    rows, streams = scope.rows, scope.flat.table.streams
    op = rows[:, col.C_OP]
    out = output_progression(scope.flat)
    packet = np.isin(op, [int(Op.LOAD), int(Op.GATHER), int(Op.RECEIVE)])
    narrow = (op == Op.CONVERT) | ((op == Op.TRANSPOSE) & (rows[:, col.C_DTYPE] == Dtype.BF16))
    width = np.where(packet, rows[:, col.C_WIDTH], np.where(narrow, NARROW_STREAMS, BEAT_STREAMS))
    live = np.flatnonzero(YIELDS[op] & (rows[:, col.C_UNIT] != Unit.MEM_WIDE))
    begin = out[live, 0]
    end = begin + (out[live, 1] - 1) * out[live, 2] + (out[live, 3] - 1) * out[live, 4] + 1
    cycle = np.concatenate([begin, end])
    change = np.concatenate([width[live], -width[live]])
    order = np.lexsort((change, cycle))
    total = np.cumsum(change[order])
    over = np.flatnonzero(total > streams)
    if not len(over):
        return
    at = int(cycle[order[over[0]]])
    begun = live[(begin <= at) & (end > at)]
    latest = begun[np.argsort(begin[(begin <= at) & (end > at)], kind="stable")]
    first, second = int(latest[-1]), int(latest[-2]) if len(latest) > 1 else -1
    used = int(width[begun].sum())
    also = f" and {scope.name(second)}" if second >= 0 else ""
    message = f"chip 0 has {used} live streams at cycle {at:_}, {streams} exist; begun last: {scope.name(first)}{also}"
    scope.add("V111", first, message, second=second, cycle=at)
