"""Writes chains row by row: progressions are inherited, offsets solved once per template, equal row patterns share a template.

A builder says what a chain does; this module knows how rows of one chain hang together in time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ticktrue.errors import Bug, Unschedulable
from ticktrue.hw import System
from ticktrue.isa import OPS, Dtype, Kind, Op, OpTable, Unit
from ticktrue.isa.ops import lanes_of
from ticktrue.program import Plan, Region
from ticktrue.program import columns as col
from ticktrue.schedule import link_times

TemplateKey = tuple[tuple[int, ...], ...]
UNSET = -1


@dataclass(frozen=True, slots=True)
class Progress:
    """Events of a row or of its result: n x m, p and q cycles apart."""

    n: int = 1
    p: int = 0
    m: int = 1
    q: int = 0


def progress(n: int, m: int = 1, *, p: int = 1, q: int = 0) -> Progress:
    """A canonical progression: p = 0 for n = 1, q = 0 for m = 1, q at least n * p: single events are p apart as well."""
    return Progress(n, p if n > 1 else 0, m, max(q, n * max(p, 1)) if m > 1 else 0)


@dataclass(frozen=True, slots=True)
class At:
    """An address: region, first vector, steps of i and j; rank and register parts.

    `row`: the token row (s * T + t) whose registers event 0 uses; `ring`: blocks of the ring that KV positions go round in;
    `rank`: of an expert register.
    """

    region: int
    base: int = 0
    step: int = 0
    step2: int = 0
    pattern: int = col.PATTERN_ALL
    rank_fn: int = col.RANK_NONE
    rank_stride: int = 0
    reg_fn: int = 0
    reg_stride: int = 0
    row: int = 0
    ring: int = 0
    rank: int = 0


@dataclass(frozen=True, slots=True)
class Keep:
    """What an INSTALL keeps: columns first .. end - 1 from plane row `row` on, column `end` all ones if asked."""

    first: int
    end: int
    row: int = 0
    ones: bool = False


class ChainWriter:
    """Collects the chains of one timetable in dataflow order."""

    def __init__(self, regions: tuple[Region, ...], plan: Plan, system: System) -> None:
        self.table = OpTable.of(system.chip)
        self.plan = plan
        self.regions = regions
        self.index = {r.name: i for i, r in enumerate(regions)}
        self._solver = _Offsets(self.table, plan, system)
        self._templates: dict[TemplateKey, int] = {}
        self._template_rows: list[list[tuple[int, ...]]] = []
        self.chain_template: list[int] = []
        self.labels: list[str] = []
        self.values: list[tuple[int, ...]] = []

    @property
    def slots(self) -> tuple[int, ...]:
        """Cycles from vector to vector on the links of each pattern: their slot, or longer where FIFOs are short."""
        return tuple(self._solver.link.pace.tolist())

    def pieces(self, width: int) -> list[tuple[int, int]]:
        """(first, vectors) of the parts of `width` vectors that a narrow port moves in one cycle each."""
        most = int(self.table.port_vectors[Unit.MEM_WRITE])
        return [(i, min(most, width - i)) for i in range(0, width, most)]

    def hold(self, rows: list[list[int]], row: list[int]) -> int:
        """Cycles one event of a row holds its unit; links are paced by who sends."""
        if row[col.T_OP] in {Op.SEND, Op.RECEIVE}:
            return 1
        return self._solver.hold(rows, row)

    def chain(self, label: str) -> "Chain":
        """A new, empty chain."""
        return Chain(self, label)

    def knows(self, key: TemplateKey) -> bool:
        """Whether a chain of these rows was written before."""
        return key in self._templates

    def finish(self, label: str, key: TemplateKey, values: list[list[int]]) -> None:
        """Interns the rows as a template and appends the chain."""
        found = self._templates.get(key)
        if found is None:
            found = len(self._template_rows)
            self._templates[key] = found
            offsets = self._solver.solve(key, label)
            self._template_rows.append([_with(r, col.T_OFFSET, o) for r, o in zip(key, offsets, strict=True)])
        self.chain_template.append(found)
        self.labels.append(label)
        self.values.extend(tuple(v) for v in values)

    def tables(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(templates, template_start, chains with start 0, class rows) as stored columns."""
        flat = [row for rows in self._template_rows for row in rows]
        templates = np.array(flat, dtype=np.int32).reshape(-1, col.T_COLUMNS)
        start = np.cumsum([0] + [len(r) for r in self._template_rows]).astype(np.int32)
        chains = np.zeros((len(self.chain_template), 3), dtype=np.int64)
        chains[:, 0] = self.chain_template
        return templates, start, chains, np.array(self.values, dtype=np.int32).reshape(-1, col.V_COLUMNS)


