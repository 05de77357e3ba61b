"""The critical path of a timetable: which data each cycle of the step waited for, and why a chain started after its data.

The path follows data from the last write back to cycle 0. Where a chain started later than its data allowed, the gap is a wait
with its reason. Its segments lie end to end and cover the step exactly.
"""

import re
from dataclasses import dataclass, replace

import numpy as np

from ticktrue.isa import Op, Unit
from ticktrue.program import Flat, Timetable
from ticktrue.program import columns as col
from ticktrue.program.types import Int64
from ticktrue.sim import result as res
from ticktrue.sim.machine import Machine, shape_of
from ticktrue.sim.order import Order
from ticktrue.sim.order_kernel import PLANE, REUSE, binding, group_by
from ticktrue.sim.settle_kernel import MAP, RESHAPE
from ticktrue.sim.starts import RowTimes, weights
from ticktrue.sim.tie import label_of
from ticktrue.units import Cycles

_CAUSE = {
    int(Unit.MEM_WIDE): res.SRAM, int(Unit.MEM_READ): res.SRAM, int(Unit.MEM_WRITE): res.SRAM,
    int(Unit.MXM_LOAD): res.WEIGHT_LOAD, int(Unit.MXM_PLANE): res.MXM, int(Unit.VXM): res.VXM, int(Unit.SXM): res.SXM,
    int(Unit.C2C_SEND): res.SERIALIZATION, int(Unit.C2C_RECV): res.SERIALIZATION,
}  # fmt: skip
# Where rows of one stream hold their ports equally long, the stream's rhythm is put down to the last of these.
_PRECEDENCE = (Unit.MEM_WIDE, Unit.MEM_WRITE, Unit.MEM_READ, Unit.VXM, Unit.SXM, Unit.MXM_PLANE, Unit.MXM_LOAD,
               Unit.C2C_RECV, Unit.C2C_SEND)  # fmt: skip
_RANK = {int(unit): i for i, unit in enumerate(_PRECEDENCE)}
_PASS, _SEND = int(Op.PASS), int(Op.SEND)
_NAMES = tuple(op.name for op in Op)
_STREAM, _TILE, _AFTER = "stream", "tile", "after"
_LATE = (res.WAIT_CHAIN, res.WAIT_STREAMS, res.WAIT_QUEUE)  # by reason of a late chain
_INDEX = re.compile(r"^L\d+\.|\[[^\]]*\]|#.*$")


@dataclass(frozen=True, slots=True)
class _Step:
    """One step back within a chain: row `row` is what takes the time from offset `begin` to the last step's begin."""

    begin: int
    row: int
    cause: str


@dataclass(frozen=True, slots=True)
class _Links:
    """What binds each chain: pair indices `bind` and `data` (-1: none), the pairs' rows, kinds and weights."""

    bind: Int64
    data: Int64
    first: Int64
    then: Int64
    kind: Int64
    weight: Int64


@dataclass(frozen=True, slots=True)
class _Rows:
    """Columns of all rows as plain lists (a walk reads single values), times relative to the chain's start.

    `last` is the issue of the last event, `inner` its distance from the first one of the same j, `way` the cycles from a
    row's last event to its consumer's, `slot` those of them that a link is held; `inside` lists, per row, the rows of its
    own chain that end exactly when it begins.
    """

    op: list[int]
    unit: list[int]
    s0: list[int]
    s1: list[int]
    w: list[int]
    offset: list[int]
    end: list[int]
    last: list[int]
    inner: list[int]
    way: list[int]
    slot: list[int]
    maps: list[bool]
    inside: dict[int, list[int]]


def _rows(flat: Flat, machine: Machine, order: Order, times: RowTimes) -> _Rows:
    rows, shape = flat.rows, shape_of(flat.rows)
    way = machine.arrival(rows) + np.where(shape == RESHAPE, rows[:, col.C_X0] - 1, 0)
    inside: dict[int, list[int]] = {}
    for e in np.flatnonzero(weights(order.inside, times) == 0):
        inside.setdefault(int(order.inside.then[e]), []).append(int(order.inside.first[e]))
    columns = (
        rows[:, col.C_OP], rows[:, col.C_UNIT], rows[:, col.C_S0], rows[:, col.C_S1], rows[:, col.C_W], times.offset,
        times.end, times.end - rows[:, col.C_W], (rows[:, col.C_N] - 1) * rows[:, col.C_P], way, machine.slots(rows),
        shape == MAP,
    )  # fmt: skip
    op, unit, s0, s1, w, offset, end, last, inner, ways, slot, maps = (c.tolist() for c in columns)
    return _Rows(op, unit, s0, s1, w, offset, end, last, inner, ways, slot, maps, inside)


