"""Elementwise functions and lane sums of docs/numerics.md in numpy float32, for the oracle alone.

One rounding per written operation (G1), no library function beyond + - * / sqrt, comparisons and bit operations (G6).
The constants are copied by hand from the page, never imported from the kernels.
"""

import numpy as np

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
ROUND_TO_INTEGER = _hex("0x1.8p+23")
"""Adding and taking away 1.5·2^23 rounds |x| < 2^22 to the nearest even integer."""


LOG2_E = _hex("0x1.715476p+0")
LN2_HIGH = _hex("0x1.63p-1")
LN2_LOW = _hex("-0x1.bd0106p-13")
EXP_COEFFICIENTS = tuple(np.float32(c) for c in (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1))
EXP_UNDERFLOW = np.float32(-87.0)
EXP_OVERFLOW = np.float32(88.72)
MANTISSA_BITS = np.int32(23)


def exp(x: FloatArray) -> FloatArray:
    """e^x (G6): x < −87 gives +0, x > 88.72 gives +Inf."""
    inside = np.where((x < EXP_UNDERFLOW) | (x > EXP_OVERFLOW), np.float32(0), x)
    n = (inside * LOG2_E + ROUND_TO_INTEGER) - ROUND_TO_INTEGER
    r = (inside - n * LN2_HIGH) - n * LN2_LOW
    y = np.full_like(r, EXP_COEFFICIENTS[0])
    for c in (*EXP_COEFFICIENTS[1:], ONE, ONE):
        y = y * r + c
    scaled = (y.view(np.int32) + (n.astype(np.int32) << MANTISSA_BITS)).view(np.float32)
    return np.where(x < EXP_UNDERFLOW, np.float32(0), np.where(x > EXP_OVERFLOW, np.float32(np.inf), scaled))


def bf16_round(x: FloatArray) -> FloatArray:
    """x rounded to bfloat16, nearest even, kept as float32. No NaN."""
    bits = np.ascontiguousarray(x).view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    return ((bits + np.uint32(0x7FFF) + odd) & np.uint32(0xFFFF0000)).view(np.float32)


def bf16_widen(bits: "np.ndarray[tuple[int, ...], np.dtype[np.uint16]]") -> FloatArray:
    """float32 values of bfloat16 bit patterns."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def sigmoid(x: FloatArray) -> FloatArray:
    """1 / (1 + exp(−x))."""
    return np.divide(ONE, ONE + exp(-x))


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
    return (x * r[:, None]) * gain
