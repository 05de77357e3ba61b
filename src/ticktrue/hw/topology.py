"""Which chips are joined, and the way between two that are not: pure arithmetic on chip numbers.

A system is a nest of full meshes: every chip of a tray with every other, then chips of equal index in all
trays with each other. A route corrects one digit of the chip number per hop, so it is as short as can be.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ticktrue.errors import InputError
from ticktrue.hw.link import HopClass


def hop_of(src: int, dst: int, hops: Sequence[HopClass]) -> HopClass | None:
    """The class of the direct link between two chips, or None where there is none."""
    if src == dst:
        return None
    for hop in hops:
        if (
            src // hop.group_chips == dst // hop.group_chips
            and src % hop.index_chips == dst % hop.index_chips
        ):
            return hop
    return None


def hop_matrix(chips: int, hops: Sequence[HopClass]) -> npt.NDArray[np.int32]:
    """Index into `hops` of the link between two chips as int32[src, dst]; -1 where there is none."""
    ids = np.arange(chips)
    out = np.full((chips, chips), -1, dtype=np.int32)
    for k in reversed(range(len(hops))):
        group, index = ids // hops[k].group_chips, ids % hops[k].index_chips
        out[np.equal.outer(group, group) & np.equal.outer(index, index)] = k
    np.fill_diagonal(out, -1)
    return out


def strides(hops: Sequence[HopClass]) -> tuple[int, ...]:
    """The place value above each digit of a chip number, ascending: 16, 256 for 16 trays of 16."""
    lower = sorted({hop.index_chips for hop in hops})
    return (*lower[1:], max(hop.group_chips for hop in hops))


def route_digits(src: int, dst: int, chips: int, places: Sequence[int]) -> tuple[int, ...]:
    """Chips on the way from src to dst, both ends included, one digit corrected per hop.

    Lowest digit first (own tray, then the peer's tray). Where that would pass a chip that a subset leaves
    out, highest digit first: then every chip on the way is numbered below src, so it exists.
    """
    upward = _correct(src, [(src - src % place) + dst % place for place in places])
    if all(chip < chips for chip in upward):
        return upward
    return _correct(src, [*((dst - dst % place) + src % place for place in reversed(places[:-1])), dst])


def _correct(src: int, stations: Sequence[int]) -> tuple[int, ...]:
    """The stations after src without repetitions: a digit that is right already costs no hop."""
    out = [src]
    for chip in stations:
        if chip != out[-1]:
            out.append(chip)
    return tuple(out)


def check_nest(name: str, chips: int, hops: Sequence[HopClass]) -> None:
    """Checks that the hop classes are a nest of full meshes over all chips.

    Raises:
        InputError: a level does not start where the level below ends, or the last does not span all chips.
    """
    index, group = 1, 1
    for hop in hops:
        starts = hop.index_chips in (index, group) and hop.group_chips % hop.index_chips == 0
        if not starts or hop.group_chips <= group:
            raise InputError(
                f"expected groups that grow from hop to hop, each at an index of {index} or {group} chips, "
                f"found groups of {hop.group_chips} at an index of {hop.index_chips}",
                code="T374",
                where=f"system {name}, hop {hop.name}",
            )
        index, group = hop.index_chips, hop.group_chips
    if group != chips:
        raise InputError(
            f"expected the last hop to span all {chips} chips, found {group}",
            code="T374",
            where=f"system {name}",
        )
