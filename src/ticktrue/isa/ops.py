"""Units, data types and ops of the machine; what each op takes and which Fact gives its latency.

A beat is 320 lanes. Every op works on beats, lane by lane, unless its line says otherwise. The meaning of each op, with its
attributes, is in `docs/program.md`; this table holds what checkers need without knowing values.
"""

from dataclasses import dataclass
from enum import IntEnum

LANES = 320
VECTOR_BYTES = 320
BLOCK = 64
LANE_BLOCKS = 256
ROPE_ROWS = 512


class Unit(IntEnum):
    """Functional units; a port is (unit, index) on one chip."""

    MEM_WIDE = 0
    MEM_READ = 1
    MEM_WRITE = 2
    MXM_LOAD = 3
    MXM_PLANE = 4
    VXM = 5
    SXM = 6
    C2C_SEND = 7
    C2C_RECV = 8


class Dtype(IntEnum):
    """Element types in memory and on streams."""

    BF16 = 0
    F32 = 1
    INT8 = 2
    E4M3 = 3


def lanes_of(dtype: int) -> int:
    """Elements of one vector."""
    return VECTOR_BYTES // dtype_bytes(dtype)


def dtype_bytes(dtype: int) -> int:
    """Bytes of one element in SRAM and on links."""
    return (2, 4, 1, 1)[dtype]


class RegFn(IntEnum):
    """Declared functions of a runtime register that may enter an address."""

    NONE = 0
    TOKEN = 1
    P_DIV = 2
    P_MOD = 3
    KV = 4
    LAST = 5
    EXPERT = 6
    EXPERT_HOME = 7
    EXPERT_LOCAL = 8


EXPERT_FNS = (RegFn.EXPERT, RegFn.EXPERT_HOME, RegFn.EXPERT_LOCAL)
"""Functions of an expert register: the expert, the chip that holds it whole, its number among those of that chip."""


class Kind(IntEnum):
    """How an op's outputs progress against its inputs."""

    SOURCE = 0
    MAP = 1
    REDUCE = 2
    RESHAPE = 3
    SINK = 4
    INSTALL = 5
    PASS = 6


class Op(IntEnum):
    """Everything a row can do."""

    LOAD = 0
    GATHER = 1
    STORE = 2
    SCATTER = 3
    SEND = 4
    RECEIVE = 5
    INSTALL = 6
    PASS = 7
    CONVERT = 8
    ADD = 9
    MUL = 10
    SCALE = 11
    MEAN_RSQRT = 12
    CMUL = 13
    ROPE = 14
    EXP = 15
    MASK = 16
    MAX = 17
    FOLD = 18
    COMBINE = 19
    DIVIDE = 20
    SILU_MUL = 21
    MOVE = 22
    MERGE = 23
    TRANSPOSE = 24
    SPREAD = 25
    BROADCAST = 26
    INSERT = 27
    LANE_SUM = 28
    LANE_ARGMAX = 29
    PICK = 30
    NOISE = 31
    SOFTCAP = 32
    GELU_MUL = 33
    TILE_SCALE = 34
    QUANTISE = 35
    TOPK = 36
    LATCH = 37
    ACCEPT = 38


@dataclass(frozen=True, slots=True)
class OpInfo:
    """One line of the op table.

    `latency` names the chip Fact (cycles from an event's issue to its first output).
    `streams` is the number of stream operands; PASS has one more operand, its INSTALL.
    """

    op: Op
    units: tuple[Unit, ...]
    kind: Kind
    streams: int
    latency: str


