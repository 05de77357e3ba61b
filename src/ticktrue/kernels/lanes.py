"""Lane-by-lane and reducing ops on beats in a float32 pool (numerics rows 4-5, 10, 12, 14-16, 20-23).

Operands and results are events of `lanes` lanes each, `stride` elements apart; offsets are in elements.
"""

import numpy as np
from numba import njit

from ticktrue.kernels.bits import (
    absolute_f32,
    e4m3_to_f32,
    f32_as_u32,
    f32_to_e4m3_bits,
    round_to_bf16,
    round_to_integer,
    u32_as_f32,
)
from ticktrue.kernels.functions import exp_f32, gelu_tanh_gate_f32, silu_gate_f32, tanh_f32

_ZERO = np.float32(0)
_ONE = np.float32(1)
_INT8 = np.float32(127)
_NORMAL = np.float32(1.1754943508222875e-38)  # 2^-126
_LIFT = np.float32(1.2676506002282294e30)  # 2^100
SENTINEL = np.float32(-3.4028234663852886e38)
_F = "float32[::1]"
_I = ", int64"
SIGNATURES: dict[str, tuple[str, ...]] = {
    "convert": (f"void({_F}{_I * 6})",),
    "add": (f"void({_F}{_I * 8})",),
    "mul": (f"void({_F}{_I * 8})",),
    "scale": (f"void({_F}{_I * 6}, float32)",),
    "exp_sub": (f"void({_F}{_I * 8})",),
    "silu_mul": (f"void({_F}{_I * 8})",),
    "gelu_mul": (f"void({_F}{_I * 8})",),
    "softcap": (f"void({_F}{_I * 6}, float32)",),
    "power_scale": ("float32(float32)",),
    "convert_e4m3": (f"void({_F}{_I * 6})",),
    "tile_scale": (f"void({_F}{_I * 7})",),
    "quantise": (f"void({_F}{_I * 9})",),
    "fold": (f"void({_F}{_I * 7})",),
    "maximum": (f"void({_F}{_I * 7})",),
    "lane_sum": (f"void({_F}{_I * 6}, {_F})",),
    "mean_rsqrt": (f"void({_F}{_I * 5}, float32, float32)",),
    "complex_mul": (f"void({_F}{_I * 8})",),
    "rope": (f"void({_F}{_I * 9})",),
    "divide": (f"void({_F}{_I * 6})",),
    "lane_argmax": (f"void({_F}{_I * 9})",),
    "pick": (f"void({_F}{_I * 6})",),
}


@njit(cache=True, error_model="numpy")
def convert(pool, a, sa, o, so, events, lanes):
    """Rounds to bf16."""
    for e in range(events):
        x = pool[a + e * sa : a + e * sa + lanes]
        z = pool[o + e * so : o + e * so + lanes]
        for c in range(lanes):
            z[c] = round_to_bf16(x[c])


@njit(cache=True, error_model="numpy")
def add(pool, a, sa, b, sb, o, so, events, lanes):
    """A + b."""
    for e in range(events):
        x = pool[a + e * sa : a + e * sa + lanes]
        y = pool[b + e * sb : b + e * sb + lanes]
        z = pool[o + e * so : o + e * so + lanes]
        for c in range(lanes):
            z[c] = x[c] + y[c]


@njit(cache=True, error_model="numpy")
def mul(pool, a, sa, b, sb, o, so, events, lanes):
    """A * b."""
    for e in range(events):
        x = pool[a + e * sa : a + e * sa + lanes]
        y = pool[b + e * sb : b + e * sb + lanes]
        z = pool[o + e * so : o + e * so + lanes]
        for c in range(lanes):
            z[c] = x[c] * y[c]


@njit(cache=True, error_model="numpy")
def scale(pool, a, sa, o, so, events, lanes, factor):
    """A * factor."""
    for e in range(events):
        x = pool[a + e * sa : a + e * sa + lanes]
        z = pool[o + e * so : o + e * so + lanes]
        for c in range(lanes):
            z[c] = x[c] * factor


@njit(cache=True, error_model="numpy")
def exp_sub(pool, a, sa, b, sb, o, so, events, lanes):
    """exp(a - b), +0 where a is the sentinel (row 16)."""
    for e in range(events):
        x = pool[a + e * sa : a + e * sa + lanes]
        y = pool[b + e * sb : b + e * sb + lanes]
        z = pool[o + e * so : o + e * so + lanes]
        for c in range(lanes):
            v = exp_f32(x[c] - y[c])
            z[c] = _ZERO if x[c] == SENTINEL else v


