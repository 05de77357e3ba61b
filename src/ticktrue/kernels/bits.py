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

SIGNATURES: dict[str, tuple[str, ...]] = {
    "bf16_to_f32": ("float32(uint16)",),
    "f32_to_bf16_bits": ("uint16(float32)",),
    "round_to_bf16": ("float32(float32)",),
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
def absolute_f32(x):
    """`x` with its sign bit cleared."""
    return u32_as_f32(np.uint32(f32_as_u32(x) & _MAGNITUDE))


@njit(cache=True, error_model="numpy")
def copy_sign_f32(x, sign):
    """`x` with the sign bit of `sign`."""
    return u32_as_f32(np.uint32(np.uint32(f32_as_u32(x) & _MAGNITUDE) | np.uint32(f32_as_u32(sign) & _SIGN)))