def _links(flat: Flat, order: Order, times: RowTimes) -> _Links:
    chain = np.ascontiguousarray(flat.rows[:, col.C_CHAIN])
    sequence = np.argsort(flat.start, kind="stable")
    pairs = order.between
    pointer, members = group_by(chain[pairs.then], len(flat.start), sequence)
    first, then, kind = pairs.first[members], pairs.then[members], pairs.kind[members]
    weight = weights(pairs, times)[members]
    bind, data = binding(sequence, pointer, chain[first], weight, kind, flat.start)
    return _Links(bind, data, first, then, kind.astype(np.int64), weight)


class _Walk:
    """Walks back through one chain: towards the row that its last data came to, else to the earliest offset."""

    def __init__(self, rows: _Rows, members: range, target: int) -> None:
        self._r = rows
        self._before: dict[int, tuple[str, int]] = {}
        reach: dict[int, int] = {}
        leads = {target} if target >= 0 else set()
        for r in sorted(members, key=lambda r: (rows.offset[r], r)):  # operands before those who hear them
            least, way = rows.offset[r], ("", -1)
            for tie in self._ties(r):
                low = min(reach.get(tie[1], rows.offset[tie[1]]), rows.offset[r])
                ahead, found = tie[1] in leads, way[1] in leads
                if way[1] < 0 or (ahead, -low) > (found, -least):
                    least, way = low, tie
            reach[r], self._before[r] = least, way
            if way[1] in leads:
                leads.add(r)

    def _ties(self, r: int) -> list[tuple[str, int]]:
        c, out = self._r, []
        if c.s0[r] >= 0:
            out.append((_STREAM, c.s0[r]))
        s1 = c.s1[r]
        if s1 >= 0 and c.op[r] != _PASS:
            out.append((_STREAM, s1))
        elif s1 >= 0 and c.offset[s1] + c.inner[s1] + c.w[s1] + c.way[s1] == c.offset[r]:
            out.append((_TILE, s1))
        out += [(_AFTER, x) for x in c.inside.get(r, ())]
        return out

    def steps(self, r: int, end: int) -> list[_Step]:
        """Steps from the offset `end`, where row r has done its work, back to a root, by way of the target if that can be."""
        c = self._r
        last, beat = c.last[r], [r]
        out = [_Step(c.end[r], r, res.SRAM)] if end > c.end[r] else []
        out.append(_Step(last, r, self._cause(r)))
        for _ in range(len(self._before)):  # no longer than the chain, even if its operands go in a ring
            kind, x = self._before.get(r, ("", -1))
            if kind == _STREAM:
                out += self._flight(x, last)
                beat = [*beat, x] if c.maps[x] else [x]
                last -= c.way[x]
            else:
                # from the last event back to the first: the rhythm of the stream, set by its slowest row
                first = last - c.inner[r] if kind == _TILE else c.offset[r]
                slow = max(beat, key=lambda r: (c.w[r], _RANK[c.unit[r]]))
                out.append(_Step(first, slow, self._cause(slow)))
                if x < 0:
                    return out
                last, beat = c.last[x], [x]
                out.append(_Step(last, x, self._cause(x)))
            r = x
        return out

    def _cause(self, r: int) -> str:
        return _CAUSE[self._r.unit[r]]

    def _flight(self, x: int, end: int) -> list[_Step]:
        """The way of a result of row x to its consumer at `end`; a link's way is the first bit's latency, then one slot."""
        c = self._r
        if c.op[x] != _SEND:
            return [_Step(end - c.way[x], x, self._cause(x))]
        return [_Step(end - c.slot[x], x, res.SERIALIZATION), _Step(end - c.way[x], x, res.FIRST_BIT)]


def _wait(flat: Flat, links: _Links, chain: int, late: int) -> str:
    """Why a chain started later than its last data came."""
    e = int(links.bind[chain])
    if late != col.ON_TIME or e < 0:
        return _LATE[late]
    if links.kind[e] == PLANE:
        return res.WAIT_PLANE
    if links.kind[e] == REUSE:
        return res.WAIT_MEMORY
    unit = Unit(int(flat.rows[links.first[e], col.C_UNIT]))
    if unit == Unit.MXM_LOAD:
        return res.WAIT_WEIGHT_LOAD
    return res.WAIT_LINK if unit in {Unit.C2C_SEND, Unit.C2C_RECV} else res.WAIT_PORT


