"""The order that a timetable states: which row follows which on a port, plane, link or vector. Costs are added elsewhere."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ticktrue.cores import by_cores
from ticktrue.isa import Op, RegFn, Unit
from ticktrue.isa.ops import EXPERT_FNS
from ticktrue.program import Flat, RegionClass
from ticktrue.program import columns as col
from ticktrue.program.types import Int64
from ticktrue.sim.memory_kernel import memory_pairs, unpacked, written
from ticktrue.sim.order_kernel import INTERLEAVE, READ_AFTER_WRITE, REUSE, TURN, sweep

Int8 = npt.NDArray[np.int8]
_BYTE_PLANE = len(Unit)  # a resource that is no unit: what an INSTALL fills; PASSes drive the plane's port
_UNITS = len(Unit) + 1
_ROOM = 1 << 18  # slots of the set of memory pairs, twice what a small model needs; it grows


@dataclass(frozen=True, slots=True)
class Pairs:
    """Row `then` follows row `first`: int64[E], int64[E], and the reason (order_kernel), int8[E]."""

    first: Int64
    then: Int64
    kind: Int8

    def where(self, mask: npt.NDArray[np.bool_]) -> "Pairs":
        """The pairs that `mask` keeps."""
        return Pairs(self.first[mask], self.then[mask], self.kind[mask])


@dataclass(frozen=True, slots=True)
class Order:
    """All pairs of a timetable: `between` chains (rigid boxes), `inside` one chain, and `interleaved` on one port.

    `begin`, `end` are int64[R]: the stated cycles during which a row holds its port.
    """

    between: Pairs
    inside: Pairs
    interleaved: Pairs


@dataclass(frozen=True, slots=True)
class _Uses:
    """Holds of resources: sorted columns (resource, row, begin, end, whether it is a plane)."""

    resource: Int64
    row: Int64
    begin: Int64
    end: Int64
    plane: npt.NDArray[np.bool_]


def plane_end(flat: Flat) -> Int64:
    """Cycle at which the last PASS of each INSTALL ends; the INSTALL's own end where none follows, 0 for other rows."""
    rows = flat.rows
    ends = rows[:, col.C_ISSUE] + rows[:, col.C_SPAN]
    out = np.where(rows[:, col.C_OP] == Op.INSTALL, ends, 0)
    passes = np.flatnonzero((rows[:, col.C_OP] == Op.PASS) & (rows[:, col.C_S1] >= 0))
    np.maximum.at(out, rows[passes, col.C_S1], ends[passes])
    return out


def _port_uses(flat: Flat) -> list[tuple[Int64, Int64, bool]]:
    """(resource, row, plane) of all but links: memory, VXM, SXM, PASS, weight-load ports and byte planes."""
    rows = flat.rows
    unit, port, op = rows[:, col.C_UNIT], rows[:, col.C_PORT], rows[:, col.C_OP]
    link = (unit == Unit.C2C_SEND) | (unit == Unit.C2C_RECV)
    install = np.flatnonzero(op == Op.INSTALL)
    plain = np.flatnonzero(~link & (op != Op.INSTALL))
    loads = np.full(len(install), int(Unit.MXM_LOAD), dtype=np.int64)
    out = [(unit[plain] + _UNITS * (port[plain] + 1), plain, False), (loads, install, False)]
    bytes_each = np.array([2, 4, 1, 1], dtype=np.int64)[rows[install, col.C_DTYPE]]
    for k in range(4):
        used = bytes_each > k
        plane = port[install[used]] * bytes_each[used] + k
        out.append((_BYTE_PLANE + _UNITS * (plane + 1), install[used], True))
    return out


def _link_uses(flat: Flat) -> list[tuple[Int64, Int64]]:
    """(resource, row) of link rows, once for every way in which the names of links coincide on some chip.

    A link is known to a row as the k-th peer of a pattern; two names may mean one link on some chips and not on others.
    """
    rows = flat.rows
    unit = rows[:, col.C_UNIT]
    link = np.flatnonzero((unit == Unit.C2C_SEND) | (unit == Unit.C2C_RECV))
    if not len(link):
        return []
    names = (unit[link] * flat.plan.patterns + rows[link, col.C_PATTERN]) * (flat.plan.chips + 1) + rows[
        link, col.C_K
    ]
    _, example, family = np.unique(names, return_index=True, return_inverse=True)
    peer = np.stack([flat.peer(c)[link[example]] for c in range(flat.plan.chips)])
    target = peer * _UNITS + unit[link[example]]
    partitions = np.unique(np.stack([_first_like(names) for names in target]), axis=0)
    base = int(rows[:, col.C_PORT].max(initial=0)) + 16
    return [(_UNITS * (base + p[family.ravel()]) + unit[link], link) for p in partitions]


def _first_like(values: Int64) -> Int64:
    """For each value the place of the first equal one."""
    _, first, group = np.unique(values, return_index=True, return_inverse=True)
    return first[group].astype(np.int64)


def _sorted_uses(flat: Flat, parts: list[tuple[Int64, Int64, bool]]) -> _Uses:
    rows = flat.rows
    resource = np.concatenate([p[0] for p in parts])
    row = np.concatenate([p[1] for p in parts])
    plane = np.concatenate([np.full(len(p[1]), p[2]) for p in parts])
    begin = rows[row, col.C_ISSUE]
    by = np.lexsort((row, begin, resource))
    row, plane = row[by], plane[by]
    end = np.where(plane, plane_end(flat)[row], rows[row, col.C_ISSUE] + rows[row, col.C_SPAN])
    return _Uses(resource[by], row, begin[by], end, plane)


