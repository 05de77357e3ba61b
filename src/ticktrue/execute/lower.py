"""Rows of a timetable -> a flat list for the interpreter: rows in issue order, buffers for streams, planes resolved.

A legal program lets every row run as a whole in the order of issue (docs/program.md; rule V104). Lowering decides nothing that
could change a value: it leaves out lanes nobody reads, and reads a tile in place where nothing writes it meanwhile.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ticktrue.execute.memory import Memory
from ticktrue.hw import System
from ticktrue.isa import Dtype, Op
from ticktrue.isa.ops import LANES, RegFn, lanes_of
from ticktrue.program import Flat, Image, Timetable, expand
from ticktrue.program import columns as col

Int64 = npt.NDArray[np.int64]

(
    L_OP, L_N, L_M, L_LANES, L_A, L_SA, L_B, L_SB, L_O, L_SO, L_STEP, L_STEP2, L_WIDTH, L_DTYPE, L_REGFN, L_REGSTRIDE,
    L_X0, L_X1, L_A0, L_A1, L_A2, L_A3, L_MODE, L_STRIDE, L_ROWS, L_ROW0, L_C0, L_C1, L_ONES, L_FILL, L_PATTERN,
) = range(31)  # fmt: skip
L_COLUMNS = 31
MODE_BF16, MODE_F32, MODE_POOL, MODE_INT8, MODE_E4M3 = range(5)
MODES = {Dtype.BF16: MODE_BF16, Dtype.F32: MODE_F32, Dtype.INT8: MODE_INT8, Dtype.E4M3: MODE_E4M3}
MODE_NAMED = 8
"""Added to a mode where an expert register names the tile."""


@dataclass(frozen=True, slots=True)
class Lowered:
    """`steps` int64[R, L_COLUMNS]: rows that do something, in issue order; `pool`: floats of a chip's streams.

    `address` int64[R, chips]: first vector of memory that a row reads or writes, a PASS the first of its tile; `source` int64[R,
    chips]: the chip whose streams it reads. `table` int64[patterns, chips]: a chip's index in each, of `sizes`
    int64[patterns] chips.
    `ranks`: expert registers of a token row. `bounds` int64[segments + 1]: where segments of `steps` start. In one segment, no
    chip reads a stream that another makes.
    """

    steps: Int64
    address: Int64
    source: Int64
    pool: int
    table: Int64
    sizes: Int64
    ranks: int
    bounds: Int64


def _defined_lanes(flat: Flat) -> list[int]:
    """Lanes of each row's result that an op defines; the others are +0."""
    rows = flat.rows.tolist()
    lanes = [0] * len(rows)
    for r, row in enumerate(rows):
        op = row[col.C_OP]
        a = lanes[row[col.C_S0]] if row[col.C_S0] >= 0 else 0
        b = lanes[row[col.C_S1]] if row[col.C_S1] >= 0 else 0
        lanes[r] = _lanes_of(op, row, a, b)
    return lanes


def _lanes_of(op: int, row: list[int], a: int, b: int) -> int:  # noqa: C901, PLR0911, PLR0912 - one arm per op
    x0 = int(row[col.C_X0])
    match op:
        case Op.LOAD | Op.GATHER:
            return min(LANES, int(row[col.C_WIDTH]) * lanes_of(row[col.C_DTYPE]))
        case Op.ADD | Op.MUL | Op.EXP | Op.SILU_MUL | Op.GELU_MUL:
            return max(a, b)
        case Op.PASS | Op.SPREAD | Op.BROADCAST | Op.NOISE:
            return LANES
        case Op.MEAN_RSQRT | Op.LANE_SUM | Op.TILE_SCALE | Op.ACCEPT:
            return 1
        case Op.LANE_ARGMAX | Op.PICK:
            return 2
        case Op.TOPK:
            return 2 * x0
        case Op.CMUL | Op.DIVIDE:
            return x0
        case Op.ROPE:
            return x0 * int(row[col.C_X1])
        case Op.COMBINE:
            return x0 + 2
        case Op.MOVE:
            return int(row[col.C_A1] + row[col.C_A2])
        case Op.MERGE:
            return int(row[col.C_A3])
        case Op.TRANSPOSE:
            return int(row[col.C_N])
        case Op.INSERT:
            return max(a, x0 + 1)
        case _:
            return a


