"""Chains -> rows: the deterministic expansion that `verify`, `sim` and `execute` each read.

The class form has one row per functional action of a chip of the class, peers and iterations of loops written out. The flat form
is the class form on every chip: `Flat.address` and `Flat.peer` give what depends on the chip's rank.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ticktrue.errors import InputError
from ticktrue.hw import System
from ticktrue.isa import OPS, Kind, Op, OpTable, Unit
from ticktrue.program import columns as col
from ticktrue.program.loops import iterations, moved_regions
from ticktrue.program.rank_kernel import peers, ranks
from ticktrue.program.types import Image, Int64, Plan, Region, Timetable

_FIRST_UNIT = np.array([int(i.units[0]) for i in OPS], dtype=np.int64)
_MEMORY = np.array([i.units[0] in {Unit.MEM_READ, Unit.MEM_WRITE} for i in OPS])


@dataclass(frozen=True, slots=True)
class Flat:
    """Rows of one timetable on all chips.

    `rows` int64[R, C_COLUMNS], class form; `start` int64[chains]; `row_of_chain` int64[chains + 1].
    """

    rows: Int64
    start: Int64
    row_of_chain: Int64
    plan: Plan
    table: OpTable
    regions: tuple[Region, ...]

    def rank_index(self, chip: int) -> Int64:
        """What the rank function of each row's address evaluates to on `chip`: int64[R]."""
        out: Int64 = ranks(self.rows, np.ascontiguousarray(_tables(self.plan)[2, :, chip]))
        return out

    def address(self, chip: int) -> Int64:
        """Absolute vector address of event (0, 0) of each memory row on `chip`, register part zero: int64[R]."""
        return self.rows[:, col.C_ABS] + self.rank_index(chip) * self.rows[:, col.C_RANKSTRIDE]

    def peer(self, chip: int) -> Int64:
        """The chip a SEND goes to, or a RECEIVE comes from, on `chip`; -1 for other rows: int64[R]."""
        on, back, _ = np.ascontiguousarray(_tables(self.plan)[:, :, chip])
        out: Int64 = peers(self.rows, on, back)
        return out


@lru_cache(maxsize=8)
def _tables(plan: Plan) -> Int64:
    """int64[3, patterns, chips, k]: the chip k places on, that k places back, and the latter's rank; -1 beyond the group."""
    out = np.full((3, plan.patterns, plan.chips, plan.chips), -1, dtype=np.int64)
    for pattern in range(plan.patterns):
        rank = np.array([plan.rank(pattern, chip) for chip in range(plan.chips)], dtype=np.int64)
        back = plan.reach(pattern, back=True)
        for way, values in enumerate((plan.reach(pattern), back, rank[back])):
            out[way, pattern, :, : values.shape[1]] = values
    out.flags.writeable = False
    return out


def class_regions(image: Image, timetable: Timetable) -> tuple[Region, ...]:
    """The regions that row columns refer to: the image's, then the timetable's scratch."""
    return image.regions + timetable.scratch


