"""The critical path of a timetable: which data each cycle of the step waited for, and why a chain started after its data.

The path follows data from the last write back to cycle 0. Where a chain started later than its data allowed, the gap is a wait
with its reason. Its segments lie end to end and cover the step exactly.
"""

import re
from dataclasses import dataclass

import numpy as np

from ticktrue.isa import Op, Unit
from ticktrue.program import Flat, Timetable
from ticktrue.program import columns as col
from ticktrue.program.types import Int64
from ticktrue.sim import result as res
from ticktrue.sim.machine import Machine, shape_of
from ticktrue.sim.order import Order
from ticktrue.sim.order_kernel import PLANE, READ_AFTER_WRITE, REUSE, binding, group_by
from ticktrue.sim.settle_kernel import MAP, RESHAPE
from ticktrue.sim.starts import RowTimes, weights
from ticktrue.sim.tie import label_of
from ticktrue.units import Cycles

_CAUSE = {
    Unit.MEM_WIDE: res.SRAM, Unit.MEM_READ: res.SRAM, Unit.MEM_WRITE: res.SRAM, Unit.MXM_LOAD: res.WEIGHT_LOAD,
    Unit.MXM_PLANE: res.MXM, Unit.VXM: res.VXM, Unit.SXM: res.SXM, Unit.C2C_SEND: res.SERIALIZATION,
    Unit.C2C_RECV: res.SERIALIZATION,
}  # fmt: skip
# Where rows of one stream hold their ports equally long, the stream's rhythm is put down to the first of these.
_PRECEDENCE = (Unit.C2C_SEND, Unit.C2C_RECV, Unit.MXM_LOAD, Unit.MXM_PLANE, Unit.SXM, Unit.VXM, Unit.MEM_READ,
               Unit.MEM_WRITE, Unit.MEM_WIDE)  # fmt: skip
_RANK = {unit: len(_PRECEDENCE) - i for i, unit in enumerate(_PRECEDENCE)}


_INDEX = re.compile(r"^L\d+\.|\[[^\]]*\]|#.*$")


@dataclass(frozen=True, slots=True)
class _Step:
    """One step back within a chain: from row `row` at `begin` (offset of the chain) up to the last step's begin."""

    begin: int
    end: int
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
class _Chains:
    """All that a walk reads; `inside` lists, per row, rows of the same chain that it follows, with the cost."""

    flat: Flat
    times: RowTimes
    slots: Int64
    arrival: Int64
    shape: Int64
    inside: dict[int, list[tuple[int, int]]]


def _links(flat: Flat, order: Order, times: RowTimes) -> _Links:
    chain = np.ascontiguousarray(flat.rows[:, col.C_CHAIN])
    sequence = np.argsort(flat.start, kind="stable")
    pairs = order.between
    pointer, members = group_by(chain[pairs.then], len(flat.start), sequence)
    first, then, kind = pairs.first[members], pairs.then[members], pairs.kind[members]
    weight = weights(pairs, times)[members]
    bind, data = binding(sequence, pointer, chain[first], weight, kind, flat.start)
    return _Links(bind, data, first, then, kind.astype(np.int64), weight)


def _inside(order: Order, times: RowTimes) -> dict[int, list[tuple[int, int]]]:
    """Per row the rows of its own chain that end exactly when it begins, other than by stream: {row: [(row, end)]}."""
    out: dict[int, list[tuple[int, int]]] = {}
    cost = weights(order.inside, times)
    for e in np.flatnonzero(cost == 0):
        x, r = int(order.inside.first[e]), int(order.inside.then[e])
        out.setdefault(r, []).append((x, int(times.offset[r])))
    return out


