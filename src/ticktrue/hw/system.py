"""A system: one kind of chip, how many, and which of them are joined by what links."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from ticktrue.errors import DoesNotFit, InputError, UsageError
from ticktrue.hw.chip import Chip
from ticktrue.hw.fact import Fact, integer_value, nearest
from ticktrue.hw.link import HopClass, Link, slot_cycles
from ticktrue.hw.topology import check_nest, hop_matrix, hop_of, route, strides
from ticktrue.units import Clock, Cycles


@dataclass(frozen=True, slots=True)
class HopRule:
    """A class of links, each of its numbers given as the name of a fact of the layout.

    `index` is empty where chips of any index are joined; `ports` where the class is a mesh and no dragonfly.
    """

    name: str
    group: str
    index: str
    lanes: str
    latency: str
    ports: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Layout:
    """The numbers of a system beside those of its chip: the chip count, and lanes and latency of each hop.

    Attributes:
        rules: the classes of links, nearest first.
        reserved: names of facts that count lanes used for something else than links between these chips.
        reference: names of facts that no link takes: figures of a source that others follow from, or that follow from others.
    """

    facts: tuple[Fact, ...]
    rules: tuple[HopRule, ...]
    reserved: tuple[str, ...]
    reference: tuple[str, ...] = ()

    def value(self, name: str) -> int:
        """The value of the layout's fact of that name.

        Raises:
            InputError: there is none.
        """
        for fact in self.facts:
            if fact.name == name:
                return integer_value(fact)
        raise InputError(
            f"expected a fact of the layout, found {name!r}",
            code="T372",
            hint=nearest(name, (fact.name for fact in self.facts)),
        )


@dataclass(frozen=True, slots=True)
class System:
    """Chips and the links between them; chips are numbered from 0, tray by tray.

    `chips` may be fewer than the layout has: see `subset`.

    Raises:
        InputError: the layout contradicts itself or needs more lanes than the chip has.
    """

    name: str
    title: str
    chip: Chip
    chips: int
    layout: Layout
    hops: tuple[HopClass, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "hops", tuple(_hop_class(self.chip, self.layout, r) for r in self.layout.rules)
        )
        check_nest(self.name, self.full_chips, self.hops)
        self._check_times_and_lanes()

    @property
    def full_chips(self) -> int:
        """Chips of the whole system, where this is a subset of it."""
        return self.layout.value("chips")

    @property
    def clock(self) -> Clock:
        """The clock of every chip."""
        return self.chip.clock

    @property
    def hop_classes(self) -> tuple[str, ...]:
        """Names of the classes of links, nearest first."""
        return tuple(hop.name for hop in self.hops)

    @property
    def tray_chips(self) -> int:
        """Chips of one tray, joined each with each and, tray by tray, by their index; 0 where all chips are joined directly."""
        places = strides(self.hops)
        return places[0] if len(places) > 1 else 0

    @property
    def gather_chips(self) -> int:
        """Chips, from the first, that an all-gather reaches inside trays and along equal indices: in at most two hops."""
        places = strides(self.hops)
        return places[min(1, len(places) - 1)]

    def link(self, src: int, dst: int) -> Link | None:
        """The direct link from one chip to another, or None where there is none."""
        if not (0 <= src < self.chips and 0 <= dst < self.chips):
            return None
        hop = hop_of(src, dst, self.hops)
        if hop is None:
            return None
        return Link(src, dst, hop.name, hop.lanes, hop.latency_cycles, hop.slot_cycles)

    def hop_matrix(self) -> npt.NDArray[np.int32]:
        """Index into `hop_classes` of each direct link as int32[src, dst]; -1 where there is none."""
        return _frozen(hop_matrix(self.chips, self.hops))

    def latency_matrix(self) -> npt.NDArray[np.int32]:
        """Greatest cycles from SRAM to SRAM, one slot included, as int32[src, dst]; -1 without a link."""
        return self._per_link([hop.latency_cycles for hop in self.hops])

    def slot_matrix(self) -> npt.NDArray[np.int32]:
        """Cycles that one vector holds each direct link, as int32[src, dst]; -1 where there is none."""
        return self._per_link([hop.slot_cycles for hop in self.hops])

    def lanes_matrix(self) -> npt.NDArray[np.int32]:
        """Lanes of each direct link, as int32[src, dst]; -1 where there is none."""
        return self._per_link([hop.lanes for hop in self.hops])

    def route(self, src: int, dst: int) -> tuple[int, ...]:
        """The chips on the way from src to dst, both included: fewest hops, always the same way.

        Raises:
            InputError: a chip number is not of this system.
        """
        for chip in (src, dst):
            if not 0 <= chip < self.chips:
                raise InputError(
                    f"expected a chip number below {self.chips}, found {chip}",
                    code="T375",
                    where=f"system {self.name}",
                )
        return route(src, dst, self.chips, self.hops)

    def facts(self) -> tuple[tuple[str, Fact], ...]:
        """Every number of the system with its owner: the chip's name, or the system's."""
        of_chip = tuple((self.chip.name, fact) for fact in self.chip.facts)
        return of_chip + tuple((self.name, fact) for fact in self.layout.facts)

    def fact_digest(self) -> str:
        """Sha256 in hex of everything that can change a result: values, formats, links, chips used.

        Names, titles, sources and ranges do not count.
        """
        lines = [f"chip.{fact.name}={fact.value!r} {fact.unit}" for fact in self.chip.facts]
        told = [fact for fact in self.layout.facts if fact.name not in self.layout.reference]
        lines += [f"layout.{fact.name}={fact.value!r} {fact.unit}" for fact in told]
        lines += [
            f"format.{item.format}={'absent' if item.absent else item.grade}"
            for item in self.chip.mxm_formats
        ]
        lines += [f"hop.{k}={rule!r}" for k, rule in enumerate(self.layout.rules)]
        lines += [f"ports.{k}={rule.ports}" for k, rule in enumerate(self.layout.rules) if rule.ports]
        lines += [f"reserved={name}" for name in self.layout.reserved]
        lines += [f"chips={self.chips}"]
        return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()

    def subset(self, chips: int) -> "System":
        """The first `chips` chips of this system, with the links between them.

        Raises:
            UsageError: fewer than one chip, or a part of a group of a dragonfly beside whole ones: its links to the others lack.
            DoesNotFit: more chips than there are.
        """
        if chips < 1:
            raise UsageError(
                f"expected at least 1 chip, found {chips}", code="T111", where=f"system {self.name}"
            )
        if chips > self.chips:
            raise DoesNotFit(
                f"expected at most {self.chips} chips, found {chips}",
                where=f"system {self.name}",
                hint="choose a larger system: `ticktrue hw list`",
            )
        for hop in self.hops:
            if hop.ports and chips > hop.index_chips and chips % hop.index_chips:
                raise UsageError(
                    f"expected up to {hop.index_chips} chips or a multiple of that, found {chips}",
                    code="T111",
                    where=f"system {self.name}",
                    hint=f"the {hop.name} links of a group of {hop.index_chips} chips start from all of them",
                )
        return replace(self, chips=chips)

    def with_fact(self, name: str, value: int) -> "System":
        """This system with one value replaced, be it a fact of the chip or of the layout.

        Raises:
            InputError: neither has a fact of that name, or the value contradicts the others.
        """
        if name not in {fact.name for fact in self.layout.facts}:
            _known(self, name)
            return replace(self, chip=self.chip.with_fact(name, value))
        facts = tuple(fact.replaced(value) if fact.name == name else fact for fact in self.layout.facts)
        chips = value if name == "chips" else self.chips
        return replace(self, layout=replace(self.layout, facts=facts), chips=chips)

    def _per_link(self, values: Sequence[int]) -> npt.NDArray[np.int32]:
        """One value per hop class, spread over the pairs of chips; -1 where there is no link."""
        table = np.array([*values, -1], dtype=np.int32)
        return _frozen(table[hop_matrix(self.chips, self.hops)])

    def _check_times_and_lanes(self) -> None:
        """Checks that no latency is shorter than its slot and that the chip has lanes for all its links."""
        where = f"system {self.name}"
        for hop in self.hops:
            if hop.latency_cycles < hop.slot_cycles:
                raise InputError(
                    f"expected a latency of at least one slot, {hop.slot_cycles} cycles, "
                    f"found {hop.latency_cycles}",
                    code="T374",
                    where=f"{where}, hop {hop.name}",
                )
        used = self.lanes_used()
        if used > self.chip.value("c2c_lanes"):
            raise InputError(
                f"expected at most {self.chip.value('c2c_lanes')} lanes per chip, found {used}",
                code="T374",
                where=where,
            )

    def lanes_used(self) -> int:
        """Lanes that one chip of the whole system uses, those reserved for other purposes included."""
        lanes, joined = sum(self.layout.value(name) for name in self.layout.reserved), 1
        index = 1
        for hop in self.hops:
            if hop.ports:
                lanes += hop.ports * hop.lanes
                continue
            if hop.index_chips != index:
                index, joined = hop.index_chips, 1
            peers = hop.group_chips // hop.index_chips
            lanes += (peers - joined) * hop.lanes
            joined = peers
        return lanes


def _hop_class(chip: Chip, layout: Layout, rule: HopRule) -> HopClass:
    """The rule with the layout's facts put in, times in cycles of the chip's clock."""
    lanes = layout.value(rule.lanes)
    if lanes < 1:
        raise InputError(f"expected at least 1 lane, found {lanes}", code="T374", where=f"hop {rule.name}")
    return HopClass(
        name=rule.name,
        group_chips=layout.value(rule.group),
        index_chips=layout.value(rule.index) if rule.index else 1,
        lanes=lanes,
        latency_cycles=Cycles(chip.clock.cycles_ceil(layout.value(rule.latency))),
        slot_cycles=slot_cycles(chip, lanes),
        ports=layout.value(rule.ports) if rule.ports else 0,
    )


def _known(system: System, name: str) -> None:
    """Checks that the system has a fact of that name; the hint of the error covers chip and layout."""
    names = {fact.name for _, fact in system.facts()}
    if name not in names:
        raise InputError(
            f"expected a fact of system {system.name} or its chip, found {name!r}",
            code="T372",
            hint=nearest(name, names),
        )


def _frozen(array: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """The array, made read-only."""
    array.flags.writeable = False
    return array
