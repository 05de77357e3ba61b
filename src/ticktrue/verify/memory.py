"""Whether memory holds what is read (V103), and nothing is written while another row uses it (V104): every vector and chip."""

from dataclasses import dataclass

import numpy as np

from ticktrue.isa import Op, RegFn, Unit
from ticktrue.isa.ops import LANES, VECTOR_BYTES
from ticktrue.program import Region, RegionClass
from ticktrue.program import columns as col
from ticktrue.program.types import Int64
from ticktrue.units import ceil_div
from ticktrue.verify import memory_kernel as k
from ticktrue.verify.indirect import greatest, greatest_place
from ticktrue.verify.memory_kernel import walk
from ticktrue.verify.scope import Scope
from ticktrue.verify.shape import OUTPUT_VECTORS
from ticktrue.verify.verdict import LIMIT

F32_BYTES = 4
_TRACKED = {RegionClass.STATE, RegionClass.INBOX, RegionClass.SCRATCH}
_STEP_ONLY = {RegionClass.INBOX, RegionClass.SCRATCH}
_SIGNATURE = (col.C_CHAIN, col.C_ABS, col.C_STEP, col.C_STEP2, col.C_N, col.C_P, col.C_M, col.C_Q, col.C_WIDTH, col.C_PATTERN,
              col.C_K, col.C_RANKFN, col.C_RANKSTRIDE)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Space:
    """The vectors that rows may write, numbered without gaps, and the marks of what a step has written.

    `shift` int64[regions]: absolute address + shift = number; `mark` int64[regions]: number + mark = mark, NO_MARK for none.
    """

    shift: Int64
    mark: Int64
    tracked: np.ndarray
    vectors: int
    marks: int


def _space(regions: tuple[Region, ...], group_vectors: int) -> _Space:
    start = np.array([r.group * group_vectors + r.base for r in regions], dtype=np.int64)
    tracked = np.array([r.cls in _TRACKED and r.vectors > 0 for r in regions], dtype=bool)
    sizes = np.array([r.vectors for r in regions], dtype=np.int64)
    shift, mark = np.zeros(len(regions), dtype=np.int64), np.full(len(regions), -1, dtype=np.int64)
    vectors, marks, reach, delta = 0, 1, -1, 0
    for i in sorted(np.flatnonzero(tracked).tolist(), key=lambda i: (int(start[i]), i)):
        begin, end = int(start[i]), int(start[i] + sizes[i])
        if begin >= reach:
            delta, reach = vectors - begin, begin
        shift[i] = delta
        if end > reach:
            vectors, reach = vectors + end - reach, end
        if regions[i].cls in _STEP_ONLY:
            # marks start at 1 so that no offset is -1, which stands for "no mark"
            mark[i] = marks - (begin + delta)
            marks += int(sizes[i])
    return _Space(shift, mark, tracked, vectors, marks)


def check_memory(scope: Scope) -> None:
    """Finds reads of what this step has not written, and accesses that overlap, on the chips of the plan one after the other."""
    space = _space(scope.flat.regions, scope.flat.table.group_vectors)
    access, of = _accesses(scope, space)
    seen: set[tuple[int, int, int]] = set()
    found = np.zeros((4 * LIMIT, 4), dtype=np.int64)
    for chip in range(scope.flat.plan.chips):
        address = scope.flat.address(chip)
        real = of < len(scope.rows)
        access[real, k.A_FIRST] = address[of[real]] + space.shift[access[real, k.A_REGION]]
        count = int(walk(access, space.vectors, space.marks, found))
        for kind, a, b, _ in found[: min(count, len(found))].tolist():
            if (kind, a, b) not in seen:
                seen.add((kind, a, b))
                _report(scope, chip, (kind, a, b))


def _accesses(scope: Scope, space: _Space) -> tuple[Int64, Int64]:
    """The accesses of vectors that can be written, in order, and the class row of each; then what the host reads at the end."""
    rows, table = scope.rows, scope.flat.table
    op, unit, region = rows[:, col.C_OP], rows[:, col.C_UNIT], rows[:, col.C_REGION]
    memory = (unit == Unit.MEM_WIDE) | (unit == Unit.MEM_READ) | (unit == Unit.MEM_WRITE)
    of = np.flatnonzero(memory & np.append(space.tracked, False)[region])
    r, op, region = rows[of], op[of], region[of]
    a = np.zeros((len(of), k.A_COLUMNS), dtype=np.int64)
    write = (op == Op.STORE) | (op == Op.SCATTER)
    a[:, k.A_ROW], a[:, k.A_WRITE], a[:, k.A_REGION], a[:, k.A_OFFSET] = of, write, region, space.mark[region]
    for to, source in ((k.A_N, col.C_N), (k.A_STEP, col.C_STEP), (k.A_M, col.C_M), (k.A_STEP2, col.C_STEP2),
                       (k.A_WIDTH, col.C_WIDTH), (k.A_STRIDE, col.C_REGSTRIDE), (k.A_START, col.C_ISSUE),
                       (k.A_W, col.C_W)):  # fmt: skip
        a[:, to] = r[:, source]
    values = greatest(scope.image, scope.timetable.kind)[r[:, col.C_REGFN]] + 1
    places = greatest_place(scope.image, scope.timetable.kind, r[:, col.C_PATTERN], r[:, col.C_A1]) + 1
    a[:, k.A_VALUES] = np.where(r[:, col.C_REGFN] == RegFn.KV, places, values)
    a[:, k.A_END] = r[:, col.C_ISSUE] + r[:, col.C_SPAN]
    a[:, k.A_VISIBLE] = a[:, k.A_END] + table.latency[op]
    a[:, k.A_SIGNATURE] = _signatures(r)
    order = np.lexsort((of, ~write, a[:, k.A_START]))
    hosts = _host_reads(scope, space)
    out = np.concatenate([a[order], hosts])
    return np.ascontiguousarray(out), out[:, k.A_ROW].copy()


