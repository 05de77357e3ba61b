"""Loops: chains that are stored once and run several times. `unroll` writes every iteration out.

Iteration l of a loop runs the chains of its body l * period cycles later; a row that names a region with a stride names the region
that many places further on in each iteration. Everything else is the same: ports, planes, bases, attributes.
"""

import re
from dataclasses import replace

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


def unroll(timetable: Timetable) -> Timetable:
    """The timetable with every iteration of its loops written out; itself where it has none.

    Raises:
        InputError: T361 for loops that name no chains, overlap or lead too far (`ticktrue verify` says what is wrong).
    """
    if not timetable.loops:
        return timetable
    _check(timetable)
    at = first_row(timetable)
    chains, rows, labels, done = [], [], [], 0
    for loop in timetable.loops:
        chains.append(timetable.chains[done : loop.first])
        rows.append(timetable.rows[at[done] : at[loop.first]])
        labels += timetable.labels[done : loop.first]
        done = loop.last + 1
        chains.append(_later(timetable.chains[loop.first : done], loop))
        rows.append(_moved(timetable.rows[at[loop.first] : at[done]], loop))
        labels += _renamed(timetable.labels[loop.first : done], loop.count)
    chains.append(timetable.chains[done:])
    rows.append(timetable.rows[at[done] :])
    labels += timetable.labels[done:]
    return replace(
        timetable, chains=np.concatenate(chains), rows=np.concatenate(rows), labels=tuple(labels), loops=()
    )


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


def _later(chains: Int64, loop: Loop) -> Int64:
    out = np.tile(chains, (loop.count, 1))
    out[:, 1] += np.repeat(np.arange(loop.count, dtype=np.int64) * loop.period, len(chains))
    return out


def _moved(rows: np.ndarray, loop: Loop) -> np.ndarray:
    out = np.tile(rows, (loop.count, 1)).astype(np.int64)
    iteration = np.repeat(np.arange(loop.count, dtype=np.int64), len(rows))
    region = out[:, col.V_REGION].copy()
    for first, step in loop.strides:
        mine = region == first
        moved = first + iteration[mine] * step
        if len(moved) and (moved.min() < 0 or moved.max() > np.iinfo(np.int32).max):
            raise InputError("a loop leads to a region that does not exist", code="T361", where="loops.strides")
        out[mine, col.V_REGION] = moved
    return out.astype(np.int32)


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