class _Path:
    """Collects segments from the end of the step backwards; each takes what is left between its begin and the cursor."""

    def __init__(self, op: list[int], labels: tuple[str, ...], end: int) -> None:
        self._op, self._labels = op, labels
        self.cursor = end
        self.segments: list[res.Segment] = []

    def take(self, begin: int, chain: int, row: int, cause: str) -> None:
        """Puts [begin, cursor) down to a row of a chain (row -1: the chain only waits)."""
        cycles, begin = self.cursor - max(begin, 0), max(begin, 0)
        if cycles <= 0:
            return
        op = _NAMES[self._op[row]] if row >= 0 else "WAIT"
        label = label_of(self._labels, chain)
        self.segments.append(res.Segment(Cycles(begin), Cycles(cycles), chain, label, op, cause))
        self.cursor = begin


def critical_path(
    flat: Flat, machine: Machine, order: Order, times: RowTimes, timetable: Timetable
) -> tuple[res.Segment, ...]:
    """Segments of the critical path in order of time; together they last as long as the rows of the timetable."""
    if not len(flat.rows):
        return ()
    links, chain = _links(flat, order, times), flat.rows[:, col.C_CHAIN]
    rows = _rows(flat, machine, order, times)
    done = flat.start[chain] + times.readable
    x = int(np.argmax(done))
    path = _Path(rows.op, timetable.labels, int(done[x]))
    end = int(times.readable[x])
    for _ in range(2 * len(flat.start) + 2):
        u = int(chain[x])
        start = int(flat.start[u])
        e = int(links.data[u]) if links.data[u] >= 0 else int(links.bind[u])
        low = start + int(times.offset[links.then[e]]) if e >= 0 else 0
        members = range(int(flat.row_of_chain[u]), int(flat.row_of_chain[u + 1]))
        for step in _Walk(rows, members, int(links.then[e]) if e >= 0 else -1).steps(x, end):
            path.take(max(start + step.begin, low), u, step.row, step.cause)
        late = int(timetable.chains[u, 2])
        path.take(low, u, -1, _LATE[late] if e < 0 else res.WAIT_CHAIN)
        if e < 0 or path.cursor <= 0:
            break
        v = int(chain[links.first[e]])
        ready = int(flat.start[v] + links.weight[e]) + low - start
        path.take(ready, u, -1, _wait(flat, links, u, late))
        x = int(links.first[e])
        end = ready - int(flat.start[v])
    path.take(0, int(chain[x]), -1, res.WAIT_CHAIN)
    return tuple(_joined(path.segments[::-1]))


def _joined(segments: list[res.Segment]) -> list[res.Segment]:
    """Neighbouring segments of one chain, op and cause made one."""
    out: list[res.Segment] = []
    for s in segments:
        if out and (out[-1].chain, out[-1].op, out[-1].cause) == (s.chain, s.op, s.cause):
            before = out.pop()
            out.append(replace(before, cycles=Cycles(before.cycles + s.cycles)))
        else:
            out.append(s)
    return out


def phase_of(label: str) -> str:
    """The phase a chain belongs to, from its label: L3.attn_norm.r -> waiting: norm; L3.gu.tile[4] -> gu.tile."""
    parts = [p for p in _INDEX.sub("", label).split(".") if p and not p.isdigit()]
    return "waiting: norm" if parts and "norm" in parts[0] else ".".join(parts[:2]) or "other"


def shares(path: tuple[res.Segment, ...]) -> tuple[tuple[res.Share, ...], tuple[res.Share, ...]]:
    """(cycles by cause, in the order of `CAUSES`; cycles by phase, most first) along the critical path."""
    cause = dict.fromkeys(res.CAUSES, 0)
    chain: dict[str, int] = {}
    for s in path:
        cause[s.cause] += s.cycles
        chain[s.label] = chain.get(s.label, 0) + s.cycles
    phase: dict[str, int] = {}
    for label, cycles in chain.items():
        name = phase_of(label)
        phase[name] = phase.get(name, 0) + cycles
    by_size = sorted(phase.items(), key=lambda item: (-item[1], item[0]))
    return (
        tuple(res.Share(n, Cycles(c)) for n, c in cause.items() if c),
        tuple(res.Share(n, Cycles(c)) for n, c in by_size),
    )