def _read_lanes(op: int, row: list[int], demand: int) -> tuple[int, int]:  # noqa: C901, PLR0911, PLR0912 - one arm per op
    """Lanes of its operands that a row reads, if `demand` lanes of its own result are read."""
    x0 = int(row[col.C_X0])
    match op:
        case Op.STORE | Op.SCATTER:
            return min(LANES, int(row[col.C_WIDTH]) * lanes_of(row[col.C_DTYPE])), 0
        case Op.PASS | Op.TILE_SCALE:
            return LANES, 0
        case Op.QUANTISE:
            return demand, 1
        case Op.MEAN_RSQRT | Op.BROADCAST:
            return 1, 0
        case Op.PICK | Op.ACCEPT:
            return 2, 0
        case Op.LATCH:
            return LANES, 0
        case Op.LANE_ARGMAX | Op.MERGE | Op.TOPK:
            return min(LANES, int(row[col.C_A0])), 0
        case Op.LANE_SUM:
            return LANES, 0
        case Op.CMUL:
            return x0, x0
        case Op.ROPE:
            return x0 * int(row[col.C_X1]), x0
        case Op.COMBINE:
            return x0 + 2, x0 + 2
        case Op.DIVIDE:
            return x0 + 1, 0
        case Op.MOVE:
            return int(row[col.C_A0] + row[col.C_A1]), 0
        case Op.TRANSPOSE | Op.SPREAD:
            return x0, 0
        case Op.INSERT:
            return demand, x0 + 1
        case Op.INSTALL:
            return LANES, 0
        case _:
            return demand, demand


def _demands(flat: Flat, order: Int64) -> Int64:
    """Lanes of each result that some consumer reads."""
    rows = flat.rows.tolist()
    demand = [0] * len(rows)
    for r in order[::-1].tolist():
        row = rows[r]
        a, b = _read_lanes(row[col.C_OP], row, demand[r])
        if row[col.C_OP] == Op.PASS:  # those that meet a row of its plane
            plane = rows[row[col.C_S1]]
            a = min(LANES, plane[col.C_A0] + _plane_rows(plane, rows[plane[col.C_S0]]))
        s0, s1 = row[col.C_S0], row[col.C_S1]
        if s0 >= 0:
            demand[s0] = max(demand[s0], a)
        if s1 >= 0 and row[col.C_OP] != Op.PASS:
            demand[s1] = max(demand[s1], b)
    return np.minimum(np.array(demand, dtype=np.int64), LANES)


def _plane_rows(install: list[int], source: list[int]) -> int:
    """Rows of an installed tile: of memory as its vectors hold, of a stream one an event."""
    if source[col.C_OP] in {Op.LOAD, Op.GATHER}:
        return install[col.C_WIDTH] // install[col.C_X0]
    return install[col.C_N]


def _events(row: list[int]) -> int:
    """Events of a row's result."""
    n, m, x0 = int(row[col.C_N]), int(row[col.C_M]), int(row[col.C_X0])
    op = int(row[col.C_OP])
    if op in {Op.MAX, Op.FOLD, Op.MERGE, Op.LANE_SUM, Op.LANE_ARGMAX, Op.PICK, Op.TOPK, Op.ACCEPT}:
        return m
    return x0 * m if op in {Op.TRANSPOSE, Op.SPREAD} else n * m


class _Pool:
    """Buffers by first fit over the time (rows in issue order) that each result is needed."""

    def __init__(self) -> None:
        self.size = 0
        self._live: list[tuple[int, int, int]] = []  # (first, end, last use)

    def take(self, now: int, until: int, floats: int) -> int:
        """First float of a buffer that nobody else uses from row `now` to row `until`."""
        self._live = sorted(x for x in self._live if x[2] >= now)
        at = 0
        for first, end, _ in self._live:
            if first - at >= floats:
                break
            at = max(at, end)
        self._live.append((at, at + floats, until))
        self.size = max(self.size, at + floats)
        return at


@dataclass(frozen=True, slots=True)
class _Plane:
    """How a PASS reads its tile."""

    mode: int
    source: int
    stride: int
    rows: int


def _in_place(flat: Flat, load: int, install: int) -> bool:
    """Whether nothing writes the tile's region between its LOAD and the last PASS of its INSTALL."""
    rows = flat.rows
    passes = rows[(rows[:, col.C_OP] == Op.PASS) & (rows[:, col.C_S1] == install)]
    end = int((passes[:, col.C_ISSUE] + passes[:, col.C_SPAN]).max(initial=0))
    writes = ((rows[:, col.C_OP] == Op.STORE) | (rows[:, col.C_OP] == Op.SCATTER)) & (
        rows[:, col.C_REGION] == rows[load, col.C_REGION]
    )
    issue = rows[writes, col.C_ISSUE]
    return not bool(((issue >= rows[load, col.C_ISSUE]) & (issue < end)).any())


