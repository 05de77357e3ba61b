"""An independent reference of sampling (numerics rows 23 to 26), written from docs/numerics.md; it shares no code with kernels.

Plain numpy float32 on whole arrays; Philox in Python integers. Constants are copied by hand from the page.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ticktrue.graph.oracle_math import LN2_HIGH, LN2_LOW, ONE, exp, lane_sum
from ticktrue.graph.oracle_matmul import FloatArray

WORD = 1 << 32
HALF = np.float32(0.5)
ZERO = np.float32(0)
SQRT_HALF_BITS = np.int32(0x3F3504F3)
LOG_TOP = np.float32(float.fromhex("-0x1.38b584p-4"))
LOG_REST = tuple(
    np.float32(float.fromhex(text))
    for text in (
        "0x1.055b6cp-3", "-0x1.0d8542p-3", "0x1.22da1cp-3", "-0x1.547244p-3",
        "0x1.99a008p-3", "-0x1.000226p-2", "0x1.555554p-2",
    )
)  # fmt: skip
"""k9 down to k3 of the page."""


def _tail(f: FloatArray, exponent: FloatArray, correction: FloatArray) -> FloatArray:
    z = f * f
    p = np.full_like(f, LOG_TOP)
    for c in LOG_REST:
        p = p * f + c
    y = (p * f) * z
    y = y + (exponent * LN2_LOW + correction)
    y = y - HALF * z
    return np.asarray((f + y) + exponent * LN2_HIGH, np.float32)


def _split(x: FloatArray) -> tuple[FloatArray, npt.NDArray[np.int32]]:
    """(m, e) with x = m * 2^e and m in [sqrt(1/2), sqrt(2))."""
    bits = np.ascontiguousarray(x).view(np.int32)
    e = (bits - SQRT_HALF_BITS) >> 23
    return (bits - (e << 23)).view(np.float32), e


def log(x: FloatArray) -> FloatArray:
    """Natural logarithm of positive, normal, finite x."""
    m, e = _split(x)
    return _tail(m - ONE, e.astype(np.float32), np.zeros_like(m))


def log1p(x: FloatArray) -> FloatArray:
    """Natural logarithm of 1 + x for -1 < x < 1."""
    u = np.asarray(ONE + x, np.float32)
    m, e = _split(u)
    near = e == 0
    lost = x - (u - ONE)
    f = np.where(near, x, m - ONE).astype(np.float32)
    return _tail(f, e.astype(np.float32), np.where(near, ZERO, lost / u).astype(np.float32))


def philox(counter: Sequence[int], key: Sequence[int]) -> tuple[int, int, int, int]:
    """Philox4x32-10 of four counter words and two key words."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p, q = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = (q >> 32) ^ c1 ^ k0, q % WORD, (p >> 32) ^ c3 ^ k1, p % WORD
        k0, k1 = (k0 + 0x9E3779B9) % WORD, (k1 + 0xBB67AE85) % WORD
    return c0, c1, c2, c3


def noise(vocab: int, seed: int, choice: int, pos: int) -> FloatArray:
    """G of every vocabulary index: float32[vocab]."""
    key = (seed % WORD, seed // WORD)
    blocks = [philox((v, pos, choice, 0), key) for v in range(-(-vocab // 4))]
    b = np.array(blocks, np.uint64).reshape(-1)[:vocab]
    low = b < 1 << 31
    scale = np.float32(2.0**-32)
    u = (b.astype(np.float32) + HALF) * scale
    v = ((np.uint64(WORD - 1) - b).astype(np.float32) + HALF) * scale
    e = np.where(low, -log1p(-np.where(low, u, HALF)), -log(np.where(low, HALF, v)))
    return np.asarray(-log(e.astype(np.float32)), np.float32)


def best(z: FloatArray) -> int:
    """Index of the largest of z; of equals the lowest (row 23)."""
    return int(np.flatnonzero(z == z.max())[0])


def sampled(logits: FloatArray, temperature: float, seed: int, choice: int, pos: int) -> int:
    """Row 24: the token that the chips choose."""
    if temperature == 0:
        return best(logits)
    return best(logits / np.float32(temperature) + noise(len(logits), seed, choice, pos))


def penalized(
    logits: FloatArray, prompt: Sequence[int], output: Sequence[int], penalties: tuple[float, float, float]
) -> FloatArray:
    """Row 24b; penalties = (repetition, presence, frequency)."""
    r, p, f = (np.float32(x) for x in penalties)
    out = logits.copy()
    for v in {*prompt, *output}:
        out[v] = out[v] / r if out[v] > 0 else out[v] * r
    for v in set(output):
        out[v] = (out[v] - f * np.float32(list(output).count(v))) - p
    return out


def filtered(z: FloatArray, top_k: int, top_p: float, min_p: float) -> list[int]:
    """Row 25: the indices that are kept of z = l / T, most likely first."""
    order = sorted(range(len(z)), key=lambda v: (-float(z[v]), v))
    w = exp(z[order] - z[order[0]])
    count = min(top_k, len(order)) if top_k else len(order)
    if top_p < 1:
        cum = []
        running = np.float32(0)
        for i in range(count):
            running = running + w[i]
            cum.append(running)
        limit = np.float32(top_p) * cum[-1]
        count = 1 + next(i for i, c in enumerate(cum) if c >= limit)
    return order[: 1 + max(i for i in range(count) if w[i] >= np.float32(min_p))]


def host_sampled(
    logits: FloatArray,
    temperature: float,
    cut: tuple[int, float, float],
    draw: tuple[int, int, int],
) -> int:
    """Row 25 of penalized logits; cut = (top_k, top_p, min_p), draw = (seed, choice, pos)."""
    if temperature == 0:
        return best(logits)
    z = np.asarray(logits / np.float32(temperature), np.float32)
    kept = filtered(z, *cut)
    scored = np.full_like(z, -np.inf)
    scored[kept] = z[kept] + noise(len(z), *draw)[kept]
    return best(scored)


def log_probabilities(logits: FloatArray) -> FloatArray:
    """Row 26, of every index."""
    shifted = logits - logits.max()
    return np.asarray(shifted - log(lane_sum(exp(shifted)[None, :])), np.float32)