class _Walk:
    """Walks back through one chain, choosing at each row the tie that leads to the earliest offset."""

    def __init__(self, chains: _Chains) -> None:
        self._c = chains
        self._reach: dict[int, tuple[int, str, int]] = {}

    def _ties(self, r: int) -> list[tuple[str, int]]:
        rows, t = self._c.flat.rows, self._c.times
        out: list[tuple[str, int]] = []
        is_pass = rows[r, col.C_OP] == Op.PASS
        if rows[r, col.C_S0] >= 0:
            out.append(("stream", int(rows[r, col.C_S0])))
        s1 = int(rows[r, col.C_S1])
        if s1 >= 0 and not is_pass:
            out.append(("stream", s1))
        if s1 >= 0 and is_pass:
            fill = (rows[s1, col.C_N] - 1) * rows[s1, col.C_P] + rows[s1, col.C_W] + self._c.arrival[s1]
            if t.offset[s1] + fill == t.offset[r]:
                out.append(("plane", s1))
        out += [("inside", x) for x, _ in self._c.inside.get(r, [])]
        return out

    def reach(self, r: int) -> tuple[int, str, int]:
        """(least offset from which a tight path leads to row r, kind of the last tie, row before; '' and -1: a root)."""
        known = self._reach.get(r)
        if known is not None:
            return known
        best = (int(self._c.times.offset[r]), "", -1)
        self._reach[r] = best
        for kind, x in self._ties(r):
            low = self.reach(x)[0]
            if low < best[0] or best[2] < 0:
                best = (min(low, best[0]), kind, x)
        self._reach[r] = best
        return best

    def steps(self, r: int, end: int) -> list[_Step]:
        """Steps from the offset `end`, where row r has done its work, back to the root of its path."""
        c, rows = self._c, self._c.flat.rows
        out: list[_Step] = []
        last = self._last(r)
        if end > c.times.end[r]:
            out.append(_Step(int(c.times.end[r]), end, r, res.SRAM))
        out.append(_Step(last, int(c.times.end[r]), r, self._cause(r)))
        beat = [r]
        while True:
            _, kind, x = self.reach(r)
            if kind == "stream":
                gap = int(c.arrival[x]) + (int(rows[x, col.C_X0]) - 1 if c.shape[x] == RESHAPE else 0)
                out += self._flight(x, last - gap, last)
                beat = [x] if c.shape[x] != MAP else [*beat, x]
                last -= gap
            else:
                # from the last event back to the first: the rhythm of the stream, set by its slowest row
                first = int(c.times.offset[r]) if kind != "plane" else last - self._inner(r)
                out.append(_Step(first, last, *self._slowest(beat)))
                if x < 0:
                    return out
                last = self._last(x)
                if kind == "plane":
                    out.append(_Step(last, first, x, res.WEIGHT_LOAD))
                else:
                    out.append(_Step(last, first, x, self._cause(x)))
                beat = [x]
            r = x

    def _last(self, r: int) -> int:
        """Offset of the last event of a row."""
        return int(self._c.times.end[r] - self._c.flat.rows[r, col.C_W])

    def _inner(self, r: int) -> int:
        return int((self._c.flat.rows[r, col.C_N] - 1) * self._c.flat.rows[r, col.C_P])

    def _cause(self, r: int) -> str:
        return _CAUSE[Unit(int(self._c.flat.rows[r, col.C_UNIT]))]

    def _slowest(self, beat: list[int]) -> tuple[int, str]:
        rows = self._c.flat.rows
        r = max(beat, key=lambda r: (int(rows[r, col.C_W]), _RANK[Unit(int(rows[r, col.C_UNIT]))]))
        return r, self._cause(r)

    def _flight(self, x: int, begin: int, end: int) -> list[_Step]:
        """The way of a result of row x to its consumer; a link's way is the first bit's latency, then one slot."""
        rows = self._c.flat.rows
        if rows[x, col.C_OP] != Op.SEND:
            return [_Step(begin, end, x, self._cause(x))]
        slot = int(self._c.slots[x])
        return [_Step(end - slot, end, x, res.SERIALIZATION), _Step(begin, end - slot, x, res.FIRST_BIT)]


