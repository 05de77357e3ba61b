"""float32 to bfloat16 and back, in integer arithmetic: nearest even, no NaN, no infinity (numerics row 2)."""

import numpy as np
import numpy.typing as npt

from ticktrue.errors import InputError

# Magnitudes from here on round to infinity, or are infinity or NaN already.
_FIRST_NON_FINITE = np.uint32(0x7F7F8000)
_MAGNITUDE = np.uint32(0x7FFFFFFF)
_BF16_MAGNITUDE = np.uint16(0x7FFF)
_BF16_INFINITY = np.uint16(0x7F80)
_HALF = np.uint32(0x7FFF)
_ONE = np.uint32(1)
_SHIFT = np.uint32(16)


def to_bf16(values: npt.NDArray[np.float32], name: str, first: int = 0) -> npt.NDArray[np.uint16]:
    """Bits of `values` as bfloat16, rounded to nearest even, subnormals kept.

    Args:
        values: float32 of any shape.
        name: the tensor, for the error.
        first: flat index of values[0] in that tensor, for the error.

    Raises:
        InputError: T346, naming tensor and index, for a NaN, an infinity, or a value that rounds to one.
    """
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    if bits.size and np.max(bits & _MAGNITUDE) >= _FIRST_NON_FINITE:
        bad = int(np.argmax((bits & _MAGNITUDE).reshape(-1) >= _FIRST_NON_FINITE))
        raise _non_finite(name, first + bad, float(np.asarray(values).reshape(-1)[bad]))
    return ((bits + (_HALF + ((bits >> _SHIFT) & _ONE))) >> _SHIFT).astype(np.uint16)


def check_bf16(bits: npt.NDArray[np.uint16], name: str) -> None:
    """Refuse bfloat16 bits that hold a NaN or an infinity.

    Raises:
        InputError: T346, naming tensor and index.
    """
    bad = (bits & _BF16_MAGNITUDE).reshape(-1) >= _BF16_INFINITY
    if bad.any():
        index = int(np.argmax(bad))
        raise _non_finite(name, index, float(from_bf16(bits.reshape(-1)[index : index + 1])[0]))


def check_float32(values: npt.NDArray[np.float32], name: str, first: int = 0) -> None:
    """Refuse float32 values that hold a NaN or an infinity; `first` is the flat index of values[0] in the tensor.

    Raises:
        InputError: T346, naming tensor and index.
    """
    bad = ~np.isfinite(values.reshape(-1))
    if bad.any():
        index = int(np.argmax(bad))
        raise _non_finite(name, first + index, float(values.reshape(-1)[index]))


def from_bf16(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """The float32 values that bfloat16 `bits` stand for, exact."""
    return (bits.astype(np.uint32) << _SHIFT).view(np.float32)


def _non_finite(name: str, index: int, value: float) -> InputError:
    return InputError(
        f"tensor {name!r} holds {value!r} at flat index {index:,}; every weight must be finite in bfloat16",
        code="T346",
        where=f"{name}[{index}]",
    )
