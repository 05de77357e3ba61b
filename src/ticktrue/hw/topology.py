"""Which chips are joined, and the way between two that are not: pure arithmetic on chip numbers.

A system is a nest of full meshes: every chip of a tray with every other, then chips of equal index in all
trays with each other. A route corrects one digit of the chip number per hop, so it is as short as can be.

Or it is a dragonfly: groups of chips in a full mesh, and one link between every two groups, each chip of a group holding a
few of them. A route goes to the chip that holds the link, over it, and on to its goal: at most three hops, or two over
a third group where its links happen to meet.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ticktrue.errors import InputError
from ticktrue.hw.link import HopClass

LONGEST = 4
"""Chips on the longest route of a dragonfly: in its group, over the link, in the other group."""


def hop_of(src: int, dst: int, hops: Sequence[HopClass]) -> HopClass | None:
    """The class of the direct link between two chips, or None where there is none."""
    if src == dst:
        return None
    for hop in hops:
        together = src // hop.group_chips == dst // hop.group_chips
        if hop.ports:
            other = dst // hop.index_chips
            if together and src // hop.index_chips != other and far_end(src, other, hop) == dst:
                return hop
        elif together and src % hop.index_chips == dst % hop.index_chips:
            return hop
    return None


def holder(unit: int, other: int, hop: HopClass) -> int:
    """The chip of group `unit` that holds its link to group `other` of a dragonfly.

    Port j of a group, counted over its chips, leads to the group j + 1 places on. Source: an assumption; which port leads where
    is not published, and with one link between every two groups only the numbering of chips depends on it.
    """
    units = hop.group_chips // hop.index_chips
    port = (other - unit) % units - 1
    return unit * hop.index_chips + port // hop.ports


def far_end(chip: int, other: int, hop: HopClass) -> int:
    """The chip of group `other` that the link of `chip` to that group ends at; -1 if another chip holds the link."""
    unit = chip // hop.index_chips
    return holder(other, unit, hop) if holder(unit, other, hop) == chip else -1


def hop_matrix(chips: int, hops: Sequence[HopClass]) -> npt.NDArray[np.int32]:
    """Index into `hops` of the link between two chips as int32[src, dst]; -1 where there is none."""
    ids = np.arange(chips)
    out = np.full((chips, chips), -1, dtype=np.int32)
    for k in reversed(range(len(hops))):
        if hops[k].ports:
            _dragonfly(out, hops[k], k)
            continue
        group, index = ids // hops[k].group_chips, ids % hops[k].index_chips
        out[np.equal.outer(group, group) & np.equal.outer(index, index)] = k
    np.fill_diagonal(out, -1)
    return out


def strides(hops: Sequence[HopClass]) -> tuple[int, ...]:
    """The place value above each digit of a chip number, ascending: 16, 256 for 16 trays of 16."""
    meshes = [hop for hop in hops if not hop.ports]
    lower = sorted({hop.index_chips for hop in meshes})
    return (*lower[1:], max(hop.group_chips for hop in meshes))


def _dragonfly(out: npt.NDArray[np.int32], hop: HopClass, k: int) -> None:
    """Enters the links between the groups of a dragonfly that the matrix covers."""
    chips, units = len(out), hop.group_chips // hop.index_chips
    for unit in range(min(units, -(-chips // hop.index_chips))):
        for other in range(units):
            if other != unit:
                src, dst = holder(unit, other, hop), holder(other, unit, hop)
                if src < chips and dst < chips:
                    out[src, dst] = k


def route(src: int, dst: int, chips: int, hops: Sequence[HopClass]) -> tuple[int, ...]:
    """Chips on the way from src to dst, both ends included, fewest hops, always the same way."""
    for hop in hops:
        a, b = src // hop.index_chips, dst // hop.index_chips
        if hop.ports and a != b:
            way = _correct(src, [holder(a, b, hop), holder(b, a, hop), dst])
            return way if len(way) < LONGEST else _over_a_third(src, dst, chips, hop) or way
    return route_digits(src, dst, chips, strides(hops))


def _over_a_third(src: int, dst: int, chips: int, hop: HopClass) -> tuple[int, ...]:
    """Two links of a dragonfly that lead from src to dst by way of a third group, the lowest there is; empty where none do."""
    unit, goal = src // hop.index_chips, dst // hop.index_chips
    for third in range(chips // hop.index_chips):
        if third not in {unit, goal}:
            chip = far_end(src, third, hop)
            if chip >= 0 and far_end(chip, goal, hop) == dst:
                return (src, chip, dst)
    return ()


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
        if hop.ports:
            _check_dragonfly(name, hop, group)
            group = hop.group_chips
            continue
        starts = hop.index_chips in (index, group) and hop.group_chips % hop.index_chips == 0
        if not starts or hop.group_chips <= group:
            raise InputError(
                f"expected groups that grow from hop to hop, each at an index of {index} or {group} chips, "
                f"found groups of {hop.group_chips} at an index of {hop.index_chips}",
                code="T374",
                where=f"system {name}, hop {hop.name}",
            )
        index, group = hop.index_chips, hop.group_chips
    if any(hop.ports for hop in hops[:-1]):
        raise InputError(
            "expected a class with `ports` as the last, found one before another",
            code="T374",
            where=f"system {name}",
        )
    if group != chips:
        raise InputError(
            f"expected the last hop to span all {chips} chips, found {group}",
            code="T374",
            where=f"system {name}",
        )


def _check_dragonfly(name: str, hop: HopClass, group: int) -> None:
    """Checks that groups of a full mesh are joined, each with each by exactly one link."""
    units = hop.group_chips // hop.index_chips
    whole = hop.group_chips % hop.index_chips == 0 and hop.index_chips == group
    if not whole or hop.index_chips * hop.ports != units - 1:
        raise InputError(
            f"expected {hop.index_chips * hop.ports + 1} groups of {group} chips, each joined to each by one link, found "
            f"{hop.group_chips} chips in groups of {hop.index_chips} with {hop.ports} links a chip",
            code="T374",
            where=f"system {name}, hop {hop.name}",
        )