def _wait(flat: Flat, links: _Links, chain: int, marked: bool) -> str:
    """Why a chain started later than its last data came."""
    e = int(links.bind[chain])
    if marked or e < 0:
        return res.WAIT_STREAMS if marked else res.WAIT_CHAIN
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

    def __init__(self, flat: Flat, labels: tuple[str, ...], end: int) -> None:
        self._flat, self._labels = flat, labels
        self.cursor = end
        self.segments: list[res.Segment] = []

    def take(self, begin: int, chain: int, row: int, cause: str) -> None:
        """Puts [begin, cursor) down to a row of a chain (row -1: the chain only waits)."""
        cycles, begin = self.cursor - max(begin, 0), max(begin, 0)
        if cycles <= 0:
            return
        op = Op(int(self._flat.rows[row, col.C_OP])).name if row >= 0 else "WAIT"
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
    arrival, shape = machine.arrival(flat.rows), shape_of(flat.rows)
    walk = _Walk(_Chains(flat, times, machine.slots(flat.rows), arrival, shape, _inside(order, times)))
    done = flat.start[chain] + times.readable
    x = int(np.argmax(done))
    path = _Path(flat, timetable.labels, int(done[x]))
    end = int(times.readable[x])
    for _ in range(2 * len(flat.start) + 2):
        u = int(chain[x])
        start = int(flat.start[u])
        e = int(links.data[u]) if links.data[u] >= 0 else int(links.bind[u])
        low = start + int(times.offset[links.then[e]]) if e >= 0 else 0
        for step in walk.steps(x, end):
            path.take(max(start + step.begin, low), u, step.row, step.cause)
        path.take(low, u, -1, res.WAIT_CHAIN)
        if e < 0 or path.cursor <= 0:
            break
        v, marked = int(chain[links.first[e]]), bool(timetable.chains[u, 2] != col.ON_TIME)
        ready = int(flat.start[v] + links.weight[e]) + low - start
        path.take(ready, u, -1, _wait(flat, links, u, marked))
        x = int(links.first[e])
        end = ready - int(flat.start[v])
    path.take(0, int(chain[x]), -1, res.WAIT_CHAIN)
    return tuple(_joined(path.segments[::-1]))


def _joined(segments: list[res.Segment]) -> list[res.Segment]:
    """Neighbouring segments of one chain, op and cause made one."""
    out: list[res.Segment] = []
    for s in segments:
        if out and (out[-1].chain, out[-1].op, out[-1].cause) == (s.chain, s.op, s.cause):
            s = res.Segment(out[-1].begin_cycle, Cycles(out[-1].cycles + s.cycles), s.chain, s.label, s.op, s.cause)  # noqa: PLW2901 - the joined one takes its place
            out.pop()
        out.append(s)
    return out


def phase_of(label: str) -> str:
    """The phase a chain belongs to, from its label: L3.attn_norm.r -> waiting: norm; L3.gu.tile[4] -> gu.tile."""
    parts = [p for p in _INDEX.sub("", label).split(".") if p and not p.isdigit()]
    return "waiting: norm" if parts and "norm" in parts[0] else ".".join(parts[:2]) or "other"


def shares(path: tuple[res.Segment, ...]) -> tuple[tuple[res.Share, ...], tuple[res.Share, ...]]:
    """(cycles by cause, in the order of `CAUSES`; cycles by phase, most first) along the critical path."""
    cause = dict.fromkeys(res.CAUSES, 0)
    phase: dict[str, int] = {}
    for s in path:
        cause[s.cause] += s.cycles
        name = phase_of(s.label)
        phase[name] = phase.get(name, 0) + s.cycles
    by_size = sorted(phase.items(), key=lambda item: (-item[1], item[0]))
    return (
        tuple(res.Share(n, Cycles(c)) for n, c in cause.items() if c),
        tuple(res.Share(n, Cycles(c)) for n, c in by_size),
    )
