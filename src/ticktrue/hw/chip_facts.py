"""The facts that every chip must carry, with unit and bounds: the vocabulary that the other stages read."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class FactSpec:
    """What a fact of this name must look like: its unit, its least and greatest legal value, its meaning."""

    name: str
    unit: str
    least: int
    meaning: str
    greatest: int | None = None


CHIP_FACTS: tuple[FactSpec, ...] = (
    FactSpec("vector_bytes", "bytes", 4, "size of a vector, the unit that memory, streams and links move"),
    FactSpec("clock_hz", "hertz", 1, "the one clock of all units"),
    FactSpec("sram_bytes", "bytes", 1, "SRAM per chip"),
    FactSpec("mem_groups", "groups", 1, "bank groups; each has its own ports and an equal share of SRAM"),
    FactSpec("mem_wide_read_vectors", "vectors/cycle", 1, "moved by the one wide read port of a group"),
    FactSpec("mem_narrow_read_ports", "ports/group", 1, "narrow read ports of a group"),
    FactSpec("mem_write_ports", "ports/group", 1, "write ports of a group, as wide as a narrow read port"),
    FactSpec("mem_narrow_vectors", "vectors/cycle", 1, "moved by one narrow port"),
    FactSpec("mem_read_cycles", "cycles", 1, "from the issue of a read to the vector on its stream"),
    FactSpec("mem_write_cycles", "cycles", 1, "from the arrival of a vector to its being readable"),
    FactSpec("gather_extra_cycles", "cycles", 0, "added to a read or write at a register's address"),
    FactSpec("mxm_byte_planes", "planes", 1, "planes of 8-bit weights; a 16-bit plane takes two of them"),
    FactSpec("mxm_rows_8bit", "rows", 1, "depth of a plane at 8 bits; half of it at 16 bits"),
    FactSpec("mxm_cols", "columns", 1, "outputs of a plane"),
    FactSpec("mxm_weight_load_bytes_per_cycle", "bytes/cycle", 1, "weights that all planes take together"),
    FactSpec("mxm_double_buffer", "flag", 0, "1: a plane may be installed while it is still in use", 1),
    FactSpec("mxm_install_cycles", "cycles", 0, "from the last weight byte in to the first legal pass"),
    FactSpec("mxm_pass_cycles", "cycles", 1, "from an activation vector in to its outputs"),
    FactSpec("vxm_ports", "ports", 1, "VXM operations that run side by side"),
    FactSpec("vxm_map_cycles", "cycles", 1, "add, multiply, compare, convert"),
    FactSpec("vxm_func_cycles", "cycles", 1, "exp, divide, rsqrt, sigmoid"),
    FactSpec("vxm_noise_cycles", "cycles", 1, "divide, then add noise: Philox4x32-10 and two logarithms"),
    FactSpec("vxm_reduce_cycles", "cycles", 1, "from the last operand of a fold to its result"),
    FactSpec("vxm_combine_cycles", "cycles", 1, "merge of two partial softmax results (m, l, o)"),
    FactSpec("sxm_ports", "ports", 1, "SXM operations that run side by side"),
    FactSpec("sxm_move_cycles", "cycles", 1, "rotate, merge"),
    FactSpec("sxm_transpose_cycles", "cycles", 1, "from the last vector in to the first one out"),
    FactSpec("sxm_spread_cycles", "cycles", 1, "from a vector in to the first of its copies"),
    FactSpec("lane_reduce_cycles", "cycles", 1, "the tree over the lanes, from the last fold to lane 0"),
    FactSpec(
        "topk_cycles", "cycles", 1, "the k largest of the lanes and their softmax, from the last beat on"
    ),
    FactSpec(
        "register_write_cycles", "cycles", 1, "from lanes to the instruction queue: a register that addresses"
    ),
    FactSpec("rope_cycles", "cycles", 1, "complex multiply of rotary embedding"),
    FactSpec("streams", "streams", 1, "vectors in flight between the units of a chip at one time"),
    FactSpec("code_bytes_per_row", "bytes/row", 0, "SRAM that a row of the timetable takes"),
    FactSpec("step_gap_cycles", "cycles", 0, "between the end of a step and the start of the next"),
    FactSpec("c2c_lanes", "lanes", 0, "serial lanes to other chips, all neighbours together"),
    FactSpec("c2c_lane_bits_per_second", "bit/s", 1, "raw rate of a lane, one direction"),
    FactSpec("c2c_frame_bytes", "bytes", 1, "bytes on the wire for one vector"),
    FactSpec("c2c_guard_cycles", "cycles", 0, "added to a link's latency before the receive is issued"),
    FactSpec("c2c_jitter_cycles", "cycles", 0, "greatest less least latency of a link, L_max - L_min"),
    FactSpec("c2c_fifo_vectors", "vectors", 1, "depth of the receive FIFO of a link"),
    FactSpec("skew0_cycles", "cycles", 0, "skew of two chips' clocks just after an alignment"),
    FactSpec("drift_ppm", "ppm", 0, "greatest error of a chip's clock"),
    FactSpec("epoch_cycles", "cycles", 1, "longest span without an alignment (DESKEW)"),
    FactSpec("deskew_hold_cycles", "cycles", 0, "for which an alignment holds every instruction queue"),
    FactSpec("host_round_trip_ns", "ns", 0, "chip to host and back, where the host samples the token"),
)
"""In the order in which the catalog lists them."""

SPEC_OF: Mapping[str, FactSpec] = MappingProxyType({spec.name: spec for spec in CHIP_FACTS})
