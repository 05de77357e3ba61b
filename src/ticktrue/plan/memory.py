"""Devices with one large memory each (GPUs): how many hold a model, by capacity alone.

Knows no bandwidth, no software and no replica: that a runtime keeps part of the memory for itself is not counted.
"""

from dataclasses import dataclass

from ticktrue.hw import Fact
from ticktrue.plan.precision import Precision
from ticktrue.units import Bytes, ceil_div


@dataclass(frozen=True, slots=True)
class MemorySystem:
    """`devices` devices, each with a memory of `capacity` (a Fact, in bytes)."""

    name: str
    title: str
    devices: int
    capacity: Fact


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """A model in one format on such devices: `needed` of them, and whether the system has as many."""

    system: str
    title: str
    format: str
    capacity_bytes: Bytes
    needed_devices: int
    devices: int
    bytes_per_device: Bytes

    @property
    def fits(self) -> bool:
        """Whether one system holds it."""
        return self.needed_devices <= self.devices


def memory_rows(system: MemorySystem, found: tuple[Precision, ...]) -> tuple[MemoryRow, ...]:
    """One row for each format: the fewest devices whose memories together hold weights, cache and activations."""
    capacity = int(system.capacity.value)
    rows = []
    for p in found:
        needed = ceil_div(p.total_bytes, capacity)
        each = Bytes(ceil_div(p.total_bytes, needed))
        rows.append(
            MemoryRow(system.name, system.title, p.format, Bytes(capacity), needed, system.devices, each)
        )
    return tuple(rows)
