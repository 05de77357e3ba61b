"""Whether loops are loops (V112, V119), and the short timetable that stands for all iterations.

Iterations of a legal loop meet nobody but their neighbours: the body spans at most two periods, and no two iterations share a
region of a stride. So what holds for the first iterations and the last, next to each other, holds for all between.
"""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from ticktrue.isa import Op, Unit
from ticktrue.program import Flat, Image, Loop, Region, RegionClass, Timetable
from ticktrue.program import columns as col
from ticktrue.program.loops import MAX_CYCLE, MAX_ROWS, body_rows, unrolled_rows
from ticktrue.program.types import Int64
from ticktrue.units import ceil_div
from ticktrue.verify.image import GREATEST, whole
from ticktrue.verify.verdict import Findings

_STEPPED = {RegionClass.WEIGHT, RegionClass.CONST, RegionClass.STATE}
_FORM = ("cls", "group", "stride", "count", "packing")
LEAST_BEFORE = 2
"""Iterations kept before the ones left out: an iteration sees what the one before wrote in part, the one before that in full."""


@dataclass(frozen=True, slots=True)
class Short:
    """A timetable with fewer iterations, and how many class rows and cycles that leaves out."""

    timetable: Timetable
    rows: int
    cycles: int


def check_loops(image: Image, timetable: Timetable, findings: Findings) -> bool:
    """Finds loops whose fields do not make a loop of the chains there are; whether they can be unrolled."""
    before, where = findings.total, timetable.kind.label()
    for i, loop in enumerate(timetable.loops):
        _fields(image, timetable, loop, f"{where}, loops[{i}]", findings)
    if findings.total == before:
        for i, (a, b) in enumerate(pairwise(timetable.loops), start=1):
            if b.first <= a.last:
                text = (
                    f"expected chains after {a.last}, where the loop before ends, found {b.first} to {b.last}"
                )
                findings.field("V119", f"{where}, loops[{i}]", text)
    if findings.total == before and unrolled_rows(timetable) > MAX_ROWS:
        findings.field("V112", f"{where}, loops", f"expected at most {MAX_ROWS:_} rows after unrolling")
    if findings.total == before:
        for i, loop in enumerate(timetable.loops):
            _tracks(image, timetable, loop, f"{where}, loops[{i}]", findings)
    return findings.total == before


def _fields(image: Image, t: Timetable, loop: Loop, where: str, findings: Findings) -> None:
    top = len(t.chains) - 1
    limits = (("first", 0, top), ("last", 0, top), ("count", 2, MAX_ROWS), ("period", 1, MAX_CYCLE))
    for name, low, high in limits:
        if not whole(getattr(loop, name), low, high):
            findings.field(
                "V112", f"{where}.{name}", f"expected {low} to {high:_}, found {getattr(loop, name)!r}"
            )
            return
    if loop.last < loop.first:
        findings.field("V112", where, f"expected a last chain from {loop.first} on, found {loop.last}")
    if loop.period * loop.count > MAX_CYCLE:
        findings.field("V112", where, f"expected an end before cycle {MAX_CYCLE:_}")
    for region, step in loop.strides:
        if not whole(region, 0, len(image.regions) - 1) or not whole(step, -GREATEST):
            text = f"expected a stride of a region below {len(image.regions)}, found {region!r}:{step!r}"
            findings.field("V112", f"{where}.strides", text)
        elif step == 0:
            text = f"expected a stride other than 0, which means nothing, for region {region}"
            findings.field("V100", f"{where}.strides", text)
    named = [region for region, _ in loop.strides]
    if named != sorted(set(named)):
        findings.field("V100", f"{where}.strides", "expected each region once, ascending")


def _tracks(image: Image, t: Timetable, loop: Loop, where: str, findings: Findings) -> None:
    """Each stride leads over regions of one form, and a region that one iteration moves to belongs to no other row."""
    rows = t.rows[body_rows(t, loop)]
    named = set(rows[:, col.V_REGION].tolist())
    owner: dict[int, int] = {}
    for region, step in loop.strides:
        first, end = image.regions[region], region + step * (loop.count - 1)
        if region not in named:
            text = f"region {first.name} has a stride, but no row of the body names it"
            findings.field("V100", f"{where}.strides", text)
        if first.cls not in _STEPPED or not 0 <= end < len(image.regions):
            text = f"region {first.name}: expected {loop.count} weight, const or state regions {step} apart"
            findings.field("V112", f"{where}.strides", text)
            continue
        for at in range(region, end + (1 if step > 0 else -1), step):
            other = image.regions[at]
            if _form(other) != _form(first):
                text = f"leads from region {first.name} to {other.name}, of another class, bank group, size or packing"
                findings.field("V100", f"{where}.strides", text)
                break
            if owner.setdefault(at, region) != region or (at != region and at in named):
                findings.field("V119", f"{where}.strides", f"iterations meet in region {other.name}")
                break