def _with(row: tuple[int, ...], column: int, value: int) -> tuple[int, ...]:
    return (*row[:column], value, *row[column + 1 :])


class Chain:
    """One chain under construction; each method appends a row and gives back its number."""

    def __init__(self, writer: ChainWriter, label: str) -> None:
        self._w = writer
        self._label = label
        self._rows: list[list[int]] = []
        self._values: list[list[int]] = []
        self._out: list[Progress] = []
        self._fixed: list[
            bool
        ] = []  # whether results come one a cycle, whatever the pace of what they are made of

    def out(self, row: int) -> Progress:
        """Progression of the result of a row."""
        return self._out[row]

    def pace(self, width: int) -> int:
        """Cycles between narrow memory events of `width` vectors."""
        return max(1, -(-width // int(self._w.table.port_vectors[Unit.MEM_READ])))

    def _row(self, op: Op, sources: tuple[int, ...], pr: Progress, *, dtype: int = 0, width: int = 0) -> int:
        row = [0] * col.T_COLUMNS
        row[col.T_OP], row[col.T_GROUP], row[col.T_DTYPE], row[col.T_WIDTH] = op, -1, dtype, width
        row[col.T_N], row[col.T_P], row[col.T_M], row[col.T_Q] = pr.n, pr.p, pr.m, pr.q
        row[col.T_S0] = sources[0] if sources else UNSET
        row[col.T_S1] = sources[1] if len(sources) > 1 else UNSET
        self._rows.append(row)
        self._values.append([UNSET, 0, 0, 0, 0, 0, 0])
        self._out.append(_result(op, pr, 0))
        self._fixed.append(any(self._fixed[s] for s in _operands(tuple(row))))
        return len(self._rows) - 1

    def _address(self, r: int, at: At) -> None:
        row, value = self._rows[r], self._values[r]
        row[col.T_GROUP] = self._w.regions[at.region].group
        n, m = row[col.T_N], row[col.T_M]
        row[col.T_STEP], row[col.T_STEP2] = (at.step if n > 1 else 0), (at.step2 if m > 1 else 0)
        row[col.T_PATTERN], row[col.T_RANKFN], row[col.T_RANKSTRIDE] = at.pattern, at.rank_fn, at.rank_stride
        row[col.T_REGFN], row[col.T_REGSTRIDE] = at.reg_fn, at.reg_stride
        value[col.V_REGION], value[col.V_BASE] = at.region, at.base
        value[col.V_A0], value[col.V_A1] = at.row, at.ring or at.rank

    def load(self, at: At, pr: Progress, dtype: Dtype, width: int, *, wide: bool = False) -> int:
        """LOAD (GATHER if the address has a register) of `width` vectors per event."""
        r = self._row(Op.GATHER if at.reg_fn else Op.LOAD, (), pr, dtype=dtype, width=width)
        self._address(r, at)
        self._rows[r][col.T_WIDE] = int(wide)
        return r

    def store(self, source: int, at: At, dtype: Dtype, width: int, *, peers: bool = False) -> int:
        """STORE (SCATTER if the address has a register) of a source's result; gives the last row that it takes.

        Results that come faster than a port takes them, and that no pace can slow (those of a RESHAPE), are stored in pieces.
        """
        if self._outruns(source, width):
            for first, part in self._w.pieces(width):
                lanes = first * lanes_of(dtype), part * lanes_of(dtype)
                piece = self.op(Op.MOVE, source, a=(*lanes, 0))
                self.store(piece, replace(at, base=at.base + first), dtype, part)
            return len(self._rows) - 1
        op = Op.SCATTER if at.reg_fn else Op.STORE
        r = self._row(op, (source,), self._out[source], dtype=dtype, width=width)
        self._address(r, at)
        self._rows[r][col.T_PEERS] = int(peers)
        return r

    def latch(self, source: int, row: int) -> int:
        """LATCH of the ids that a TOPK gives: registers of token rows `row`, `row` + 1, ..."""
        r = self._row(Op.LATCH, (source,), self._out[source])
        self._values[r][col.V_A0] = row
        return r

    def exchange(self, source: int, pattern: int, dtype: Dtype, width: int) -> int:
        """SEND to every peer of the pattern and the RECEIVE from each; gives the RECEIVE."""
        s = self._row(Op.SEND, (source,), self._out[source], dtype=dtype, width=width)
        r = self._row(Op.RECEIVE, (s,), self._out[source], dtype=dtype, width=width)
        for row in (s, r):
            self._rows[row][col.T_PEERS], self._rows[row][col.T_PATTERN] = 1, pattern
        return r

    def install(self, source: int, plane: Dtype, keep: "Keep", *, per_row: int, width: int = 0) -> int:
        """INSTALL of a source whose events have `per_row` vectors per tile row (0: an event is a row)."""
        width = width or self._rows[source][col.T_WIDTH]
        r = self._row(Op.INSTALL, (source,), self._out[source], dtype=plane, width=width)
        self._rows[r][col.T_X0], self._rows[r][col.T_X1] = per_row, int(keep.ones)
        self._values[r][col.V_A0], self._values[r][col.V_A1], self._values[r][col.V_A2] = (
            keep.row,
            keep.first,
            keep.end,
        )
        return r

    def matmul(self, x: int, install: int) -> int:
        """PASS of x through the plane that `install` filled."""
        return self._row(Op.PASS, (x, install), self._out[x], dtype=Dtype.F32)

    def op(
        self, op: Op, *sources: int, x: tuple[int, int] = (0, 0), a: tuple[int, ...] = (), dtype: int = 0
    ) -> int:
        """Any other op; its progression is that of its sources, which must agree."""
        if any(self._out[s] != self._out[sources[0]] for s in sources[1:]):
            raise Bug(f"chain {self._label}: {op.name} hears streams of different progressions", code="T501")
        r = self._row(op, sources, self._out[sources[0]], dtype=dtype)
        self._rows[r][col.T_X0], self._rows[r][col.T_X1] = x
        for i, value in enumerate(a):
            self._values[r][col.V_A0 + i] = value
        self._out[r] = _result(op, self._out[sources[0]], x[0])
        if OPS[op].kind in {Kind.REDUCE, Kind.RESHAPE}:
            self._fixed[r] = OPS[op].kind == Kind.RESHAPE
        return r

    def set_pattern(self, row: int, pattern: int) -> None:
        """Names the pattern a rank-dependent op (LANE_ARGMAX, MASK) takes its index from."""
        self._rows[row][col.T_PATTERN] = pattern

    def _outruns(self, source: int, width: int) -> bool:
        """Whether results come one a cycle out of a RESHAPE, and a port takes longer than that for each."""
        return self._fixed[source] and self._out[source].n > 1 and self.pace(width) > self._out[source].p

    def end(self) -> None:
        """Closes the chain.

        Raises:
            Unschedulable: T320 where a row's events follow each other faster than its unit takes them, at any pace.
        """
        key = _key(self._rows)
        if not self._w.knows(key) and (pace := max(self._slack(row) for row in self._rows)) > 1:
            self._slow_down(pace)
            key = _key(self._rows)
        self._w.finish(self._label, key, self._values)

    def _slack(self, row: list[int]) -> int:
        """How many times slower a row's events must come for its unit to take them."""
        hold = self._w.hold(self._rows, row)
        n, p, m, q = row[col.T_N], row[col.T_P], row[col.T_M], row[col.T_Q]
        rest = q - (n - 1) * p  # between the last event of a round and the first of the next
        return max(1, -(-hold // p) if n > 1 else 1, -(-hold // max(1, rest)) if m > 1 else 1)

    def _slow_down(self, pace: int) -> None:
        """All that enters the chain comes `pace` times slower, and all that follows from it."""
        for r, row in enumerate(self._rows):
            sources = _operands(tuple(row))
            pr = Progress(*(row[c] for c in (col.T_N, col.T_P, col.T_M, col.T_Q)))
            pr = self._out[sources[0]] if sources else Progress(pr.n, pr.p * pace, pr.m, pr.q * pace)
            row[col.T_N], row[col.T_P], row[col.T_M], row[col.T_Q] = pr.n, pr.p, pr.m, pr.q
            self._out[r] = _result(Op(row[col.T_OP]), pr, row[col.T_X0])
            if any(self._out[s] != pr for s in sources) or self._slack(row) > 1:
                raise Unschedulable(
                    f"{self._label}: {Op(row[col.T_OP]).name} hears results that come every cycle, beside events that hold "
                    f"a port for {pace} cycles each", code="T320", where=self._label,
                    hint="a chip whose memory ports move more vectors per cycle (mem_narrow_vectors)",
                )  # fmt: skip


def _key(rows: list[list[int]]) -> TemplateKey:
    return tuple(tuple(r) for r in rows)


def _result(op: Op, pr: Progress, x0: int) -> Progress:
    match OPS[op].kind:
        case Kind.REDUCE:
            return Progress(pr.m, pr.q, 1, 0)
        case Kind.RESHAPE:
            return Progress(x0, 1 if x0 > 1 else 0, pr.m, pr.q)
        case _:
            return pr


def _operands(row: tuple[int, ...]) -> list[int]:
    """Rows whose streams a row hears; what else a PASS names is its INSTALL."""
    named = (row[col.T_S0],) if row[col.T_OP] == Op.PASS else (row[col.T_S0], row[col.T_S1])
    return [s for s in named if s >= 0]


class _Offsets:
    """Solves the offsets of one template: operands arrive together, planes are free, early loads are delayed."""

    def __init__(self, table: OpTable, plan: Plan, system: System) -> None:
        self._table = table
        self.link = link_times(plan, system)

    def hold(self, rows: Sequence[Sequence[int]], row: Sequence[int]) -> int:
        """Cycles one event of a template row holds its port."""
        op, width = row[col.T_OP], row[col.T_WIDTH]
        if op == Op.INSTALL:
            source = rows[row[col.T_S0]]
            loading = self.hold(rows, source) if source[col.T_WIDE] else 1
            return max(loading, -(-width * 320 // self._table.weight_load_bytes))
        if op in {Op.SEND, Op.RECEIVE}:
            return int(self.link.slot[row[col.T_PATTERN]]) * width
        unit = Unit.MEM_WIDE if row[col.T_WIDE] else OPS[op].units[0]
        per_cycle = int(self._table.port_vectors[unit])
        return max(1, -(-width // per_cycle)) if per_cycle else 1

    def _first_out(self, row: tuple[int, ...], offset: int) -> int:
        first = offset + int(self._table.latency[row[col.T_OP]])
        if OPS[row[col.T_OP]].kind in {Kind.REDUCE, Kind.RESHAPE}:
            first += (row[col.T_N] - 1) * row[col.T_P]
        if row[col.T_OP] == Op.SEND:
            pattern = row[col.T_PATTERN]
            rest = (row[col.T_WIDTH] - 1) * int(
                self.link.slot[pattern]
            )  # the latency holds the first vector's slot
            first += int(self.link.latency[pattern]) + rest + self._table.guard
        return first

    def _span(self, rows: TemplateKey, r: int) -> int:
        row = rows[r]
        return (
            (row[col.T_N] - 1) * row[col.T_P] + (row[col.T_M] - 1) * row[col.T_Q] + self.hold(rows, rows[r])
        )

    def _turn(self, rows: TemplateKey, r: int, tiles: int) -> int:
        """Cycles until another PASS of the same INSTALL may follow: with a tile per round, PASSes take turns in each."""
        row = rows[r]
        return (
            (row[col.T_N] - 1) * row[col.T_P] + self.hold(rows, rows[r]) if tiles > 1 else self._span(rows, r)
        )

    def _earliest(self, rows: TemplateKey, offsets: list[int], r: int) -> int:
        row = rows[r]
        need = max((self._first_out(rows[s], offsets[s]) for s in _operands(row)), default=0)
        if row[col.T_OP] == Op.PASS:
            i = row[col.T_S1]
            install = rows[i]
            ready = offsets[i] + (install[col.T_N] - 1) * install[col.T_P] + self.hold(rows, install)
            need = max(need, ready + int(self._table.latency[Op.INSTALL]))
            for other in range(r):
                if rows[other][col.T_OP] == Op.PASS and rows[other][col.T_S1] == i:
                    need = max(need, offsets[other] + self._turn(rows, other, install[col.T_M]))
        return need

    def _delay(self, rows: TemplateKey, offsets: list[int], s: int, by: int) -> None:
        offsets[s] += by
        for t in _operands(rows[s]):
            self._delay(rows, offsets, t, by)

    def solve(self, rows: TemplateKey, label: str) -> list[int]:
        """Offset of every row; a `Bug` if the streams of a chain cannot meet."""
        offsets = [0] * len(rows)
        for r, row in enumerate(rows):
            offsets[r] = self._earliest(rows, offsets, r)
            for s in _operands(row):  # a stream heard twice is on time at its second turn
                early = offsets[r] - self._first_out(rows[s], offsets[s])
                if early > 0:
                    self._delay(rows, offsets, s, early)
        self._check(rows, offsets, label)
        low = min(offsets)
        return [o - low for o in offsets]

    def _check(self, rows: TemplateKey, offsets: list[int], label: str) -> None:
        for r, row in enumerate(rows):
            for s in _operands(row):
                if self._first_out(rows[s], offsets[s]) != offsets[r]:
                    raise Bug(f"chain {label}: row {s} cannot meet row {r}", code="T501")