_SAYS_WHAT_IS_LOADED = [
    col.C_REGION, col.C_ABS, col.C_RANKFN, col.C_RANKSTRIDE, col.C_PATTERN, col.C_K, col.C_N, col.C_M, col.C_STEP, col.C_STEP2,
    col.C_WIDTH, col.C_DTYPE, col.C_REGFN, col.C_REGSTRIDE, col.C_A0, col.C_A1, col.C_A2, col.C_A3, col.C_X0, col.C_X1,
]  # fmt: skip


def _loaded_again(flat: Flat, order: Int64) -> dict[int, int]:
    """LOADs of what an earlier LOAD brought, while nothing is stored to its region between: the row -> that earlier row.

    Tiles are left out, and what an expert register names, for it changes within a step.
    """
    rows, lists = flat.rows, flat.rows.tolist()
    tiles = set(rows[rows[:, col.C_OP] == Op.INSTALL, col.C_S0].tolist())
    what = [tuple(x) for x in rows[:, _SAYS_WHAT_IS_LOADED].tolist()]
    again: dict[int, int] = {}
    at_hand: dict[int, dict[tuple[int, ...], int]] = {}  # by region
    for r in order.tolist():
        op, region = lists[r][col.C_OP], lists[r][col.C_REGION]
        if op in {Op.STORE, Op.SCATTER}:
            at_hand.pop(region, None)
        elif op == Op.LOAD and r not in tiles and lists[r][col.C_REGFN] != RegFn.EXPERT:
            first = at_hand.setdefault(region, {}).setdefault(what[r], r)
            if first != r:
                again[r] = first
    return again


class _Lowering:
    """State of one lowering."""

    def __init__(self, flat: Flat, written: npt.NDArray[np.bool_]) -> None:
        self.flat = flat
        self.rows = flat.rows
        self.list: list[list[int]] = flat.rows.tolist()
        self.written = written
        self.order = np.lexsort((np.arange(len(flat.rows)), flat.rows[:, col.C_ISSUE])).astype(np.int64)
        self.lanes = _defined_lanes(flat)
        self.demand = _demands(flat, self.order)
        self.planes: dict[int, _Plane] = {}
        self.lazy: set[int] = set()
        self.named: set[int] = set()
        self._find_planes()
        self.again = _loaded_again(flat, self.order)
        for r, before in self.again.items():
            self.demand[before] = max(self.demand[before], self.demand[r])
        self.position = np.empty(len(self.order), dtype=np.int64)
        self.position[self.order] = np.arange(len(self.order))
        self.last = self._last_use()
        self.bounds = self._segments()
        self.columns = self._needed_columns()

    def _find_planes(self) -> None:
        rows = self.rows
        for i in np.flatnonzero(rows[:, col.C_OP] == Op.INSTALL):
            load = int(rows[i, col.C_S0])
            dtype, deep = int(rows[load, col.C_DTYPE]), _plane_rows(self.list[i], self.list[load])
            stride = int(rows[i, col.C_X0]) * lanes_of(dtype)
            if (
                rows[load, col.C_OP] == Op.GATHER
            ):  # a tile that an expert register names; weights are never written
                self.lazy.add(load)
                self.named.add(load)
                self.planes[int(i)] = _Plane(MODE_NAMED + MODES[Dtype(dtype)], load, stride, deep)
            elif rows[load, col.C_OP] == Op.LOAD:
                if not self.written[rows[load, col.C_REGION]] or _in_place(self.flat, load, int(i)):
                    self.lazy.add(load)
                    self.planes[int(i)] = _Plane(MODES[Dtype(dtype)], load, stride, deep)
                else:
                    self.planes[int(i)] = _Plane(MODE_POOL, load, stride, deep)
            else:
                self.planes[int(i)] = _Plane(MODE_POOL, load, LANES, deep)
                self.demand[load] = LANES

    def _last_use(self) -> Int64:
        last, position = self.position.tolist(), self.position.tolist()
        s0, s1 = self.rows[:, col.C_S0].tolist(), self.rows[:, col.C_S1].tolist()
        op = self.rows[:, col.C_OP].tolist()
        for r in range(len(last)):
            for operand in (s0[r], s1[r]):
                if operand >= 0:
                    s = self.again.get(operand, operand)
                    last[s] = max(last[s], position[r])
        forwards = {int(Op.SEND), int(Op.RECEIVE), int(Op.INSTALL)}
        for r in self.order[::-1].tolist():  # SEND and RECEIVE, and planes, hold what they forward
            if s0[r] >= 0 and op[r] in forwards:
                s = self.again.get(s0[r], s0[r])
                last[s] = max(last[s], last[r])
        return np.array(last, dtype=np.int64)

    def _segments(self) -> Int64:
        """Starts of segments, as few as can be: what another chip reads was made in an earlier segment than it is read in.

        Its buffer is kept to the end of the segment of its last reader, which may be behind.
        """
        rows, position = self.list, self.position.tolist()
        read: list[tuple[int, int, int]] = []  # (place of the reader, place of the maker, maker)
        for r, row in enumerate(rows):
            heard = row[col.C_S0] if row[col.C_OP] in {Op.STORE, Op.SCATTER} else -1
            if heard >= 0 and rows[heard][col.C_OP] == Op.RECEIVE:
                made = self.buffer_of(heard)
                read.append((position[r], position[made], made))
        starts = [0]
        for reader, maker, _ in sorted(read):
            if starts[-1] <= maker:
                starts.append(reader)
        bounds = np.array([*starts, len(rows)], dtype=np.int64)
        for reader, _, made in read:
            end = int(bounds[np.searchsorted(bounds, reader, side="right")]) - 1
            self.last[made] = max(int(self.last[made]), end)
        return bounds

    def _needed_columns(self) -> dict[int, tuple[int, int]]:
        """Columns of each PASS that its consumers read."""
        need: dict[int, tuple[int, int]] = {}
        rows = self.list
        for row in rows:
            for s in (row[col.C_S0], row[col.C_S1]):
                if s >= 0 and rows[s][col.C_OP] == Op.PASS and row[col.C_OP] != Op.PASS:
                    lo, hi = 0, int(self.demand[s])
                    if row[col.C_OP] == Op.MOVE:
                        lo, hi = row[col.C_A0], row[col.C_A0] + row[col.C_A1]
                    old = need.get(s, (lo, hi))
                    need[s] = (min(lo, old[0]), max(hi, old[1]))
        return need

    def acts(self) -> npt.NDArray[np.bool_]:
        """Rows in issue order that do something here; a tile that is read in place is never loaded, nor what still is at hand."""
        op = self.rows[self.order, col.C_OP]
        still = np.isin(op, [Op.SEND, Op.RECEIVE, Op.INSTALL])
        still |= np.isin(self.order, list((self.lazy - self.named) | self.again.keys()))
        return np.asarray(~still)

    def buffer_of(self, r: int) -> int:
        """The row whose buffer holds the data of row r: RECEIVE and SEND forward their source's."""
        while self.list[r][col.C_OP] in {Op.SEND, Op.RECEIVE}:
            r = self.list[r][col.C_S0]
        return self.again.get(r, r)


