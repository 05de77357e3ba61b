"""RoPE tables (row 12 of `docs/numerics.md`): cosines and sines of position times frequency.

Made once per model, in float64, with multiplications, additions and subtractions only: numpy rounds each of
them once on every machine, and no mathematical library is asked. One rounding to float32 ends it.
"""

from decimal import Decimal, localcontext
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ticktrue.errors import InputError
from ticktrue.units import ceil_div

ROPE_ROWS = 512
"""Rows of each table: position p takes A[p div 512] and B[p mod 512]."""

LARGEST_ANGLE = float(1 << 20)
"""Up to here k * _HALF_PI_1 and k * _HALF_PI_2 are exact (k has 20 bits, they have at most 33)."""

_DIGITS = 60

_TWO_OVER_PI = float.fromhex("0x1.45f306dc9c883p-1")
_ROUND_TO_INTEGER = float.fromhex("0x1.8p+52")
# pi/2 cut at 2^-32 and at 2^-65; the third part is what remains, rounded
_HALF_PI_1 = float.fromhex("0x1.921fb544p+0")
_HALF_PI_2 = float.fromhex("0x1.0b4611a6p-34")
_HALF_PI_3 = float.fromhex("0x1.3198a2e037073p-69")
# Taylor coefficients (-1)^k / n!, each rounded once; on |r| <= pi/4 the first one left out is below 2^-64
_SIN_DESCENDING = tuple(
    float.fromhex(text)
    for text in (
        "0x1.952c77030ad4ap-49",  # 1/17!
        "-0x1.ae7f3e733b81fp-41",
        "0x1.6124613a86d09p-33",
        "-0x1.ae64567f544e4p-26",
        "0x1.71de3a556c734p-19",
        "-0x1.a01a01a01a01ap-13",
        "0x1.1111111111111p-7",
        "-0x1.5555555555555p-3",  # -1/3!
    )
)
_COS_DESCENDING = tuple(
    float.fromhex(text)
    for text in (
        "0x1.ae7f3e733b81fp-45",  # 1/16!
        "-0x1.93974a8c07c9dp-37",
        "0x1.1eed8eff8d898p-29",
        "-0x1.27e4fb7789f5cp-22",
        "0x1.a01a01a01a01ap-16",
        "-0x1.6c16c16c16c17p-10",
        "0x1.5555555555555p-5",  # 1/4!
    )
)

Float64s = npt.NDArray[np.float64]
Float32s = npt.NDArray[np.float32]


class CosSin(NamedTuple):
    """Cosine and sine of the same angles."""

    cos: Float64s
    sin: Float64s


class RopeTables(NamedTuple):
    """Tables of [cos, sin], float32[rows, 2, d/2]: `coarse` by p div 512, `fine` by p mod 512."""

    coarse: Float32s
    fine: Float32s


def cos_sin(angle: Float64s) -> CosSin:
    """Cosine and sine of `angle`, for 0 <= angle <= 2^20, with a relative error of a few 2^-53."""
    k = (angle * _TWO_OVER_PI + _ROUND_TO_INTEGER) - _ROUND_TO_INTEGER
    r = ((angle - k * _HALF_PI_1) - k * _HALF_PI_2) - k * _HALF_PI_3
    z = r * r
    sine = r + (r * z) * _horner(_SIN_DESCENDING, z)
    cosine = (1.0 - 0.5 * z) + (z * z) * _horner(_COS_DESCENDING, z)
    quadrant = k.astype(np.int64) & 3
    odd = (quadrant & 1) == 1
    cos = np.where(odd, sine, cosine)
    sin = np.where(odd, cosine, sine)
    cos = np.where((quadrant == 1) | (quadrant == 2), -cos, cos)
    sin = np.where(quadrant >= 2, -sin, sin)
    return CosSin(cos, sin)


def rope_inv_freq(theta: float, dim: int) -> Float64s:
    """theta^(-2i/dim) for i < dim/2, each computed to 60 digits and rounded once to float64.

    Args:
        theta: the base of the model's configuration, taken as the decimal number that Python prints.
        dim: the number of elements that rotate, even.

    Raises:
        InputError: theta is not a finite number above 1, or dim is not even and positive.
    """
    if not (np.isfinite(theta) and theta > 1.0) or dim <= 0 or dim % 2:
        raise InputError(
            f"expected a RoPE base above 1 and an even number of elements, found {theta!r} and {dim}",
            where="rope_inv_freq",
        )
    with localcontext() as context:
        context.prec = _DIGITS
        log_base = Decimal(repr(float(theta))).ln()
        return np.array([float((log_base * -2 * i / dim).exp()) for i in range(dim // 2)], dtype=np.float64)


def rope_tables(inv_freq: Float64s, max_positions: int, *, factor: float = 1.0) -> RopeTables:
    """Tables of the angles 512 j * inv_freq (coarse) and j * inv_freq (fine), float32, read-only.

    Args:
        inv_freq: float64[d/2], radians per position.
        max_positions: positions 0 .. max_positions - 1 must be served.
        factor: YaRN's attention factor; it multiplies the coarse table.

    Raises:
        InputError: an empty or non-finite frequency list, no positions, or an angle above 2^20.
    """
    frequencies = np.asarray(inv_freq, dtype=np.float64)
    usable = np.isfinite(frequencies) & (frequencies >= 0)
    if frequencies.ndim != 1 or not frequencies.size or not np.all(usable):
        raise InputError("expected finite frequencies of at least 0, in one dimension", where="rope_tables")
    if max_positions < 1:
        raise InputError(f"expected at least one position, found {max_positions}", where="rope_tables")
    rows = ceil_div(max_positions, ROPE_ROWS)
    largest = float(np.max(frequencies)) * max(ROPE_ROWS * (rows - 1), ROPE_ROWS - 1)
    if largest > LARGEST_ANGLE:
        raise InputError(
            f"expected RoPE angles of at most {LARGEST_ANGLE:.0f} radians, found {largest:.0f}",
            where="rope_tables",
            hint="lower the context length, or check the frequencies for a wrong scaling factor",
        )
    return RopeTables(
        coarse=_table(np.arange(rows, dtype=np.float64) * float(ROPE_ROWS), frequencies, factor),
        fine=_table(np.arange(ROPE_ROWS, dtype=np.float64), frequencies, 1.0),
    )


def _table(positions: Float64s, frequencies: Float64s, factor: float) -> Float32s:
    """float32[positions, 2, frequencies]: cosine and sine of each product, times `factor`, rounded once."""
    values = cos_sin(positions[:, None] * frequencies[None, :])
    table = np.stack((values.cos * factor, values.sin * factor), axis=1).astype(np.float32)
    table.flags.writeable = False
    return table


def _horner(descending: tuple[float, ...], z: Float64s) -> Float64s:
    """The polynomial in z whose coefficients are given from the highest power to the constant."""
    total = np.full_like(z, descending[0])
    for coefficient in descending[1:]:
        total = total * z + coefficient
    return total
