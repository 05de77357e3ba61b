"""Rotary tables for the oracle: the angles of row 12 with correctly rounded sines and cosines.

Independent of the polynomials of docs/numerics.md, with which a test compares it: inverse frequencies come
from `decimal`; each sine and cosine is the float32 nearest to the true value (the library's float64 where it
is far from a rounding boundary, `decimal` where it is not).
"""

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext

import numpy as np
import numpy.typing as npt

from ticktrue.graph.oracle_matmul import FloatArray
from ticktrue.model import Attention, FactorScaling, LinearScaling, Llama3Scaling, ModelSpec, RopeScaling

SPLIT = 512
"""Positions are split as p = 512 · (p div 512) + p mod 512; each part has its own table (row 12)."""
DIGITS = 80
"""Decimal digits of all reference arithmetic; angles reach 10^8, results need 8."""
DOUBT = 2.0**-48
"""Relative distance from a float32 rounding boundary inside which the library's float64 is not trusted."""


def inverse_frequencies(of: ModelSpec | Attention) -> tuple[float, ...]:
    """float64[head_dim / 2]: theta^(−2i / head_dim), scaled as the model says, correctly rounded.

    Pairs from rotary_fraction · head_dim / 2 on do not turn: 0. A ModelSpec stands for its full layers.
    """
    half = of.head_dim // 2
    turning = int(of.rotary_fraction * of.head_dim // 2)
    with localcontext() as context:
        context.prec = DIGITS
        log_theta = Decimal(of.rope_theta).ln()
        exact = [(-log_theta * (2 * i) / of.head_dim).exp() for i in range(turning)]
        scaled = [float(_scaled(f, i, of.rope_scaling)) for i, f in enumerate(exact)]
    return (*scaled, *([0.0] * (half - turning)))


def _scaled(frequency: Decimal, index: int, scaling: RopeScaling | None) -> Decimal:
    """The frequency of pair `index` after the model's RoPE scaling."""
    match scaling:
        case None:
            return frequency
        case LinearScaling():
            return frequency / Decimal(scaling.factor)
        case FactorScaling():
            return frequency / Decimal(scaling.factors[index])
        case Llama3Scaling():
            return _llama3(frequency, scaling)


def _llama3(frequency: Decimal, scaling: Llama3Scaling) -> Decimal:
    """Long waves stretched by the factor, short ones kept, a ramp between (Llama 3.1)."""
    wavelength = 2 * _pi() / frequency
    waves = Decimal(scaling.original_max_positions) / wavelength
    low, high = Decimal(scaling.low_freq_factor), Decimal(scaling.high_freq_factor)
    smooth = min(max((waves - low) / (high - low), Decimal(0)), Decimal(1))
    return frequency * (smooth + (1 - smooth) / Decimal(scaling.factor))


@dataclass(frozen=True, slots=True)
class RopeTables:
    """cos and sin, float32[n, d / 2], of the positions asked for."""

    cos: FloatArray
    sin: FloatArray


def rope_tables(inv_freq: tuple[float, ...], positions: npt.NDArray[np.int64]) -> RopeTables:
    """Float32 c = (ca·cb) − (sa·sb), s = (sa·cb) + (ca·sb); A turns by 512 · (p div 512), B by p mod 512."""
    coarse, coarse_at = np.unique(positions // SPLIT, return_inverse=True)
    fine, fine_at = np.unique(positions % SPLIT, return_inverse=True)
    a, b = _table(coarse * SPLIT, inv_freq), _table(fine, inv_freq)
    ca, sa, cb, sb = a.cos[coarse_at], a.sin[coarse_at], b.cos[fine_at], b.sin[fine_at]
    return RopeTables(cos=(ca * cb) - (sa * sb), sin=(sa * cb) + (ca * sb))


def rotate(x: FloatArray, tables: RopeTables) -> FloatArray:
    """The pairs (i, i + d/2) of x[n, heads, d] turned by their row's angle; not yet rounded to the format."""
    half = x.shape[2] // 2
    x1, x2 = x[:, :, :half], x[:, :, half:]
    c, s = tables.cos[:, None, :], tables.sin[:, None, :]
    return np.concatenate([(x1 * c) - (x2 * s), (x2 * c) + (x1 * s)], axis=2)


def _table(positions: npt.NDArray[np.int64], inv_freq: tuple[float, ...]) -> RopeTables:
    """Tables of float64 angles p · inv_freq (one float64 product), each value rounded once to float32."""
    angles = positions.astype(np.float64)[:, None] * np.array(inv_freq, np.float64)[None, :]
    flat = [float(angle) for angle in angles.ravel()]
    shape = angles.shape
    return RopeTables(
        cos=np.array([cos_float32(a) for a in flat], np.float32).reshape(shape),
        sin=np.array([sin_float32(a) for a in flat], np.float32).reshape(shape),
    )


def sin_float32(angle: float) -> np.float32:
    """The float32 nearest to the sine of the float64 `angle`."""
    near = math.sin(angle)
    return np.float32(near) if _is_clear(near) else nearest_float32(sin_decimal(angle))


def cos_float32(angle: float) -> np.float32:
    """The float32 nearest to the cosine of the float64 `angle`."""
    near = math.cos(angle)
    return np.float32(near) if _is_clear(near) else nearest_float32(cos_decimal(angle))


def nearest_float32(value: Decimal) -> np.float32:
    """Rounds `value` once to float32, ties to even; within the range of normal numbers."""
    near = np.float32(float(value))
    candidates = [near, np.nextafter(near, np.float32(-np.inf)), np.nextafter(near, np.float32(np.inf))]
    return np.float32(
        min(candidates, key=lambda c: (abs(Decimal(float(c)) - value), int(c.view(np.uint32)) % 2))
    )


def _is_clear(value: float) -> bool:
    """Whether every number within DOUBT of `value` rounds to one float32."""
    return bool(np.float32(value * (1 - DOUBT)) == np.float32(value * (1 + DOUBT)))


def sin_decimal(angle: float) -> Decimal:
    """Sine of the float64 `angle` to about 50 digits."""
    with localcontext() as context:
        context.prec = DIGITS
        reduced = Decimal(angle) % (2 * _pi())
        return _taylor(reduced, first=reduced, power=1)


def cos_decimal(angle: float) -> Decimal:
    """Cosine of the float64 `angle` to about 50 digits."""
    with localcontext() as context:
        context.prec = DIGITS
        reduced = Decimal(angle) % (2 * _pi())
        return _taylor(reduced, first=Decimal(1), power=0)


def _taylor(x: Decimal, *, first: Decimal, power: int) -> Decimal:
    """Alternating series that starts with `first` = x^power / power!."""
    total, term = Decimal(0), first
    while total + term != total:
        total += term
        power += 2
        term = -term * x * x / (power * (power - 1))
    return total


def _pi() -> Decimal:
    """π by Machin's formula, 16·atan(1/5) − 4·atan(1/239), at the precision of the context."""

    def atan_inverse(n: int) -> Decimal:
        total, power, k = Decimal(0), Decimal(1) / n, 0
        while total + power != total:
            term = power / (2 * k + 1)
            total = total - term if k % 2 else total + term
            power /= n * n
            k += 1
        return total

    return 16 * atan_inverse(5) - 4 * atan_inverse(239)