def lower(image: Image, timetable: Timetable, system: System, memory: Memory) -> Lowered:
    """The interpreter's list for one timetable over one memory."""
    flat = expand(image, timetable, system)
    rows = flat.rows
    written = np.zeros(len(flat.regions) + 1, dtype=bool)
    stores = (rows[:, col.C_OP] == Op.STORE) | (rows[:, col.C_OP] == Op.SCATTER)
    written[rows[stores, col.C_REGION]] = True
    low = _Lowering(flat, written)
    pool, offset, stride = _Pool(), np.zeros(len(rows), dtype=np.int64), np.maximum(low.demand, 1)
    stride = np.minimum(stride, LANES)
    steps = np.zeros((len(rows), L_COLUMNS), dtype=np.int64)
    for to, from_ in _COPIED:
        steps[:, to] = rows[low.order, from_]
    for at, r in enumerate(low.order):
        _lower_row(low, int(r), at, steps, (offset, stride, pool))
    kept = low.acts()
    address, source = _places(low, memory)
    plan, patterns = flat.plan, range(flat.plan.patterns)
    table = np.array([[plan.rank(p, c) for c in range(plan.chips)] for p in patterns])
    sizes = np.array([plan.size(p) for p in patterns], dtype=np.int64)
    ranks = int(steps[steps[:, L_OP] == Op.LATCH, L_X0].max(initial=0))
    before = np.concatenate([[0], np.cumsum(kept)])
    return Lowered(
        steps[kept], address[low.order][kept], source[low.order][kept], pool.size, table.astype(np.int64),
        sizes, ranks, before[low.bounds],
    )  # fmt: skip


