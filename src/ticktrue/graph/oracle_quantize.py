"""Eight-bit grids of rows 2, 6, 8, 9, 10 and 13 for the oracle: int8 and e4m3 as float32 values on their grid.

Integers up to 127 and the finite e4m3 values are exact in float32, and so is every partial sum of row 8
(at most 320 · 127 · 127 < 2^24): one ordered float32 sum serves both formats.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ticktrue.errors import InputError
from ticktrue.graph.oracle_math import bf16_round
from ticktrue.graph.oracle_matmul import FloatArray, Matmul

TILE_OF_BYTES = 320
"""Elements of one byte in a tile (row 6): one scale each."""
INT8_LARGEST = np.float32(127)
E4M3_LARGEST = np.float32(448)
E4M3_LOWEST_EXPONENT = -6
"""Of a normal number; below it the step stays 2^-9."""
E4M3_FRACTION_BITS = 3
MOST_IN_TOP_BINADE = np.float32(1.75)
"""448 = 1.75 · 2^8: a larger fraction needs the next power of two."""
TOP_BINADE = 8
LOWEST_SCALE_EXPONENT = -126
ZERO, ONE = np.float32(0), np.float32(1)


@dataclass(frozen=True, slots=True)
class Grid:
    """An 8-bit number format: its nearest values, its largest one, and the scale of a tile of activations."""

    nearest: Callable[[FloatArray], FloatArray]
    largest: np.float32
    activation_scale: Callable[[FloatArray], FloatArray]
    """float32[rows] from the largest magnitudes float32[rows] of a tile."""


def int8_nearest(x: FloatArray) -> FloatArray:
    """The nearest integers, ties to even, clamped to ±127, as float32."""
    return np.asarray(np.clip(np.rint(x), -INT8_LARGEST, INT8_LARGEST), np.float32)


def e4m3_nearest(x: FloatArray) -> FloatArray:
    """The nearest e4m3 values, ties to even, as float32: steps of 2^-9 below 2^-6, ±448 beyond it, −0 kept."""
    size = np.minimum(np.abs(x), E4M3_LARGEST)
    _, exponent = np.frexp(size)
    step_exponent = np.maximum(exponent - 1, E4M3_LOWEST_EXPONENT) - E4M3_FRACTION_BITS
    steps = np.rint(np.ldexp(size, -step_exponent))
    return np.asarray(np.copysign(np.ldexp(steps, step_exponent), x), np.float32)


def int8_scale(largest: FloatArray) -> FloatArray:
    """A / 127, or 1 where a = 0 (row 6)."""
    return np.where(largest == ZERO, ONE, largest / INT8_LARGEST).astype(np.float32)


def e4m3_scale(largest: FloatArray) -> FloatArray:
    """The smallest power of two from 2^-126 on that brings a within ±448, or 1 where a = 0 (row 6)."""
    half_fraction, exponent = np.frexp(largest)
    fraction, binade = half_fraction * np.float32(2), exponent - 1
    e = binade - np.where(fraction <= MOST_IN_TOP_BINADE, TOP_BINADE, TOP_BINADE - 1)
    power = np.ldexp(ONE, np.maximum(e, LOWEST_SCALE_EXPONENT))
    return np.where(largest == ZERO, ONE, power).astype(np.float32)


INT8 = Grid(int8_nearest, INT8_LARGEST, int8_scale)
E4M3 = Grid(e4m3_nearest, E4M3_LARGEST, e4m3_scale)


def quantised_weights(w: FloatArray, grid: Grid) -> tuple[FloatArray, FloatArray]:
    """Row 2: grid values float32[out, in] and scales float32[out] of w[out, in].

    Raises:
        InputError: for a row so small that its scale rounds to zero.
    """
    largest = np.abs(w).max(axis=1)
    scale = largest / grid.largest
    lost = (scale == ZERO) & (largest > ZERO)
    if lost.any():
        row = int(np.argmax(lost))
        raise InputError(
            f"row {row} has no weight above {largest[row]!r}, too small for a scale",
            code="T346",
            where="oracle weights",
        )
    scale = np.where(scale == ZERO, ONE, scale).astype(np.float32)
    return grid.nearest(w / scale[:, None]), scale


def quantised_product(x: FloatArray, w: FloatArray, grid: Grid, matmul: Matmul) -> FloatArray:
    """Rows 6 and 8 or 9: float32[rows, outs] of x[rows, k], quantised tile by tile, and grid values w[k, outs].

    acc = +0; tiles of 320 k ascending: acc = acc + (t · s_x), t the ordered sum of the tile.
    """
    acc = np.zeros((x.shape[0], w.shape[1]), np.float32)
    for start in range(0, x.shape[1], TILE_OF_BYTES):
        tile = x[:, start : start + TILE_OF_BYTES]
        scale = grid.activation_scale(np.abs(tile).max(axis=1))
        q = grid.nearest(tile / scale[:, None])
        acc = acc + matmul(q, w[start : start + TILE_OF_BYTES], TILE_OF_BYTES) * scale[:, None]
    return acc


def stored_e4m3(x: FloatArray, scale: FloatArray) -> FloatArray:
    """Row 13: what an e4m3 cache gives back for x[n, kv_heads, head_dim] with scale[kv_heads], powers of two."""
    of_head = scale[None, :, None]
    return bf16_round(e4m3_nearest(x / of_head) * of_head)
