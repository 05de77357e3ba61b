"""Vector code that the intrinsics of this folder share: elements of arrays, one scalar in every lane, narrow types widened."""

from typing import Any

from llvmlite import ir
from numba.np.arrayobj import make_array

F32, I32 = ir.FloatType(), ir.IntType(32)
_TWO_120 = 1329227995784915872903807060280344576.0

Value = Any  # an llvmlite value; the library has no types


def data(context: Any, builder: Any, kind: Any, value: Value) -> Value:
    """Pointer to element 0 of an array of that numba type."""
    return make_array(kind)(context, builder, value).data


def splat(builder: Any, value: Value, count: int) -> Value:
    """Every lane the same scalar."""
    vector = ir.VectorType(value.type, count)
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(I32, 0))
    zeros = ir.Constant(ir.VectorType(I32, count), [0] * count)
    return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), zeros)


def every_lane(number: int, count: int) -> Value:
    """Every lane the same 32-bit integer."""
    return ir.Constant(ir.VectorType(I32, count), [number] * count)


def from_bf16(builder: Any, raw: Value, count: int) -> Value:
    """Bits of bf16 as float32."""
    bits = builder.shl(builder.zext(raw, ir.VectorType(I32, count)), every_lane(16, count))
    return builder.bitcast(bits, ir.VectorType(F32, count))


def from_e4m3(builder: Any, raw: Value, count: int) -> Value:
    """Bits of e4m3 as float32, as `bits.e4m3_to_f32` says.

    They are those of a float32 2^120 times too small, subnormal ones too; times 2^120 is exact.
    """
    real = ir.VectorType(F32, count)
    u = builder.zext(raw, ir.VectorType(I32, count))
    size = builder.shl(builder.and_(u, every_lane(0x7F, count)), every_lane(20, count))
    sign = builder.shl(builder.and_(u, every_lane(0x80, count)), every_lane(24, count))
    small = builder.bitcast(builder.or_(size, sign), real)
    return builder.fmul(small, ir.Constant(real, [_TWO_120] * count))
