"""Weights in 8 bits, one scale per output: int8 and e4m3 (numerics row 2)."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from ticktrue.errors import InputError
from ticktrue.model.dequantize import float32_rows
from ticktrue.model.tensor_file import StoredTensor

QuantFormat = Literal["int8", "fp8"]

INT8_MAX = np.float32(127)
E4M3_MAX = np.float32(448)

_MAGNITUDE = np.uint32(0x7FFFFFFF)
_MANTISSA_SHIFT = np.uint32(20)  # float32 keeps 23 bits of mantissa, e4m3 3
_HALF = np.uint32((1 << 19) - 1)
_REBIAS = np.uint32((127 - 7) << 3)  # exponent biases of float32 and e4m3, above 3 bits of mantissa
_SMALLEST_NORMAL = np.float32(2.0**-6)
_SUBNORMAL_STEPS = np.float32(2.0**9)
_SIGN_SHIFT = np.uint32(24)
_SIGN = np.uint8(0x80)


@dataclass(frozen=True, slots=True)
class Quantised:
    """One matrix in 8 bits: `q` int8[out, in] or e4m3 bits uint8[out, in], `scale` float32[out]; read-only."""

    q: npt.NDArray[np.int8] | npt.NDArray[np.uint8]
    scale: npt.NDArray[np.float32]


def quantise(raw: npt.NDArray[np.uint8], tensor: StoredTensor, name: str, fmt: QuantFormat) -> Quantised:
    """A stored matrix in 8 bits, a few rows at a time.

    Raises:
        InputError: T346, for a value that is not finite, or a row too small to have a scale.
    """
    scale = np.empty(tensor.shape[0], dtype=np.float32)
    steps, bits = np.empty(0, dtype=np.int8), np.empty(0, dtype=np.uint8)
    if fmt == "int8":
        steps = np.empty(tensor.shape, dtype=np.int8)
    else:
        bits = np.empty(tensor.shape, dtype=np.uint8)
    for first, values in float32_rows(raw, tensor, name):
        rows = slice(first, first + len(values))
        scale[rows] = row_scales(values, INT8_MAX if fmt == "int8" else E4M3_MAX, name, first)
        if fmt == "int8":
            steps[rows] = int8_rows(values, scale[rows])
        else:
            bits[rows] = e4m3_rows(values, scale[rows])
    q: npt.NDArray[np.int8] | npt.NDArray[np.uint8] = steps if fmt == "int8" else bits
    q.flags.writeable = scale.flags.writeable = False
    return Quantised(q, scale)


def row_scales(
    values: npt.NDArray[np.float32], largest: np.float32, name: str = "", first: int = 0
) -> npt.NDArray[np.float32]:
    """float32[out]: `max |w| / largest` of each row of float32[out, in]; 1 where all are zero.

    Raises:
        InputError: T346, for a row so small that its scale rounds to zero.
    """
    peak = np.maximum(values.max(axis=1), -values.min(axis=1))
    scale: npt.NDArray[np.float32] = peak / largest
    lost = (scale == 0) & (peak > 0)
    if lost.any():
        row = int(np.argmax(lost))
        raise InputError(
            f"tensor {name!r}: row {first + row:,} has no value above {peak[row]!r}, too small for a scale in float32",
            code="T346",
            where=f"{name}[{first + row}]",
        )
    scale[scale == 0] = np.float32(1)
    return scale


def int8_rows(values: npt.NDArray[np.float32], scale: npt.NDArray[np.float32]) -> npt.NDArray[np.int8]:
    """int8[out, in]: `w / s` to the nearest integer, ties to even, clamped to +-127."""
    steps = values / scale[:, None]
    np.rint(steps, out=steps)
    np.clip(steps, -INT8_MAX, INT8_MAX, out=steps)
    return steps.astype(np.int8)


def e4m3_rows(values: npt.NDArray[np.float32], scale: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """uint8[out, in]: e4m3 bits of `w / s`."""
    return to_e4m3(values / scale[:, None])


def to_e4m3(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """uint8: e4m3 bits of finite float32 values, to nearest even, saturating at 448, subnormals and -0 kept."""
    bits = values.view(np.uint32)
    magnitude = np.minimum((bits & _MAGNITUDE).view(np.float32), E4M3_MAX)
    code = magnitude.view(np.uint32)
    code = ((code + (_HALF + ((code >> _MANTISSA_SHIFT) & np.uint32(1)))) >> _MANTISSA_SHIFT) - _REBIAS
    small = magnitude < _SMALLEST_NORMAL
    steps = np.rint(np.minimum(magnitude, _SMALLEST_NORMAL) * _SUBNORMAL_STEPS).astype(np.uint32)
    out = np.where(small, steps, code).astype(np.uint8)
    out |= (bits >> _SIGN_SHIFT).astype(np.uint8) & _SIGN
    return out


def from_e4m3(bits: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """The float32 values that finite e4m3 `bits` stand for, exact."""
    magnitude = (bits & np.uint8(0x7F)).astype(np.uint32)
    normal = ((magnitude + _REBIAS) << _MANTISSA_SHIFT).view(np.float32)
    subnormal = magnitude.astype(np.float32) / _SUBNORMAL_STEPS
    value = np.where(magnitude < np.uint32(8), subnormal, normal)
    sign = (bits & _SIGN).astype(np.uint32) << _SIGN_SHIFT
    return (value.view(np.uint32) | sign).view(np.float32)
