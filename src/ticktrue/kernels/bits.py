"""Reinterprets and rounds number formats by their bits: float32, bf16.

Scalar numba functions that LLVM inlines and vectorises. The rules stand in
`docs/numerics.md`, section "Number formats".
"""

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

_SIGN = np.uint32(0x8000_0000)
_MAGNITUDE = np.uint32(0x7FFF_FFFF)
_INFINITY = np.uint32(0x7F80_0000)
_QUIET_BF16 = np.uint32(0x0040)
_BELOW_HALF = np.uint32(0x7FFF)
_ONE = np.uint32(1)
_SIXTEEN = np.uint32(16)
_TWENTY, _TWENTY_FOUR = np.uint32(20), np.uint32(24)
_BELOW_HALF_E4M3 = np.uint32(0x7FFFF)
_REBIAS = np.uint32((127 - 7) << 3)
_LOW_SEVEN, _SIGN_BYTE, _EIGHT = np.uint32(0x7F), np.uint32(0x80), np.uint32(8)
_MOST = np.float32(448)
_SMALLEST = np.float32(0.015625)  # 2^-6, the smallest normal e4m3
_STEPS, _STEP = np.float32(512), np.float32(0.001953125)  # subnormals are multiples of 2^-9
_MAGIC = np.float32(12582912)  # 1.5 * 2^23: adding it leaves no fraction bits

SIGNATURES: dict[str, tuple[str, ...]] = {
    "bf16_to_f32": ("float32(uint16)",),
    "f32_to_bf16_bits": ("uint16(float32)",),
    "round_to_bf16": ("float32(float32)",),
    "round_to_integer": ("float32(float32)",),
    "e4m3_to_f32": ("float32(uint8)",),
    "f32_to_e4m3_bits": ("uint8(float32)",),
    "absolute_f32": ("float32(float32)",),
    "copy_sign_f32": ("float32(float32, float32)",),
}
"""What each kernel is compiled for when the IR test reads its code (see `tests/unit/kernels/ir_check.py`)."""


@intrinsic
def f32_as_u32(_typing_context, value):
    """The bits of a float32, as a uint32."""
    if value != types.float32:
        return None  # a float64 argument must not be narrowed without a word

    def generate(_context, builder, _signature, arguments):
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.uint32(types.float32), generate


@intrinsic
def u32_as_f32(_typing_context, value):
    """The float32 that has the given uint32 as its bits."""
    if value != types.uint32:
        return None

    def generate(_context, builder, _signature, arguments):
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.uint32), generate


@njit(cache=True, error_model="numpy")
def bf16_to_f32(b):
    """The float32 equal to the bf16 whose bits are the uint16 `b` (exact)."""
    return u32_as_f32(np.uint32(np.uint32(b) << _SIXTEEN))


@njit(cache=True, error_model="numpy")
def f32_to_bf16_bits(x):
    """The bits (uint16) of the bf16 nearest to `x`, ties to even; overflow gives infinity, NaN stays NaN."""
    u = f32_as_u32(x)
    rounded = np.uint32(np.uint32(u + _BELOW_HALF) + np.uint32(np.uint32(u >> _SIXTEEN) & _ONE)) >> _SIXTEEN
    quiet = np.uint32(u >> _SIXTEEN) | _QUIET_BF16
    nan = np.uint32(u & _MAGNITUDE) > _INFINITY
    return np.uint16(quiet if nan else rounded)


@njit(cache=True, error_model="numpy")
def round_to_bf16(x):
    """`x` rounded to bf16 (nearest, ties to even) and widened back to float32."""
    return bf16_to_f32(f32_to_bf16_bits(x))


@njit(cache=True, error_model="numpy")
def round_to_integer(x):
    """`x`, below 2^22 in magnitude, rounded to the nearest integer, ties to even."""
    return (x + _MAGIC) - _MAGIC


@njit(cache=True, error_model="numpy")
def e4m3_to_f32(b):
    """The float32 equal to the finite e4m3 whose bits are the uint8 `b` (exact)."""
    u = np.uint32(b)
    low = np.uint32(u & _LOW_SEVEN)
    normal = np.uint32(np.uint32(low + _REBIAS) << _TWENTY)
    small = f32_as_u32(np.float32(np.int32(low)) * _STEP)
    magnitude = small if low < _EIGHT else normal
    return u32_as_f32(np.uint32(magnitude | np.uint32(np.uint32(u & _SIGN_BYTE) << _TWENTY_FOUR)))


@njit(cache=True, error_model="numpy")
def f32_to_e4m3_bits(x):
    """The bits (uint8) of the e4m3 nearest to a finite `x`, ties to even; beyond 448 it is 448 with the sign of `x`."""
    u = f32_as_u32(x)
    m = u32_as_f32(np.uint32(u & _MAGNITUDE))
    m = _MOST if m > _MOST else m
    v = f32_as_u32(m)
    even = np.uint32(np.uint32(v >> _TWENTY) & _ONE)
    normal = np.uint32(np.uint32(np.uint32(v + _BELOW_HALF_E4M3) + even) >> _TWENTY) - _REBIAS
    least = m if m < _SMALLEST else _SMALLEST
    small = np.uint32(np.int32(round_to_integer(least * _STEPS)))
    code = small if m < _SMALLEST else np.uint32(normal)
    return np.uint8(np.uint32(code | np.uint32(np.uint32(u >> _TWENTY_FOUR) & _SIGN_BYTE)))


@njit(cache=True, error_model="numpy")
def absolute_f32(x):
    """`x` with its sign bit cleared."""
    return u32_as_f32(np.uint32(f32_as_u32(x) & _MAGNITUDE))


@njit(cache=True, error_model="numpy")
def copy_sign_f32(x, sign):
    """`x` with the sign bit of `sign`."""
    return u32_as_f32(np.uint32(np.uint32(f32_as_u32(x) & _MAGNITUDE) | np.uint32(f32_as_u32(sign) & _SIGN)))
