"""Layers over several groups of chips, one stage after another: how few groups hold a model, and what the fullest chip holds.

No program of several stages is compiled yet; this is what each stage would hold, by the same placement as one group.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from ticktrue.place.demand import VECTOR_BYTES, Demand, Held, hold

_HALVINGS = 16
"""Steps of the search for the evenest cut: to one part in 65,536 of a chip."""


@dataclass(frozen=True, slots=True)
class Stages:
    """Layers of each stage, and what a chip of the fullest stage holds."""

    cuts: tuple[range, ...]
    fullest: Held


def fewest_stages(demand: Demand, most: int) -> Stages | None:
    """The fewest stages, up to `most`, cut as evenly as whole layers allow; None where they do not hold the model."""
    sizes = _sizes(demand)
    capacity = demand.group_vectors * len(demand.start) * VECTOR_BYTES
    known: dict[tuple[object, ...], Held] = {}
    cuts = _cut(sizes, capacity)
    while cuts is not None and len(cuts) <= most:
        cuts = _evened(sizes, cuts, capacity)
        stages = _weighed(demand, cuts, known)
        if stages.fullest.fits:
            return stages
        # the bytes fit and the bank groups do not divide: stages smaller than the largest of these
        capacity = max(sizes.of(cut) for cut in cuts) - 1
        cuts = _cut(sizes, capacity)
    return None


def even_stages(demand: Demand, count: int) -> Stages:
    """At most `count` stages, with the fullest as small as it can be, whether a chip holds it or not."""
    sizes = _sizes(demand)
    whole = range(demand.layers)
    return _weighed(demand, _evened(sizes, (whole,) * count, sizes.of(whole)), {})


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Bytes on a chip: of the first n layers together in `before[n]`, of every stage, of the first and the last besides."""

    before: tuple[int, ...]
    every: int
    first: int
    last: int

    @property
    def layers(self) -> int:
        """Layers of the whole model."""
        return len(self.before) - 1

    def of(self, cut: range) -> int:
        """Bytes on a chip of one stage."""
        ends = (self.first if cut.start == 0 else 0) + (self.last if cut.stop == self.layers else 0)
        return self.every + ends + self.before[cut.stop] - self.before[cut.start]


def _sizes(demand: Demand) -> _Sizes:
    kinds = [
        VECTOR_BYTES * sum(p.vectors for p in kind.parts) + kind.rows * demand.row_bytes
        for kind in demand.kinds
    ]
    before = tuple(accumulate((kinds[kind] for kind in demand.kind_of), initial=0))
    first, last, every = (
        VECTOR_BYTES * sum(p.vectors for p in parts)
        for parts in (demand.first, demand.last, demand.all_stages)
    )
    # a vector more: code ends inside one
    every += VECTOR_BYTES * (sum(demand.start) + 1) + demand.rows * demand.row_bytes
    return _Sizes(before, every, first, last)


def _cut(sizes: _Sizes, capacity: int) -> tuple[range, ...] | None:
    """Stages filled one after another up to `capacity` bytes a chip; None where a layer does not fit into one."""
    cuts, a = [], 0
    while a < sizes.layers:
        room = capacity - sizes.every - (0 if a else sizes.first)
        b = bisect_right(sizes.before, sizes.before[a] + room) - 1
        if b == sizes.layers and sizes.before[b] - sizes.before[a] + sizes.last > room:
            b -= 1
        if b <= a:
            return None
        cuts.append(range(a, b))
        a = b
    return tuple(cuts)


def _evened(sizes: _Sizes, cuts: tuple[range, ...], capacity: int) -> tuple[range, ...]:
    """As many stages at most, with the fullest as small as it can be."""
    count, low, high = len(cuts), 0, capacity
    for _ in range(_HALVINGS):
        middle = (low + high) // 2
        found = _cut(sizes, middle)
        if found is not None and len(found) <= count:
            cuts, high = found, middle
        else:
            low = middle
    return cuts


def _weighed(demand: Demand, cuts: Sequence[range], known: dict[tuple[object, ...], Held]) -> Stages:
    """The stages with what their fullest chip holds; stages of as many layers of each kind are weighed once."""
    held = []
    for cut in cuts:
        first, last = cut.start == 0, cut.stop == demand.layers
        key = (tuple(sorted(demand.kind_of[layer] for layer in cut)), first, last)
        if key not in known:
            known[key] = hold(demand, cut, first=first, last=last)
        held.append(known[key])
    fullest = max(held, key=lambda h: (not h.fits, h.total_bytes))
    return Stages(tuple(cuts), fullest)