_ROWS: tuple[tuple[Op, tuple[Unit, ...], Kind, int, str], ...] = (
    (Op.LOAD, (Unit.MEM_READ, Unit.MEM_WIDE), Kind.SOURCE, 0, "mem_read_cycles"),
    (Op.GATHER, (Unit.MEM_READ, Unit.MEM_WIDE), Kind.SOURCE, 0, "mem_read_cycles"),
    (Op.STORE, (Unit.MEM_WRITE,), Kind.SINK, 1, "mem_write_cycles"),
    (Op.SCATTER, (Unit.MEM_WRITE,), Kind.SINK, 1, "mem_write_cycles"),
    (Op.SEND, (Unit.C2C_SEND,), Kind.SINK, 1, ""),
    (Op.RECEIVE, (Unit.C2C_RECV,), Kind.MAP, 1, ""),
    (Op.INSTALL, (Unit.MXM_LOAD,), Kind.INSTALL, 1, "mxm_install_cycles"),
    (Op.PASS, (Unit.MXM_PLANE,), Kind.PASS, 1, "mxm_pass_cycles"),
    (Op.CONVERT, (Unit.VXM,), Kind.MAP, 1, "vxm_map_cycles"),
    (Op.ADD, (Unit.VXM,), Kind.MAP, 2, "vxm_map_cycles"),
    (Op.MUL, (Unit.VXM,), Kind.MAP, 2, "vxm_map_cycles"),
    (Op.SCALE, (Unit.VXM,), Kind.MAP, 1, "vxm_map_cycles"),
    (Op.MEAN_RSQRT, (Unit.VXM,), Kind.MAP, 1, "vxm_func_cycles"),
    (Op.CMUL, (Unit.VXM,), Kind.MAP, 2, "rope_cycles"),
    (Op.ROPE, (Unit.VXM,), Kind.MAP, 2, "rope_cycles"),
    (Op.EXP, (Unit.VXM,), Kind.MAP, 2, "vxm_func_cycles"),
    (Op.MASK, (Unit.VXM,), Kind.MAP, 1, "vxm_map_cycles"),
    (Op.MAX, (Unit.VXM,), Kind.REDUCE, 1, "vxm_reduce_cycles"),
    (Op.FOLD, (Unit.VXM,), Kind.REDUCE, 1, "vxm_reduce_cycles"),
    (Op.COMBINE, (Unit.VXM,), Kind.MAP, 2, "vxm_combine_cycles"),
    (Op.DIVIDE, (Unit.VXM,), Kind.MAP, 1, "vxm_func_cycles"),
    (Op.SILU_MUL, (Unit.VXM,), Kind.MAP, 2, "vxm_func_cycles"),
    (Op.MOVE, (Unit.SXM,), Kind.MAP, 1, "sxm_move_cycles"),
    (Op.MERGE, (Unit.SXM,), Kind.REDUCE, 1, "sxm_move_cycles"),
    (Op.TRANSPOSE, (Unit.SXM,), Kind.RESHAPE, 1, "sxm_transpose_cycles"),
    (Op.SPREAD, (Unit.SXM,), Kind.RESHAPE, 1, "sxm_spread_cycles"),
    (Op.BROADCAST, (Unit.SXM,), Kind.MAP, 1, "sxm_spread_cycles"),
    (Op.INSERT, (Unit.SXM,), Kind.MAP, 2, "sxm_move_cycles"),
    (Op.LANE_SUM, (Unit.SXM,), Kind.REDUCE, 1, "lane_reduce_cycles"),
    (Op.LANE_ARGMAX, (Unit.SXM,), Kind.REDUCE, 1, "lane_reduce_cycles"),
    (Op.PICK, (Unit.VXM,), Kind.REDUCE, 1, "vxm_reduce_cycles"),
    (Op.NOISE, (Unit.VXM,), Kind.MAP, 1, "vxm_noise_cycles"),
    (Op.SOFTCAP, (Unit.VXM,), Kind.MAP, 1, "vxm_func_cycles"),
    (Op.GELU_MUL, (Unit.VXM,), Kind.MAP, 2, "vxm_func_cycles"),
    (Op.TILE_SCALE, (Unit.SXM,), Kind.MAP, 1, "lane_reduce_cycles"),
    (Op.QUANTISE, (Unit.VXM,), Kind.MAP, 2, "vxm_func_cycles"),
    (Op.TOPK, (Unit.SXM,), Kind.REDUCE, 1, "topk_cycles"),
    (Op.LATCH, (Unit.SXM,), Kind.SINK, 1, "register_write_cycles"),
    (Op.ACCEPT, (Unit.VXM,), Kind.REDUCE, 1, "vxm_reduce_cycles"),
)

OPS: tuple[OpInfo, ...] = tuple(OpInfo(*row) for row in _ROWS)