def _signatures(r: Int64) -> Int64:
    """A number for each (chain, addresses, progression); -1 where events share vectors or a register decides."""
    if not len(r):
        return np.zeros(0, dtype=np.int64)
    _, number = np.unique(r[:, _SIGNATURE], axis=0, return_inverse=True)
    n, m, width = r[:, col.C_N], r[:, col.C_M], r[:, col.C_WIDTH]
    step, step2 = np.abs(r[:, col.C_STEP]), np.abs(r[:, col.C_STEP2])
    run, runs = (n - 1) * step + width, (m - 1) * step2 + width
    alone = ((n == 1) | (step >= width)) & ((m == 1) | (step2 >= run) | ((step >= runs) & (step2 >= width)))
    own = number.reshape(-1).astype(np.int64)
    return np.where(alone & (r[:, col.C_REGFN] == RegFn.NONE), own, -2 - own)


def _host_reads(scope: Scope, space: _Space) -> Int64:
    """What the host reads after the step: whole records, of a row's last one the vectors that hold its lanes."""
    t, key = scope.timetable, scope.image.key
    shard = ceil_div(key.vocab, key.plan.chips)
    a = np.zeros((2 * len(t.outputs), k.A_COLUMNS), dtype=np.int64)
    for at, o in enumerate(t.outputs):
        r, whole = scope.flat.regions[o.region], OUTPUT_VECTORS[o.name]
        rest = (
            ceil_div((shard - (o.vectors - 1) * LANES) * F32_BYTES, VECTOR_BYTES)
            if o.name == "logits"
            else whole
        )
        first = r.group * scope.flat.table.group_vectors + r.base + o.base + space.shift[o.region]
        before = o.rows * (o.vectors - 1)
        for part, (start, events, width) in enumerate(((0, before, whole), (before * whole, o.rows, rest))):
            row = a[2 * at + part]
            row[k.A_ROW], row[k.A_REGION], row[k.A_OFFSET] = (
                len(scope.rows) + at,
                o.region,
                space.mark[o.region],
            )
            row[k.A_FIRST], row[k.A_N], row[k.A_STEP], row[k.A_WIDTH] = first + start, events, whole, width
            row[k.A_M], row[k.A_VALUES], row[k.A_SIGNATURE] = 1, 1, -2
            row[k.A_START], row[k.A_END] = t.duration, t.duration + 1
    return a


def _report(scope: Scope, chip: int, pair: tuple[int, int, int]) -> None:
    kind, a, b = pair
    rows = scope.rows
    issue = [int(rows[x, col.C_ISSUE]) if 0 <= x < len(rows) else scope.timetable.duration for x in (a, b)]
    at = f"chip {chip}, cycle {issue[0]:_}"
    if kind == k.NEVER_WRITTEN:
        message = (
            f"{at}: {scope.name(a)} reads a vector of {_region(scope, a)} that nothing wrote in this step"
        )
        scope.add("V103", a, message, chip=chip, cycle=issue[0])
    elif kind == k.OVERWRITTEN:
        message = (f"{at}: {scope.name(a)} reads a vector of {_region(scope, a)} that "
                   f"{scope.name(b)} has overwritten through {_region(scope, b)}")  # fmt: skip
        scope.add("V104", a, message, second=b, chip=chip, cycle=issue[0])
    else:
        end = int(rows[a, col.C_ISSUE] + rows[a, col.C_SPAN]) if a < len(rows) else issue[0]
        held = f"a vector of {_region(scope, a)} (until cycle {end:_})"
        message = (f"chip {chip}: {scope.name(a)} still holds {held} when {scope.name(b)} "
                   f"takes it at cycle {issue[1]:_}")  # fmt: skip
        scope.add("V104", a, message, second=b, chip=chip, cycle=issue[1])


def _region(scope: Scope, row: int) -> str:
    if row >= len(scope.rows):
        return scope.flat.regions[scope.timetable.outputs[row - len(scope.rows)].region].name
    return scope.flat.regions[int(scope.rows[row, col.C_REGION])].name
