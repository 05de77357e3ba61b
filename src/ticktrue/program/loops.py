"""Loops: chains that are stored once and run several times. `unroll` writes every iteration out.

Iteration l of a loop runs the chains of its body l * period cycles later; a row that names a region with a stride names the
region that many places further on in each iteration. Everything else is the same: ports, planes, bases, attributes.
"""

import re
from dataclasses import dataclass, replace

import numpy as np

from ticktrue.errors import InputError
from ticktrue.program import columns as col
from ticktrue.program.types import Int64, Loop, Timetable

MAX_ROWS = 1 << 22
"""Greatest number of stored rows after unrolling: no chip has code for more."""
MAX_CYCLE = 1 << 44
_LAYER = re.compile(r"L(\d+)\.")


def first_row(timetable: Timetable) -> Int64:
    """Where the stored rows of each chain begin, and where the last one's end: int64[chains + 1]."""
    start = timetable.template_start.astype(np.int64)
    lengths = (start[1:] - start[:-1])[timetable.chains[:, 0]]
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def body_rows(timetable: Timetable, loop: Loop) -> slice:
    """The stored rows of a loop's body."""
    at = first_row(timetable)
    return slice(int(at[loop.first]), int(at[loop.last + 1]))


def unrolled_rows(timetable: Timetable) -> int:
    """Stored rows of a timetable once its loops are unrolled; the loops must name chains that exist."""
    at = first_row(timetable)
    more = sum((loop.count - 1) * int(at[loop.last + 1] - at[loop.first]) for loop in timetable.loops)
    return int(at[-1]) + more


@dataclass(frozen=True, slots=True)
class Iterations:
    """Which stored chain each chain of the unrolled timetable is, in which iteration of which loop (-1: none): int64[chains]."""

    source: Int64
    iteration: Int64
    loop: Int64

    def later(self, timetable: Timetable) -> Int64:
        """Cycles by which each chain starts later than it is stored."""
        period = np.array([loop.period for loop in timetable.loops] + [0], dtype=np.int64)
        return self.iteration * period[self.loop]

    def rows(self, first: Int64) -> Int64:
        """Rows of all chains as numbers of the rows that are there once; those of chain c begin at `first[c]`."""
        size = (first[1:] - first[:-1])[self.source]
        end = np.cumsum(size)
        return np.repeat(first[self.source] - (end - size), size) + np.arange(int(size.sum()), dtype=np.int64)


def iterations(timetable: Timetable) -> Iterations:
    """The chains of every iteration, in order.

    Raises:
        InputError: T361 for loops that name no chains, overlap or lead too far (`ticktrue verify` says what is wrong).
    """
    _check(timetable)
    source, iteration, number, done = [], [], [], 0
    for i, loop in enumerate((*timetable.loops, None)):
        first = loop.first if loop else len(timetable.chains)
        source.append(np.arange(done, first, dtype=np.int64))
        iteration.append(np.zeros(first - done, dtype=np.int64))
        number.append(np.full(first - done, -1, dtype=np.int64))
        if loop:
            done = loop.last + 1
            source.append(np.tile(np.arange(first, done, dtype=np.int64), loop.count))
            iteration.append(np.repeat(np.arange(loop.count, dtype=np.int64), done - first))
            number.append(np.full((done - first) * loop.count, i, dtype=np.int64))
    return Iterations(np.concatenate(source), np.concatenate(iteration), np.concatenate(number))


def moved_regions(timetable: Timetable, region: Int64, iteration: Int64, number: Int64) -> Int64:
    """The region that each row names in its iteration of its loop, int64[rows] all.

    Raises:
        InputError: T361 for a region before the first; one past the last is for `expand` to find.
    """
    out = region.copy()
    for i, loop in enumerate(timetable.loops):
        for first, step in loop.strides:
            mine = (region == first) & (number == i)
            out[mine] += iteration[mine] * step
    if len(out) and ((out[region >= 0].min(initial=0) < 0) or out.max() > np.iinfo(np.int32).max):
        raise InputError("a loop leads to a region that does not exist", code="T361", where="loops.strides")
    return out


def unroll(timetable: Timetable) -> Timetable:
    """The timetable with every iteration of its loops written out; itself where it has none.

    Raises:
        InputError: T361 for loops that name no chains, overlap or lead too far (`ticktrue verify` says what is wrong).
    """
    if not timetable.loops:
        return timetable
    run = iterations(timetable)
    chains = timetable.chains[run.source]
    chains[:, 1] += run.later(timetable)
    first = first_row(timetable)
    size = (first[1:] - first[:-1])[run.source]
    rows = timetable.rows[run.rows(first)]
    region = rows[:, col.V_REGION].astype(np.int64)
    rows[:, col.V_REGION] = moved_regions(
        timetable, region, np.repeat(run.iteration, size), np.repeat(run.loop, size)
    )
    labels: list[str] = []
    done = 0
    for loop in timetable.loops:
        labels += timetable.labels[done : loop.first]
        done = loop.last + 1
        labels += _renamed(timetable.labels[loop.first : done], loop.count)
    return replace(timetable, chains=chains, rows=rows, labels=(*labels, *timetable.labels[done:]), loops=())


def _check(timetable: Timetable) -> None:
    done, fine = 0, True
    for loop in timetable.loops:
        fine = fine and done <= loop.first <= loop.last < len(timetable.chains) and loop.count >= 1
        fine = fine and 0 <= loop.period * loop.count <= MAX_CYCLE
        fine = fine and all(region >= 0 and abs(step) <= MAX_ROWS for region, step in loop.strides)
        done = loop.last + 1
    if not fine or unrolled_rows(timetable) > MAX_ROWS:
        raise InputError(
            "a loop names chains that do not exist, overlaps another or leads too far",
            code="T361", where=f"{timetable.kind.label()}, loops", hint="`ticktrue verify` says what is wrong with it",
        )  # fmt: skip


def _renamed(labels: tuple[str, ...], count: int) -> list[str]:
    """Labels of all iterations: the layer number goes on by the layers of a body; a label without one names the iteration."""
    found = [_LAYER.match(label) for label in labels]
    layers = [int(m[1]) for m in found if m]
    step = max(layers) - min(layers) + 1 if layers else 0
    out = list(labels)
    for i in range(1, count):
        out += [
            f"L{int(m[1]) + i * step}.{label[m.end() :]}" if m else f"{label}[i{i}]"
            for label, m in zip(labels, found, strict=True)
        ]
    return out
