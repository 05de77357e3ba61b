"""The op table of one chip: latencies and port capacities as plain integers, read once from its Facts."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ticktrue.hw import Chip
from ticktrue.isa.ops import OPS, Op, Unit


@dataclass(frozen=True, slots=True)
class OpTable:
    """Integers that every stage needs of a chip.

    `latency` is int64[ops]: cycles from issue of an event to its output (SEND and RECEIVE: 0, the link's latency is a
    property of the topology). `port_vectors` is int64[units]: vectors one event can move per cycle on a port of that unit
    (0: not a memory port). `ports` is int64[units]: ports per chip (per bank group for memory units).
    """

    latency: npt.NDArray[np.int64]
    ports: npt.NDArray[np.int64]
    port_vectors: npt.NDArray[np.int64]
    weight_load_bytes: int
    byte_planes: int
    mem_groups: int
    streams: int
    guard: int
    group_vectors: int

    @staticmethod
    def of(chip: Chip) -> "OpTable":
        """The op table of `chip`."""
        latency = np.array([chip.value(i.latency) if i.latency else 0 for i in OPS], dtype=np.int64)
        extra = chip.value("gather_extra_cycles")
        latency[Op.GATHER] += extra
        ports = np.zeros(len(Unit), dtype=np.int64)
        vectors = np.zeros(len(Unit), dtype=np.int64)
        groups = chip.value("mem_groups")
        ports[Unit.MEM_WIDE] = 1
        ports[Unit.MEM_READ] = chip.value("mem_narrow_read_ports")
        ports[Unit.MEM_WRITE] = chip.value("mem_write_ports")
        ports[Unit.MXM_LOAD] = 1
        ports[Unit.MXM_PLANE] = chip.value("mxm_byte_planes")
        ports[Unit.VXM] = chip.value("vxm_ports")
        ports[Unit.SXM] = chip.value("sxm_ports")
        vectors[Unit.MEM_WIDE] = chip.value("mem_wide_read_vectors")
        vectors[Unit.MEM_READ] = vectors[Unit.MEM_WRITE] = chip.value("mem_narrow_vectors")
        return OpTable(
            latency=latency,
            ports=ports,
            port_vectors=vectors,
            weight_load_bytes=chip.value("mxm_weight_load_bytes_per_cycle"),
            byte_planes=chip.value("mxm_byte_planes"),
            mem_groups=groups,
            streams=chip.value("streams"),
            guard=chip.value("c2c_guard_cycles"),
            group_vectors=chip.value("sram_bytes") // chip.value("vector_bytes") // groups,
        )
