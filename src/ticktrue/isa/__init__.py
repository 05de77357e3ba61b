"""What the machine can say: units, ops and one op table (operands, kind, latency)."""

from ticktrue.isa.ops import OPS, Dtype, Kind, Op, OpInfo, RegFn, Unit, dtype_bytes
from ticktrue.isa.registers import GREEDY, Draw
from ticktrue.isa.table import OpTable

__all__ = [
    "GREEDY",
    "OPS",
    "Draw",
    "Dtype",
    "Kind",
    "Op",
    "OpInfo",
    "OpTable",
    "RegFn",
    "Unit",
    "dtype_bytes",
]
