"""A scheduled timetable of a few bodies -> one of many: the body that repeats is stored once, with its period.

The step is scheduled with only its first and last bodies, the ones between left out. Where the bodies around the gap have equal
cycles and ports, one period apart, the list scheduler has reached its steady state: what it would do for the bodies left out is
known, and they become iterations of a loop.
"""

from dataclasses import dataclass, replace

import numpy as np

from ticktrue.hw import System
from ticktrue.isa import Op, Unit
from ticktrue.program import Image, Loop, Timetable, expand
from ticktrue.program import columns as col
from ticktrue.program.loops import first_row
from ticktrue.program.types import Int64

Strides = dict[int, int]
ALIKE = 3
"""Bodies that must be alike: a body meets no more than the two before it, so the third tells of every later one."""


@dataclass(frozen=True, slots=True)
class Bodies:
    """Chains (first, last) of each body that was built, and its number among all bodies; the gap follows body `front` - 1."""

    chains: tuple[tuple[int, int], ...]
    number: tuple[int, ...]
    front: int


@dataclass(frozen=True, slots=True)
class _Times:
    """First issue and last end (memory writes included) of each chain: int64[chains]."""

    begin: Int64
    end: Int64

    def of(self, first: int, last: int) -> tuple[int, int]:
        """Begin and end of chains first .. last."""
        return int(self.begin[first : last + 1].min()), int(self.end[first : last + 1].max())


def close_loop(image: Image, timetable: Timetable, system: System, bodies: Bodies) -> Timetable | None:
    """The timetable of all bodies, those that repeat as one loop; None where the bodies around the gap are not alike."""
    at = first_row(timetable)
    low, high = bodies.front - 1, bodies.front
    found = _alike(timetable, at, bodies, low)
    if found is None:
        return None
    period, strides = found
    while low > 0 and _alike(timetable, at, bodies, low - 1) == found:
        low -= 1
    while high + 1 < len(bodies.chains) and _alike(timetable, at, bodies, high) == found:
        high += 1
    if high - low + 1 < ALIKE:
        return None
    if not _may_repeat(_times(image, timetable, system), bodies, (low, high), period):
        return None
    first, last = bodies.chains[low]
    count = bodies.number[high] - bodies.number[low] + 1
    moved = bodies.number[low] - bodies.number[0]
    loop = Loop(
        first, last, count, period, tuple(sorted((r + moved * s, s) for r, s in strides.items() if s))
    )
    return _stretched(timetable, at, loop, bodies.chains[high][1], high - low + 1)


def _alike(timetable: Timetable, at: Int64, bodies: Bodies, one: int) -> tuple[int, Strides] | None:
    """(period, stride of each region of body 0) where body `one` and the next built one differ by them alone."""
    (a0, a1), (b0, b1) = bodies.chains[one], bodies.chains[one + 1]
    if a1 - a0 != b1 - b0:
        return None
    a, b = timetable.chains[a0 : a1 + 1], timetable.chains[b0 : b1 + 1]
    apart = b[:, 1] - a[:, 1]
    if (a[:, [0, 2]] != b[:, [0, 2]]).any() or (apart != apart[0]).any() or apart[0] < 1:
        return None
    x, y = timetable.rows[at[a0] : at[a1 + 1]], timetable.rows[at[b0] : at[b1 + 1]]
    if (x[:, col.V_BASE :] != y[:, col.V_BASE :]).any():
        return None
    bodies_apart = bodies.number[one + 1] - bodies.number[one]
    before = bodies.number[one] - bodies.number[0]
    strides: Strides = {}
    for r, s in {*zip(x[:, col.V_REGION].tolist(), y[:, col.V_REGION].tolist(), strict=True)}:
        step, rest = divmod(s - r, bodies_apart)
        if rest or strides.setdefault(r - before * step, step) != step:
            return None
    return int(apart[0]), strides


def _times(image: Image, timetable: Timetable, system: System) -> _Times:
    flat = expand(image, timetable, system)
    rows, first = flat.rows, flat.row_of_chain[:-1]
    end = rows[:, col.C_ISSUE] + rows[:, col.C_SPAN]
    end = end + np.where(rows[:, col.C_UNIT] == Unit.MEM_WRITE, flat.table.latency[Op.STORE], 0)
    end = end + np.where(rows[:, col.C_OP] == Op.LATCH, flat.table.latency[Op.LATCH], 0)
    return _Times(np.minimum.reduceat(rows[:, col.C_ISSUE], first), np.maximum.reduceat(end, first))


def _may_repeat(times: _Times, bodies: Bodies, run: tuple[int, int], period: int) -> bool:
    """Whether a body spans at most two periods, and what stands before and after meets none of the bodies between."""
    begin, end = times.of(*bodies.chains[run[0]])
    final, _ = times.of(*bodies.chains[run[1]])
    first, last = bodies.chains[run[0]][0], bodies.chains[run[1]][1]
    before, after = times.end[:first], times.begin[last + 1 :]
    return (
        end - begin <= 2 * period
        and int(before.max(initial=0)) <= final + period
        and int(after.min(initial=final)) >= final
    )


def _stretched(timetable: Timetable, at: Int64, loop: Loop, end: int, built: int) -> Timetable:
    """The loop in the place of `built` bodies, of which chain `end` is the last; what follows starts as much later."""
    more = (loop.count - built) * loop.period
    after = timetable.chains[end + 1 :].copy()
    after[:, 1] += more
    kept, rest = slice(0, loop.last + 1), slice(end + 1, None)
    return replace(
        timetable,
        chains=np.concatenate([timetable.chains[kept], after]),
        rows=np.concatenate([timetable.rows[: at[loop.last + 1]], timetable.rows[at[end + 1] :]]),
        labels=timetable.labels[kept] + timetable.labels[rest],
        loops=(loop,),
        duration=timetable.duration + more,
    )
