"""Links between chips: what one is, the classes they come in, and how many cycles a vector takes on one."""

from dataclasses import dataclass

from ticktrue.hw.chip import Chip
from ticktrue.units import Cycles, ceil_div

BITS_PER_BYTE = 8


@dataclass(frozen=True, slots=True)
class Link:
    """A set of lanes from one chip to another, one direction.

    Attributes:
        latency_cycles: greatest latency from SRAM to SRAM, L_max; it includes one slot.
        slot_cycles: cycles that one vector holds the link.
    """

    src: int
    dst: int
    hop_class: str
    lanes: int
    latency_cycles: Cycles
    slot_cycles: Cycles


@dataclass(frozen=True, slots=True)
class HopClass:
    """All links of one kind: which pairs of chips they join, and their equal lanes and times.

    Two chips are joined if chip // group_chips is equal for both and chip % index_chips is equal for both,
    and no earlier class of the system joins them.

    A class with `ports` joins groups of index_chips chips instead, as a dragonfly does: each chip has that many links to other
    groups, and every two groups are joined by exactly one (see `topology.far_end`).
    """

    name: str
    group_chips: int
    index_chips: int
    lanes: int
    latency_cycles: Cycles
    slot_cycles: Cycles
    ports: int = 0


def slot_cycles(chip: Chip, lanes: int) -> Cycles:
    """Whole cycles that one vector holds a link of `lanes` lanes.

    ⌈frame_bytes · 8 · clock / (lanes · bits per second)⌉, exact in integers.

    Source: 328 bytes on the wire per 320-byte vector, ISCA 2022.
    """
    bits = chip.value("c2c_frame_bytes") * BITS_PER_BYTE
    return Cycles(ceil_div(bits * chip.value("clock_hz"), lanes * chip.value("c2c_lane_bits_per_second")))
