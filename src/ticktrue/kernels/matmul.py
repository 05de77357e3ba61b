"""Ordered products of the matrix unit (numerics rows 7, 14, 17): one K tile, k ascending from +0, never fused.

SIMD lanes are outputs, so every output's own sum keeps its order. `x` rows and results lie in one float32 pool; a tile lies
in memory (bf16 or float32) or in the pool. Offsets are in elements.
"""

import numpy as np
from numba import njit

from ticktrue.kernels.bits import bf16_to_f32

_ZERO = np.float32(0)

_F = "float32[::1]"
_I = ", int64"
SIGNATURES: dict[str, tuple[str, ...]] = {
    "pass_bf16": (f"void(uint16[::1]{_I * 5}, {_F}{_I * 5}, {_F}, {_F}, {_F}, {_F})",),
    "pass_f32": (f"void({_F}{_I * 5}, {_F}{_I * 5}, {_F})",),
    "pass_ones": (f"void({_F}{_I * 6})",),
}


@njit(cache=True, error_model="numpy")
def pass_bf16(tile, at, stride, rows, c0, c1, pool, x, sx, o, so, events, a0, a1, a2, a3):
    """out[e][c] = sum over k of x[e][k] * tile[k][c] for c0 <= c < c1, bf16 tile in memory.

    a0..a3 are float32 scratch of 320 lanes: four events share one pass over the tile.
    """
    e = 0
    while e + 4 <= events:
        for c in range(c0, c1):
            a0[c] = _ZERO
            a1[c] = _ZERO
            a2[c] = _ZERO
            a3[c] = _ZERO
        for k in range(rows):
            x0 = pool[x + e * sx + k]
            x1 = pool[x + (e + 1) * sx + k]
            x2 = pool[x + (e + 2) * sx + k]
            x3 = pool[x + (e + 3) * sx + k]
            row = tile[at + k * stride : at + k * stride + c1]
            for c in range(c0, c1):
                w = bf16_to_f32(row[c])
                a0[c] += x0 * w
                a1[c] += x1 * w
                a2[c] += x2 * w
                a3[c] += x3 * w
        for c in range(c0, c1):
            pool[o + e * so + c] = a0[c]
            pool[o + (e + 1) * so + c] = a1[c]
            pool[o + (e + 2) * so + c] = a2[c]
            pool[o + (e + 3) * so + c] = a3[c]
        e += 4
    while e < events:
        for c in range(c0, c1):
            a0[c] = _ZERO
        for k in range(rows):
            x0 = pool[x + e * sx + k]
            row = tile[at + k * stride : at + k * stride + c1]
            for c in range(c0, c1):
                a0[c] += x0 * bf16_to_f32(row[c])
        for c in range(c0, c1):
            pool[o + e * so + c] = a0[c]
        e += 1


@njit(cache=True, error_model="numpy")
def pass_f32(tile, at, stride, rows, c0, c1, pool, x, sx, o, so, events, a0):
    """As `pass_bf16` for a float32 tile (in memory or in the pool)."""
    for e in range(events):
        for c in range(c0, c1):
            a0[c] = _ZERO
        for k in range(rows):
            x0 = pool[x + e * sx + k]
            row = tile[at + k * stride : at + k * stride + c1]
            for c in range(c0, c1):
                a0[c] += x0 * row[c]
        for c in range(c0, c1):
            pool[o + e * so + c] = a0[c]


@njit(cache=True, error_model="numpy")
def pass_ones(pool, rows, x, sx, o, so, events):
    """out[e] = sum over k of x[e][k]: the column of ones."""
    for e in range(events):
        total = _ZERO
        for k in range(rows):
            total += pool[x + e * sx + k]
        pool[o + e * so] = total