@njit(cache=True, error_model="numpy")
def silu_mul(pool, a, sa, b, sb, o, so, events, lanes):
    """(a * sigmoid(a)) * b (row 21)."""
    for e in range(events):
        x = pool[a + e * sa : a + e * sa + lanes]
        y = pool[b + e * sb : b + e * sb + lanes]
        z = pool[o + e * so : o + e * so + lanes]
        for c in range(lanes):
            z[c] = silu_gate_f32(x[c], y[c])


@njit(cache=True, error_model="numpy")
def gelu_mul(pool, a, sa, b, sb, o, so, events, lanes):
    """GELU-tanh gate of row 21."""
    for e in range(events):
        x = pool[a + e * sa : a + e * sa + lanes]
        y = pool[b + e * sb : b + e * sb + lanes]
        z = pool[o + e * so : o + e * so + lanes]
        for c in range(lanes):
            z[c] = gelu_tanh_gate_f32(x[c], y[c])


@njit(cache=True, error_model="numpy")
def softcap(pool, a, sa, o, so, events, lanes, cap):
    """Cap * tanh(a / cap) (rows 14, 22)."""
    for e in range(events):
        x = pool[a + e * sa : a + e * sa + lanes]
        z = pool[o + e * so : o + e * so + lanes]
        for c in range(lanes):
            z[c] = cap * tanh_f32(x[c] / cap)


@njit(cache=True, error_model="numpy")
def convert_e4m3(pool, a, sa, o, so, events, lanes):
    """Rounds to e4m3."""
    for e in range(events):
        x = pool[a + e * sa : a + e * sa + lanes]
        z = pool[o + e * so : o + e * so + lanes]
        for c in range(lanes):
            z[c] = e4m3_to_f32(f32_to_e4m3_bits(x[c]))


@njit(cache=True, error_model="numpy")
def power_scale(a):
    """The least power of two s, at least 2^-126, with a <= 448 s; 1 for a = 0 (row 6)."""
    if a == _ZERO:
        return _ONE
    shift = np.int64(0)
    if a < _NORMAL:  # subnormal: normalised exactly
        a = a * _LIFT
        shift = np.int64(100)
    u = np.int64(f32_as_u32(a))
    exponent = (u >> 23) - 127 - 8 - shift
    if (u & 0x7FFFFF) > 0x600000:  # above 1.75
        exponent += 1
    return u32_as_f32(np.uint32((max(exponent, np.int64(-126)) + 127) << 23))


@njit(cache=True, error_model="numpy")
def tile_scale(pool, a, sa, o, so, events, lanes, e4m3):
    """Lane 0: the scale of a tile, of the largest magnitude among its lanes (row 6)."""
    for e in range(events):
        x = pool[a + e * sa : a + e * sa + lanes]
        top = _ZERO
        for c in range(lanes):
            m = absolute_f32(x[c])
            top = m if m > top else top
        s = power_scale(top)
        if e4m3 == 0:
            s = top / _INT8 if top > _ZERO else _ONE
        pool[o + e * so] = s


@njit(cache=True, error_model="numpy")
def quantise(pool, a, sa, b, sb, o, so, events, lanes, e4m3):
    """A / s on the grid of int8 or e4m3, s in lane 0 of b (row 6)."""
    for e in range(events):
        x = pool[a + e * sa : a + e * sa + lanes]
        z = pool[o + e * so : o + e * so + lanes]
        s = pool[b + e * sb]
        if e4m3 != 0:
            for c in range(lanes):
                z[c] = e4m3_to_f32(f32_to_e4m3_bits(x[c] / s))
        else:
            for c in range(lanes):
                z[c] = round_to_integer(x[c] / s)


@njit(cache=True, error_model="numpy")
def fold(pool, a, sa, o, so, n, m, lanes):
    """Ordered sum over i from +0 for each j."""
    for j in range(m):
        z = pool[o + j * so : o + j * so + lanes]
        for c in range(lanes):
            z[c] = _ZERO
        for i in range(n):
            at = a + (j * n + i) * sa
            x = pool[at : at + lanes]
            for c in range(lanes):
                z[c] = z[c] + x[c]


