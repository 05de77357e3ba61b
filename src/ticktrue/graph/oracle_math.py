"""Elementwise functions and lane sums of docs/numerics.md in numpy float32, for the oracle alone.

One rounding per written operation (G1), no library function beyond + - * / sqrt, comparisons and bit
operations (G6). The constants are copied by hand from the page, never imported from the kernels.
"""

import numpy as np
import numpy.typing as npt

from ticktrue.graph.oracle_matmul import FloatArray

LANES = 320
"""Lanes of the vector unit (G5)."""


def _hex(text: str) -> np.float32:
    """The float32 whose exact value the hexadecimal float `text` is."""
    value = float.fromhex(text)
    if float(np.float32(value)) != value:
        raise ValueError(f"{text} is not a float32")
    return np.float32(value)


ONE = np.float32(1.0)
LOG2_E = _hex("0x1.715476p+0")
MAGIC = _hex("0x1.8p+23")
"""Adding it rounds |x| < 2^22 to the nearest even integer and leaves that integer in the low bits."""
LN2_HIGH = _hex("0x1.63p-1")
LN2_LOW = _hex("-0x1.bd0106p-13")
EXP_TOP = _hex("0x1.6a2256p-10")
EXP_REST = tuple(_hex(c) for c in ("0x1.123b02p-7", "0x1.5558f8p-5", "0x1.55549p-3", "0x1.fffffcp-2"))
EXP_UNDERFLOW = _hex("-0x1.5cp+6")
EXP_OVERFLOW = _hex("0x1.62e148p+6")
MANTISSA_BITS = np.uint32(23)

TWO = np.float32(2.0)
HALF = np.float32(0.5)
TANH_SMALL_END = np.float32(0.625)
TANH_SMALL = tuple(
    _hex(c) for c in ("-0x1.75623ep-8", "0x1.520b2cp-6", "-0x1.b83854p-5", "0x1.11070ap-3", "-0x1.555532p-2")
)
TANH_CENTRE = _hex("0x1.a004fp-1")
TANH_AT_CENTRE = _hex("0x1.578bb6p-1")
TANH_MIDDLE = tuple(
    _hex(c)
    for c in (
        "0x1.a9583p-8", "-0x1.fa1d0cp-5", "0x1.471f08p-4", "0x1.072778p-4", "-0x1.79bf04p-2", "0x1.197c2cp-1",
    )
)  # fmt: skip
GELU_ROOT = _hex("0x1.988454p-1")
"""fl32(sqrt(2 / π))."""
GELU_CUBE = _hex("0x1.6e4e26p-5")
"""fl32(0.044715)."""


def exp(x: FloatArray) -> FloatArray:
    """e^x as the page's section exp: below −87 it is +0, above fl32(88.72) it is +Inf."""
    below, above = x < EXP_UNDERFLOW, x > EXP_OVERFLOW
    inside = np.where(below | above, np.float32(0), x)
    t = inside * LOG2_E + MAGIC
    n = t - MAGIC
    r = (inside - n * LN2_HIGH) - n * LN2_LOW
    p = np.full_like(r, EXP_TOP)
    for c in EXP_REST:
        p = p * r + c
    y = (p * (r * r) + r) + ONE
    value = (y.view(np.uint32) + (t.view(np.uint32) << MANTISSA_BITS)).view(np.float32)
    return np.where(below, np.float32(0), np.where(above, np.float32(np.inf), value)).astype(np.float32)


def bf16_round(x: FloatArray) -> FloatArray:
    """The bfloat16 values nearest to x, ties to even, kept as float32; no NaN."""
    bits = np.ascontiguousarray(x).view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    rounded = np.asarray((bits + np.uint32(0x7FFF) + odd) & np.uint32(0xFFFF0000), np.uint32)
    return rounded.view(np.float32)


def bf16_widen(bits: npt.NDArray[np.uint16]) -> FloatArray:
    """float32 values of bfloat16 bit patterns."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def sigmoid(x: FloatArray) -> FloatArray:
    """1 / (1 + exp(−x))."""
    return np.asarray(ONE / (ONE + exp(-x)), np.float32)


def tanh(x: FloatArray) -> FloatArray:
    """The page's section tanh: odd polynomial, middle polynomial, exp form; the sign is that of x."""
    a = np.abs(x)
    small, large = a < TANH_SMALL_END, ~(a < ONE)
    inside = np.where(small, a, np.float32(0))
    z = inside * inside
    odd = inside + (inside * z) * _horner(z, TANH_SMALL)
    d = np.where(small | large, TANH_CENTRE, a) - TANH_CENTRE
    middle = TANH_AT_CENTRE + d * _horner(d, TANH_MIDDLE)
    with np.errstate(over="ignore"):  # 2·a beyond float32 is an infinity, and so is its exp
        doubled = TWO * np.where(large, a, ONE)
    tail = ONE - TWO / (exp(doubled) + ONE)
    return np.asarray(np.copysign(np.where(small, odd, np.where(large, tail, middle)), x), np.float32)


def _horner(x: FloatArray, coefficients: tuple[np.float32, ...]) -> FloatArray:
    """The polynomial with these coefficients, the highest power first: one product and one sum each."""
    value = np.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        value = value * x + c
    return value


def softcap(x: FloatArray, cap: np.float32) -> FloatArray:
    """Cap · tanh(x / cap) (rows 14 and 22)."""
    return np.asarray(cap * tanh(x / cap), np.float32)


def gated_gelu(gate: FloatArray, up: FloatArray) -> FloatArray:
    """gelu_tanh_gate(g, u), not yet rounded to the format (row 21)."""
    with np.errstate(over="ignore"):  # g·g·g beyond float32 is an infinity, and tanh of it 1
        inner = GELU_ROOT * (gate + GELU_CUBE * ((gate * gate) * gate))
    return np.asarray(((HALF * gate) * (ONE + tanh(inner))) * up, np.float32)


def gated_silu(gate: FloatArray, up: FloatArray) -> FloatArray:
    """(g · sigmoid(g)) · u, not yet rounded to the format (row 21)."""
    return (gate * sigmoid(gate)) * up


def lane_sum(a: FloatArray) -> FloatArray:
    """float32[rows]: sums of a[rows, n] in the order of G5.

    320 lanes fill with ascending vectors of 320; then lane l takes lane l + h for h = 256, 128, ..., 1.
    """
    rows, n = a.shape
    lanes = np.zeros((rows, LANES), np.float32)
    for start in range(0, n, LANES):
        part = a[:, start : start + LANES]
        lanes[:, : part.shape[1]] += part
    h = 256
    while h:
        width = min(h, LANES - h)
        lanes[:, :width] += lanes[:, h : h + width]
        h //= 2
    return lanes[:, 0].copy()


def rms_norm(x: FloatArray, gain: FloatArray | None, eps: np.float32) -> FloatArray:
    """(x · r) · g with r = 1 / sqrt(lane_sum(x·x) / D + eps), not yet rounded to the format (row 5).

    Without gain x · r (row 11b).
    """
    mean = lane_sum(x * x) / np.float32(x.shape[1])
    r = ONE / np.sqrt(mean + eps)
    scaled = x * r[:, None]
    return np.asarray(scaled if gain is None else scaled * gain, np.float32)


def head_norm(x: FloatArray, gain: FloatArray | None, eps: np.float32) -> FloatArray:
    """Row 5 over each head of x[n, heads, head_dim] (rows 11 and 11b)."""
    return rms_norm(x.reshape(-1, x.shape[2]), gain, eps).reshape(x.shape)
