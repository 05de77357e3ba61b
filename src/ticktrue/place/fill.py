"""Which bank group each region of a chip goes to: sizes alone, so that a whole model is weighed in milliseconds."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ticktrue.place.layout import SCORE

_LAYER = re.compile(r"(?:L|layers\.)(\d+)\.(.+)")
_PERIODS = (1, 2, 3, 4, 5, 6)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A region without a place: the layer it belongs to (-1: none), its name within, vectors; `keys`: it is K of a cache."""

    name: str
    layer: int
    part: str
    vectors: int
    keys: bool


@dataclass(frozen=True, slots=True)
class Spot:
    """The place of the region number `index` of those that were wanted."""

    index: int
    group: int
    base: int


@dataclass(frozen=True, slots=True)
class Filled:
    """The places of all regions, in the order in which they were taken, and the fill of each bank group in vectors."""

    spots: tuple[Spot, ...]
    fill: tuple[int, ...]


def layer_of(name: str) -> tuple[int, str]:
    """Layer that a region belongs to and its name within the layer; (-1, name) where it belongs to none."""
    found = _LAYER.fullmatch(name)
    return (int(found[1]), found[2]) if found else (-1, name)


def fill_groups(wanted: Sequence[Wanted], start: Sequence[int], group_vectors: int) -> Filled:
    """Gives every region a bank group and a base; `start[g]` vectors of group g are taken already.

    Layers lie as alike as still fits: all of them, every second, and so on; else what fills the groups most evenly.
    """
    filled = Filled((), tuple(start))
    for period in (*_PERIODS, 0):
        filled = _fill(wanted, _tracks(wanted, period), start, apart=period > 0)
        if max(filled.fill) <= group_vectors:
            break
    return filled


def _tracks(wanted: Sequence[Wanted], period: int) -> list[list[int]]:
    """What is placed together: regions of one kind of every `period`-th layer, in order of layers; others alone.

    Layers that lie alike, `period` layers apart, can be one loop of a timetable (docs/adr/0015). Period 0: every region alone.
    """
    tracks: dict[tuple[int, str], list[int]] = {}
    for i, w in enumerate(wanted):
        key = (w.layer % period, w.part) if period and w.layer >= 0 else (-1, w.name)
        tracks.setdefault(key, []).append(i)
    return [sorted(track, key=lambda i: wanted[i].layer) for track in tracks.values()]


def _fill(wanted: Sequence[Wanted], tracks: list[list[int]], start: Sequence[int], *, apart: bool) -> Filled:
    """Each track as a whole into the bank group that is least full, the largest first.

    `apart`: keys lie apart from the scores, which are written and read while keys stream.
    """
    fill, spots = list(start), []
    every = range(len(fill))
    for_keys = [g for g in every if g != SCORE % len(fill)] or [0]
    sized = [(-sum(wanted[i].vectors for i in track), wanted[track[0]].name, track) for track in tracks]
    for _, _, track in sorted(sized, key=lambda s: s[:2]):
        group = min(for_keys if apart and wanted[track[0]].keys else every, key=lambda g: fill[g])
        for i in track:
            spots.append(Spot(i, group, fill[group]))
            fill[group] += wanted[i].vectors
    return Filled(tuple(spots), tuple(fill))