@njit(cache=True, error_model="numpy")
def maximum(pool, a, sa, o, so, n, m, lanes):
    """Largest over i for each j, starting at the sentinel."""
    for j in range(m):
        z = pool[o + j * so : o + j * so + lanes]
        for c in range(lanes):
            z[c] = SENTINEL
        for i in range(n):
            at = a + (j * n + i) * sa
            x = pool[at : at + lanes]
            for c in range(lanes):
                z[c] = x[c] if x[c] > z[c] else z[c]


@njit(cache=True, error_model="numpy")
def lane_sum(pool, a, sa, o, so, n, m, s):
    """lane_sum (G5) of n beats for each j, into lane 0; `s` is scratch of 512 lanes."""
    for j in range(m):
        for c in range(512):
            s[c] = _ZERO
        for i in range(n):
            at = a + (j * n + i) * sa
            x = pool[at : at + 320]
            for c in range(320):
                s[c] = s[c] + x[c]
        h = 256
        while h >= 1:
            upper = s[h : 2 * h]
            for c in range(min(h, 320 - h)):
                s[c] = s[c] + upper[c]
            h //= 2
        pool[o + j * so] = s[0]


@njit(cache=True, error_model="numpy")
def mean_rsqrt(pool, a, sa, o, so, events, size, eps):
    """1 / sqrt(a / size + eps) of lane 0 (row 5)."""
    for e in range(events):
        v = pool[a + e * sa] / size
        pool[o + e * so] = _ONE / np.sqrt(v + eps)


@njit(cache=True, error_model="numpy")
def complex_mul(pool, a, sa, b, sb, o, so, events, d):
    """(cos, sin) of the sum of two angles (row 12): halves of d lanes."""
    half = d // 2
    for e in range(events):
        for i in range(half):
            ca = pool[a + e * sa + i]
            va = pool[a + e * sa + half + i]
            cb = pool[b + e * sb + i]
            vb = pool[b + e * sb + half + i]
            pool[o + e * so + i] = (ca * cb) - (va * vb)
            pool[o + e * so + half + i] = (va * cb) + (ca * vb)


@njit(cache=True, error_model="numpy")
def rope(pool, a, sa, b, sb, o, so, events, d, heads):
    """Rotates pairs (i, i + d/2) of each head by (cos, sin) of b (row 12)."""
    half = d // 2
    for e in range(events):
        cs = pool[b + e * sb : b + e * sb + half]
        sn = pool[b + e * sb + half : b + e * sb + d]
        for h in range(heads):
            at = a + e * sa + h * d
            to = o + e * so + h * d
            x1 = pool[at : at + half]
            x2 = pool[at + half : at + d]
            y1 = pool[to : to + half]
            y2 = pool[to + half : to + d]
            for i in range(half):
                y1[i] = (x1[i] * cs[i]) - (x2[i] * sn[i])
                y2[i] = (x2[i] * cs[i]) + (x1[i] * sn[i])


@njit(cache=True, error_model="numpy")
def divide(pool, a, sa, o, so, events, d):
    """O / l: lanes below d by lane d (row 20)."""
    for e in range(events):
        total = pool[a + e * sa + d]
        x = pool[a + e * sa : a + e * sa + d]
        z = pool[o + e * so : o + e * so + d]
        for c in range(d):
            z[c] = x[c] / total


@njit(cache=True, error_model="numpy")
def lane_argmax(pool, a, sa, o, so, n, m, first, valid, base):
    """Largest of the valid local columns first + 320 i + lane < valid, and base + column, for each j (row 23)."""
    for j in range(m):
        best = SENTINEL
        index = -1
        for i in range(n):
            for lane in range(320):
                column = first + 320 * i + lane
                if column < valid:
                    v = pool[a + (j * n + i) * sa + lane]
                    if index < 0 or v > best:
                        best = v
                        index = base + column
        if index < 0:
            index = 0x7FFFFFFF
        pool[o + j * so] = best
        pool[o + j * so + 1] = u32_as_f32(np.uint32(index))


@njit(cache=True, error_model="numpy")
def pick(pool, a, sa, o, so, n, m):
    """Best of n (value, column) pairs for each j: larger value, then lower column."""
    for j in range(m):
        best = pool[a + j * n * sa]
        index = f32_as_u32(pool[a + j * n * sa + 1])
        for i in range(1, n):
            at = a + (j * n + i) * sa
            v = pool[at]
            u = f32_as_u32(pool[at + 1])
            if v > best or (v == best and u < index):
                best = v
                index = u
        pool[o + j * so] = best
        pool[o + j * so + 1] = u32_as_f32(index)