def progression(rows: Int64) -> tuple[Int64, Int64, Int64, Int64, Int64]:
    """Contiguous columns n, p, m, q, w."""
    n, p, m, q, w = (np.ascontiguousarray(rows[:, c]) for c in (col.C_N, col.C_P, col.C_M, col.C_Q, col.C_W))
    return n, p, m, q, w


def _port_pairs(flat: Flat) -> list[Pairs]:
    out = []
    n, p, m, q, w = progression(flat.rows)
    links = _link_uses(flat)
    first: list[tuple[Int64, Int64, bool]] = _port_uses(flat) + [(a, b, False) for a, b in links[:1]]
    for parts in [first, *([(a, b, False)] for a, b in links[1:])]:
        u = _sorted_uses(flat, parts)
        out.append(Pairs(*sweep(u.resource, u.row, u.begin, u.end, u.plane, n, p, m, q, w)))
    return out


def _memory_pairs(flat: Flat) -> Pairs:
    """Pairs by vector, exact on every chip.

    GATHER and SCATTER touch their whole region. A state region that only SCATTERs write is then one thing: every
    access of it meets every write of it, so one vector stands for all.
    """
    rows, table = flat.rows, flat.table
    unit = rows[:, col.C_UNIT]
    mem = np.flatnonzero((unit == Unit.MEM_WIDE) | (unit == Unit.MEM_READ) | (unit == Unit.MEM_WRITE))
    mem = mem[np.argsort(rows[mem, col.C_ISSUE], kind="stable")]
    if not len(mem):
        return Pairs(mem, mem, mem.astype(np.int8))
    of = rows[mem, col.C_REGION]
    bases = np.array([r.group * table.group_vectors + r.base for r in flat.regions] + [0], dtype=np.int64)
    sizes = np.array([r.vectors for r in flat.regions] + [0], dtype=np.int64)
    state = np.array([r.cls == RegionClass.STATE for r in flat.regions] + [False])
    whole = rows[mem, col.C_REGFN] != RegFn.NONE
    write = unit[mem] == Unit.MEM_WRITE
    state[of[write & ~whole]] = False
    token = state[of]
    n, m = rows[mem, col.C_N], rows[mem, col.C_M]
    step, step2, width = rows[mem, col.C_STEP], rows[mem, col.C_STEP2], rows[mem, col.C_WIDTH]
    space = table.mem_groups * table.group_vectors
    whole |= token | (n.astype(float) * m * width > space)
    n, m = np.where(whole | (step == 0), 1, n), np.where(whole | (step2 == 0), 1, m)
    width = np.where(token, 1, np.where(whole, sizes[of], width))
    address = np.stack([np.where(whole, bases[of], flat.address(c)[mem]) for c in range(flat.plan.chips)])
    fixed = np.array([r.cls in _FIXED for r in flat.regions] + [False])
    keep = ~fixed[of] | np.isin(of, of[write])
    parts = (mem, write, n, step, m, step2, width)
    columns = [np.ascontiguousarray(a[keep]) for a in parts]
    address = np.ascontiguousarray(address[:, keep])
    hot = written(address, *columns[1:], space)

    def of_chips(some: range) -> Int64:
        out: Int64 = memory_pairs(address[some.start :: some.step], hot, tuple(columns), len(rows), _ROOM)
        return out

    keys = np.sort(np.concatenate(by_cores(flat.plan.chips, of_chips)))
    new = np.ones(len(keys), dtype=bool)
    new[1:] = keys[1:] != keys[:-1]
    return Pairs(*unpacked(keys[new], len(rows)))


def _register_pairs(flat: Flat) -> Pairs:
    """A GATHER after the LATCH that wrote a register it names; a LATCH after what wrote or named its registers before.

    The registers of a token row count as one: what names one of its ranks comes after all of them are written.
    """
    rows = flat.rows
    latch = rows[:, col.C_OP] == Op.LATCH
    used = np.flatnonzero(latch | np.isin(rows[:, col.C_REGFN], EXPERT_FNS))
    used = used[np.argsort(rows[used, col.C_ISSUE], kind="stable")]
    writer: dict[int, int] = {}
    since: dict[int, list[int]] = {}
    found: set[tuple[int, int, int]] = set()
    for r in used.tolist():
        count = int(rows[r, col.C_M] * (rows[r, col.C_N] if latch[r] else 1))
        for token_row in range(int(rows[r, col.C_A0]), int(rows[r, col.C_A0]) + count):
            if token_row in writer:
                found.add((writer[token_row], r, REUSE if latch[r] else READ_AFTER_WRITE))
            if latch[r]:
                found |= {(x, r, REUSE) for x in since.pop(token_row, [])}
                writer[token_row] = r
            else:
                since.setdefault(token_row, []).append(r)
    pairs = np.array(sorted(found), dtype=np.int64).reshape(-1, 3)
    return Pairs(pairs[:, 0], pairs[:, 1], pairs[:, 2].astype(np.int8))


_FIXED = (RegionClass.WEIGHT, RegionClass.CONST)


def order_of(flat: Flat) -> Order:
    """Every pair of rows that the stated order of a timetable ties, on any chip."""
    parts = [_memory_pairs(flat), _register_pairs(flat), *_port_pairs(flat)]
    pairs = Pairs(*(np.concatenate(c) for c in zip(*((p.first, p.then, p.kind) for p in parts), strict=True)))
    chain = flat.rows[:, col.C_CHAIN]
    inside = chain[pairs.first] == chain[pairs.then]
    woven = pairs.kind == INTERLEAVE
    tiles = flat.rows[:, col.C_OP] == Op.PASS
    turns = inside & woven & tiles[pairs.first] & tiles[pairs.then]
    pairs.kind[turns] = TURN
    woven &= ~turns
    return Order(pairs.where(~inside & ~woven), pairs.where(inside & ~woven), pairs.where(~inside & woven))
