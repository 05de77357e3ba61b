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


def rms_norm(x: FloatArray, gain: FloatArray, eps: np.float32) -> FloatArray:
    """(x · r) · g with r = 1 / sqrt(lane_sum(x·x) / D + eps), not yet rounded to the format (row 5)."""
    mean = lane_sum(x * x) / np.float32(x.shape[1])
    r = ONE / np.sqrt(mean + eps)
    return np.asarray((x * r[:, None]) * gain, np.float32)