def hold_cycles(table: OpTable, rows: Int64, slots: npt.NDArray[np.int64]) -> Int64:
    """W of each row: cycles one event holds its port. `slots` int64[R]: link slot of SEND and RECEIVE rows."""
    w = np.ones(len(rows), dtype=np.int64)
    vectors = table.port_vectors[rows[:, col.C_UNIT]]
    memory = vectors > 0
    w[memory] = -(-rows[memory, col.C_WIDTH] // vectors[memory])
    install = rows[:, col.C_OP] == Op.INSTALL
    w[install] = -(-rows[install, col.C_WIDTH] * 320 // table.weight_load_bytes)
    link = (rows[:, col.C_UNIT] == Unit.C2C_SEND) | (rows[:, col.C_UNIT] == Unit.C2C_RECV)
    w[link] = slots[link] * rows[link, col.C_WIDTH]
    source = np.flatnonzero(install & (rows[:, col.C_S0] >= 0))
    loaded = rows[source, col.C_S0]
    wide = rows[loaded, col.C_UNIT] == Unit.MEM_WIDE  # a tile is not in before its LOAD has brought all of it
    w[source[wide]] = np.maximum(w[source[wide]], w[loaded[wide]])
    return np.maximum(w, 1)


def _repeat(timetable: Timetable, plan: Plan) -> tuple[Int64, Int64, Int64, Int64]:
    """(template row, var row, k, chain) of every class row, peers written out in order k = 1 .. group - 1."""
    start = timetable.template_start.astype(np.int64)
    chains = timetable.chains
    lengths = (start[1:] - start[:-1])[chains[:, 0]]
    chain = np.repeat(np.arange(len(chains), dtype=np.int64), lengths)
    first = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)
    var = np.arange(int(lengths.sum()), dtype=np.int64)
    trow = var - first[chain] + start[chains[chain, 0]]
    sizes = np.array([plan.size(k) for k in range(plan.patterns)], dtype=np.int64)
    peers = timetable.templates[trow, col.T_PEERS] > 0
    copies = np.where(peers, sizes[timetable.templates[trow, col.T_PATTERN]] - 1, 1)
    index = np.repeat(np.arange(len(var), dtype=np.int64), copies)
    base = np.concatenate([[0], np.cumsum(copies)[:-1]]).astype(np.int64)
    k = np.where(peers[index], np.arange(len(index), dtype=np.int64) - base[index] + 1, 0)
    return trow[index], var[index], k, chain[index]


def _sources(templates: Int64, trow: Int64, var: Int64, k: Int64) -> tuple[Int64, Int64]:
    """Class row of each operand (-1: none): a peer copy hears the copy of its own k, or the one row without copies."""
    first_of_var = np.searchsorted(var, np.arange(int(var[-1]) + 1 if len(var) else 0))
    out = []
    for column in (col.T_S0, col.T_S1):
        rel = templates[trow, column]
        # operands are named by template row; rows of a chain are consecutive in `var`
        target_var = var + (rel - _local(templates, trow))
        ok = (rel >= 0) & (target_var >= 0) & (target_var < len(first_of_var))
        target = np.where(ok, first_of_var[np.where(ok, target_var, 0)], -1)
        peered = (
            ok
            & (templates[np.where(ok, trow + (rel - _local(templates, trow)), 0), col.T_PEERS] > 0)
            & (k > 0)
        )
        out.append(np.where(ok, target + np.where(peered, k - 1, 0), -1))
    return out[0], out[1]


def _local(templates: Int64, trow: Int64) -> Int64:
    local: Int64 = templates[trow, -1]
    return local


def expand(image: Image, timetable: Timetable, system: System) -> Flat:
    """All rows of `timetable`, every field resolved; chains are numbered as in `unroll(timetable)`.

    Raises:
        InputError: T361 if a stored index points outside its table (the codec and `verify.shape` report it by field).
    """
    if timetable.loops:
        return _repeated(expand(image, replace(timetable, loops=()), system), timetable)
    plan, table = image.key.plan, OpTable.of(system.chip)
    regions = class_regions(image, timetable)
    templates = _with_local(timetable)
    trow, var, k, chain = _repeat(timetable, plan)
    rows = np.zeros((len(trow), col.C_COLUMNS), dtype=np.int64)
    t, v = templates[trow], timetable.rows[var].astype(np.int64)
    if len(v) and (v[:, col.V_REGION].max() >= len(regions) or v[:, col.V_REGION].min() < -1):
        raise InputError("a row names a region that does not exist", code="T361", where="rows.region")
    rows[:, col.C_CHAIN], rows[:, col.C_K] = chain, k
    rows[:, col.C_ROW] = t[:, -1]
    for c, s in _COPIED:
        rows[:, c] = t[:, s]
    for c, s in ((col.C_REGION, col.V_REGION), (col.C_A0, col.V_A0), (col.C_A1, col.V_A1), (col.C_A2, col.V_A2),
                 (col.C_A3, col.V_A3)):  # fmt: skip
        rows[:, c] = v[:, s]
    op = rows[:, col.C_OP]
    rows[:, col.C_UNIT] = np.where(
        ((op == Op.LOAD) | (op == Op.GATHER)) & (t[:, col.T_WIDE] > 0), int(Unit.MEM_WIDE), _FIRST_UNIT[op]
    )
    stagger = np.where(k > 0, (k - 1) // table.ports[Unit.MEM_WRITE], 0)
    rows[:, col.C_ISSUE] = timetable.chains[chain, 1] + t[:, col.T_OFFSET] + stagger
    rows[:, col.C_S0], rows[:, col.C_S1] = _sources(templates, trow, var, k)
    _ports(rows, table, v[:, col.V_PORT])
    bases = np.array([r.group * table.group_vectors + r.base for r in regions] + [0], dtype=np.int64)
    memory = _MEMORY[op]
    rows[:, col.C_ABS] = np.where(memory, bases[v[:, col.V_REGION]] + v[:, col.V_BASE], -1)
    rows[:, col.C_W] = hold_cycles(table, rows, _slots(rows, plan, system))
    rows[:, col.C_SPAN] = (rows[:, col.C_N] - 1) * rows[:, col.C_P] + (rows[:, col.C_M] - 1) * rows[
        :, col.C_Q
    ]
    rows[:, col.C_SPAN] += rows[:, col.C_W]
    rows.flags.writeable = False
    counts = np.bincount(chain, minlength=len(timetable.chains))
    of_chain = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return Flat(rows, timetable.chains[:, 1].copy(), of_chain, plan, table, regions)


def _repeated(once: Flat, timetable: Timetable) -> Flat:
    """Rows of all iterations from those of each stored chain: later, over other regions, hearing rows of their own iteration."""
    run = iterations(timetable)
    source = run.rows(once.row_of_chain)
    size = (once.row_of_chain[1:] - once.row_of_chain[:-1])[run.source]
    rows, later = once.rows[source], run.later(timetable)
    rows[:, col.C_CHAIN] = np.repeat(np.arange(len(size), dtype=np.int64), size)
    rows[:, col.C_ISSUE] += np.repeat(later, size)
    further = np.arange(len(rows), dtype=np.int64) - source
    for c in (col.C_S0, col.C_S1):
        rows[:, c] += np.where(rows[:, c] >= 0, further, 0)
    named = rows[:, col.C_REGION].copy()
    region = moved_regions(timetable, named, np.repeat(run.iteration, size), np.repeat(run.loop, size))
    if len(region) and region.max() >= len(once.regions):
        raise InputError("a loop leads to a region that does not exist", code="T361", where="loops.strides")
    bases = np.array(
        [r.group * once.table.group_vectors + r.base for r in once.regions] + [0], dtype=np.int64
    )
    rows[:, col.C_REGION] = region
    rows[:, col.C_ABS] += np.where(_MEMORY[rows[:, col.C_OP]], bases[region] - bases[named], 0)
    rows.flags.writeable = False
    of_chain = np.concatenate([[0], np.cumsum(size)]).astype(np.int64)
    return replace(once, rows=rows, start=once.start[run.source] + later, row_of_chain=of_chain)


_COPIED = (
    (col.C_OP, col.T_OP), (col.C_GROUP, col.T_GROUP), (col.C_DTYPE, col.T_DTYPE), (col.C_N, col.T_N),
    (col.C_P, col.T_P), (col.C_M, col.T_M), (col.C_Q, col.T_Q), (col.C_WIDTH, col.T_WIDTH),
    (col.C_STEP, col.T_STEP), (col.C_STEP2, col.T_STEP2), (col.C_PATTERN, col.T_PATTERN),
    (col.C_RANKFN, col.T_RANKFN), (col.C_RANKSTRIDE, col.T_RANKSTRIDE), (col.C_REGFN, col.T_REGFN),
    (col.C_REGSTRIDE, col.T_REGSTRIDE), (col.C_X0, col.T_X0), (col.C_X1, col.T_X1),
)  # fmt: skip


def _with_local(timetable: Timetable) -> Int64:
    """Templates with a last column: the row's index within its template."""
    start = timetable.template_start.astype(np.int64)
    local = np.arange(len(timetable.templates), dtype=np.int64)
    local -= np.repeat(start[:-1], start[1:] - start[:-1])
    return np.concatenate([timetable.templates.astype(np.int64), local[:, None]], axis=1)


def _ports(rows: Int64, table: OpTable, stated: Int64) -> None:
    """Port of each row within its unit: stated, but derived for PASS (its INSTALL's plane), links and peer stores."""
    op, unit, k = rows[:, col.C_OP], rows[:, col.C_UNIT], rows[:, col.C_K]
    port = stated.copy()
    peer = k > 0
    link = (op == Op.SEND) | (op == Op.RECEIVE)
    port[link] = k[link] - 1
    store = peer & (unit == Unit.MEM_WRITE)
    port[store] = (k[store] - 1) % table.ports[Unit.MEM_WRITE]
    is_pass = (op == Op.PASS) & (rows[:, col.C_S1] >= 0)
    port[is_pass] = stated[rows[is_pass, col.C_S1]]
    memory = (unit == Unit.MEM_WIDE) | (unit == Unit.MEM_READ) | (unit == Unit.MEM_WRITE)
    port[memory] += rows[memory, col.C_GROUP] * table.ports[unit[memory]]
    rows[:, col.C_PORT] = port


def _slots(rows: Int64, plan: Plan, system: System) -> Int64:
    """Slot cycles of the slowest link of each row's pattern and k."""
    matrix = system.slot_matrix()
    slot = np.zeros((plan.patterns, plan.chips + 1), dtype=np.int64)
    for pattern in range(plan.patterns):
        peer = plan.reach(pattern)
        slot[pattern, 1 : peer.shape[1]] = matrix[np.arange(plan.chips)[:, None], peer].max(axis=0)[1:]
    return slot[rows[:, col.C_PATTERN], np.minimum(rows[:, col.C_K], plan.chips)]


def output_progression(flat: Flat) -> Int64:
    """First output cycle and progression of each row's result: int64[R, 5] = (first, n, p, m, q); sinks give n = 0."""
    rows, table = flat.rows, flat.table
    kind = np.array([int(i.kind) for i in OPS], dtype=np.int64)[rows[:, col.C_OP]]
    n, p, m, q = (rows[:, c] for c in (col.C_N, col.C_P, col.C_M, col.C_Q))
    first = rows[:, col.C_ISSUE] + table.latency[rows[:, col.C_OP]]
    out = np.stack([first, n, p, m, q], axis=1)
    fold = (kind == Kind.REDUCE) | (kind == Kind.RESHAPE)
    out[fold, 0] += (n[fold] - 1) * p[fold]
    reduce = kind == Kind.REDUCE
    out[reduce, 1], out[reduce, 2], out[reduce, 3], out[reduce, 4] = m[reduce], q[reduce], 1, 0
    shape = kind == Kind.RESHAPE
    out[shape, 1] = rows[shape, col.C_X0]
    out[shape, 2] = np.where(rows[shape, col.C_X0] > 1, 1, 0)
    sink = (kind == Kind.SINK) & (rows[:, col.C_OP] != Op.SEND) | (kind == Kind.INSTALL)
    out[sink, 1] = 0
    return out