def _places(low: _Lowering, memory: Memory) -> tuple[Int64, Int64]:
    """By row of the timetable, int64[R, chips]: first vector in memory (of a PASS its tile), the chip whose streams it reads."""
    flat, rows = low.flat, low.rows
    groups, chips = rows[:, col.C_GROUP], flat.plan.chips
    shift = np.where(groups >= 0, memory.group_first[groups] - groups * flat.table.group_vectors, 0)
    address = np.stack([flat.address(c) + shift + c * memory.vectors for c in range(chips)], axis=1)
    source = np.tile(np.arange(chips, dtype=np.int64), (len(rows), 1))
    peer = np.stack([flat.peer(c) for c in range(chips)], axis=1)
    op, s0 = rows[:, col.C_OP], rows[:, col.C_S0]
    stores = np.flatnonzero((op == Op.STORE) | (op == Op.SCATTER))
    heard = stores[op[s0[stores]] == Op.RECEIVE]
    source[heard] = peer[s0[heard]]
    passes = np.flatnonzero(op == Op.PASS)
    tiles = np.array([low.planes[int(i)].source for i in rows[passes, col.C_S1]], dtype=np.int64)
    address[passes] = address[tiles]
    return address, source


def _lower_row(low: _Lowering, r: int, at: int, steps: Int64, buffers: tuple[Int64, Int64, _Pool]) -> None:
    offset, stride, pool = buffers
    row, step = low.list[r], steps[at]
    op = row[col.C_OP]
    bare = {Op.STORE, Op.SCATTER, Op.SEND, Op.RECEIVE, Op.INSTALL, Op.LATCH}
    own_buffer = op not in bare and r not in low.lazy and r not in low.again
    if r in low.named:  # where its tiles lie, one number a round
        offset[r] = step[L_O] = pool.take(at, int(low.last[r]), int(row[col.C_M]))
    if own_buffer:
        width = int(stride[r])
        packet = int(row[col.C_WIDTH]) * lanes_of(row[col.C_DTYPE])
        raw = op in {Op.LOAD, Op.GATHER} and (row[col.C_UNIT] == 0 or packet > LANES)
        if raw:  # whole tiles, or packets wider than a beat that only pass through
            width = stride[r] = packet
        floats = max(1, _events(row) * width)
        offset[r] = pool.take(at, int(low.last[r]), floats)
        step[L_O], step[L_SO] = offset[r], stride[r]
        step[L_LANES] = width if raw else min(low.lanes[r], int(low.demand[r]))
        step[L_FILL] = width if raw else int(low.demand[r])
    for c, o, s in ((col.C_S0, L_A, L_SA), (col.C_S1, L_B, L_SB)):
        source = int(row[c])
        if source >= 0 and not (op == Op.PASS and c == col.C_S1):
            held = low.buffer_of(source)
            step[o], step[s] = offset[held], stride[held]
    if op == Op.LATCH:
        step[L_X0] = low.list[row[col.C_S0]][col.C_X0]
    if op == Op.PASS:
        _lower_pass(low, r, step, offset)


def _lower_pass(low: _Lowering, r: int, step: Int64, offset: Int64) -> None:
    install = int(low.rows[r, col.C_S1])
    plane, row = low.planes[install], low.rows[install]
    c0, c1 = int(row[col.C_A1]), int(row[col.C_A2])
    need = low.columns.get(r, (0, 0))
    ones = bool(row[col.C_X1]) and need[0] <= c1 < need[1]
    step[L_MODE], step[L_STRIDE], step[L_ROWS], step[L_ROW0] = (
        plane.mode,
        plane.stride,
        plane.rows,
        row[col.C_A0],
    )
    step[L_C0], step[L_C1], step[L_ONES] = (
        max(c0, need[0]),
        min(c1, need[1], plane.stride),
        c1 if ones else -1,
    )
    step[L_X0] = low.rows[plane.source, col.C_STEP2]
    step[L_X1] = 1 if row[col.C_M] > 1 else 0
    if plane.source in low.named:
        step[L_B] = offset[plane.source]
    if plane.mode == MODE_POOL:
        step[L_B], step[L_SB] = offset[plane.source], step[L_STRIDE]
        if low.rows[plane.source, col.C_UNIT] != 0:
            step[L_STRIDE] = low.demand[plane.source]
        step[L_X0] = step[L_STRIDE] * plane.rows
    step[L_FILL], step[L_LANES] = low.demand[r], low.demand[r]


_COPIED = (
    (L_OP, col.C_OP), (L_N, col.C_N), (L_M, col.C_M), (L_STEP, col.C_STEP), (L_STEP2, col.C_STEP2),
    (L_WIDTH, col.C_WIDTH), (L_DTYPE, col.C_DTYPE), (L_REGFN, col.C_REGFN), (L_REGSTRIDE, col.C_REGSTRIDE),
    (L_X0, col.C_X0), (L_X1, col.C_X1), (L_A0, col.C_A0), (L_A1, col.C_A1), (L_A2, col.C_A2), (L_A3, col.C_A3),
    (L_PATTERN, col.C_PATTERN),
)  # fmt: skip