def _form(r: Region) -> tuple[object, ...]:
    return tuple(getattr(r, name) for name in _FORM)


@dataclass(frozen=True, slots=True)
class _Box:
    """When chains of the first iteration begin and end, writes in memory included: int64[chains]."""

    begin: Int64
    end: Int64

    @staticmethod
    def of(flat: Flat) -> "_Box":
        rows, first = flat.rows, flat.row_of_chain
        end = rows[:, col.C_ISSUE] + rows[:, col.C_SPAN]
        end = end + np.where(rows[:, col.C_UNIT] == Unit.MEM_WRITE, flat.table.latency[Op.STORE], 0)
        end = end + np.where(rows[:, col.C_OP] == Op.LATCH, flat.table.latency[Op.LATCH], 0)
        begin, latest = (
            flat.start.copy(),
            flat.start.copy(),
        )  # a chain that only speaks to peers may have no rows
        some = np.flatnonzero(first[1:] > first[:-1])
        if len(some):
            begin[some] = np.minimum.reduceat(rows[:, col.C_ISSUE], first[some])
            latest[some] = np.maximum.reduceat(end, first[some])
        return _Box(begin, latest)


def check_spans(timetable: Timetable, once: Flat, findings: Findings) -> None:
    """Finds bodies that span more than two periods. `once` holds every stored chain one time."""
    box = _Box.of(once)
    for i, loop in enumerate(timetable.loops):
        body = slice(loop.first, loop.last + 1)
        span = int(box.end[body].max() - box.begin[body].min())
        if span > 2 * loop.period:
            text = f"expected a body of at most two periods of {loop.period:_} cycles, found one that spans {span:_}"
            findings.field("V119", f"{timetable.kind.label()}, loops[{i}]", text)


def shorten(timetable: Timetable, once: Flat) -> Short:
    """The timetable with as few iterations as still stand for all; the same one where no iteration can be left out."""
    box, out, rows, cycles = _Box.of(once), timetable, 0, 0
    begin, end = box.begin.copy(), box.end.copy()
    for loop in timetable.loops:
        body = slice(loop.first, loop.last + 1)
        end[body] += (loop.count - 1) * loop.period
    loops = list(timetable.loops)
    for i, loop in enumerate(timetable.loops):
        body = slice(loop.first, loop.last + 1)
        low, high = int(box.begin[body].min()), int(box.end[body].max())
        less = _left_out(loop, (low, high), (begin[: loop.first], end[: loop.first], begin[loop.last + 1 :]))
        if less <= 0 or _meets(timetable, loop):
            continue
        cut = less * loop.period
        chains = out.chains.copy()
        chains[loop.last + 1 :, 1] -= cut
        loops[i] = replace(loop, count=loop.count - less)
        out = replace(out, chains=chains, loops=tuple(loops), duration=out.duration - cut)
        rows += less * int(once.row_of_chain[loop.last + 1] - once.row_of_chain[loop.first])
        cycles += cut
    return Short(out, rows, cycles)


def _left_out(loop: Loop, body: tuple[int, int], others: tuple[Int64, Int64, Int64]) -> int:
    """Iterations that meet no chain outside the loop and are like their neighbours. `others`: begin and end before, begin after.

    What comes before has ended when the first iteration left out begins, and what comes after begins when the last one has ended:
    so both keep their distance from all iterations that remain.
    """
    (low, high), (_, end_before, begin_after) = body, others
    kept = LEAST_BEFORE
    if len(end_before):
        kept = max(kept, ceil_div(max(int(end_before.max()) - low, 0), loop.period))
    until = loop.count - 1
    if len(begin_after):
        soon = int(begin_after.min())
        until = min(until, (soon - high) // loop.period + 1, (soon - low) // loop.period)
    return until - kept


def _meets(timetable: Timetable, loop: Loop) -> bool:
    """Whether rows outside a loop name a region that one of its iterations moves to."""
    moved = {at for r, s in loop.strides for at in range(r, r + s * loop.count, s)}
    inside = body_rows(timetable, loop)
    named = set(timetable.rows[: inside.start, col.V_REGION].tolist())
    named |= set(timetable.rows[inside.stop :, col.V_REGION].tolist())
    for other in timetable.loops:
        if other is not loop:
            named |= {at for r, s in other.strides for at in range(r, r + s * other.count, s)}
    return bool(moved & named)
