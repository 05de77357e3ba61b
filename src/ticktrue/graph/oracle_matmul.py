"""Ordered matrix products and sums in plain numpy float32 (docs/numerics.md, ground rules G1, G4 and row 7).

Vectorised over rows and outputs only: every single output is summed one product at a time, in ascending k.
Knows no model, and of the number format only the depth of a tile.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]
Matmul = Callable[[FloatArray, FloatArray, int], FloatArray]

ROWS_AT_ONCE = 64
"""Rows of one working block: three float32 blocks of ROWS_AT_ONCE x OUTS_AT_ONCE stay in a 1 MiB cache."""
OUTS_AT_ONCE = 1024
"""Outputs of one working block."""


def ordered_matmul(x: FloatArray, w: FloatArray, tile: int) -> FloatArray:
    """float32[rows, outs] = x[rows, k] · w[k, outs], each output in the order of row 7.

    t = +0; k ascending inside a tile: t = t + x·w. acc = +0; tiles ascending: acc = acc + t. Each operation
    rounds once.

    Args:
        x: float32[rows, k].
        w: float32[k, outs], the weights with outputs side by side.
        tile: k per tile: 160 where activations are bf16, 80 where they are float32.
    """
    rows, outs = x.shape[0], w.shape[1]
    out = np.empty((rows, outs), np.float32)
    rows_step = max(ROWS_AT_ONCE, (ROWS_AT_ONCE * OUTS_AT_ONCE) // max(outs, 1))
    outs_step = max(OUTS_AT_ONCE, (ROWS_AT_ONCE * OUTS_AT_ONCE) // max(rows, 1))
    for r in range(0, rows, rows_step):
        columns = np.ascontiguousarray(x[r : r + rows_step].T)
        for o in range(0, outs, outs_step):
            out[r : r + rows_step, o : o + outs_step] = _block(columns, w[:, o : o + outs_step], tile)
    return out


def _block(columns: FloatArray, w: FloatArray, tile: int) -> FloatArray:
    """One working block of `ordered_matmul`: columns[k, rows], w[k, outs]."""
    k_total, rows = columns.shape
    acc = np.zeros((rows, w.shape[1]), np.float32)
    product = np.empty_like(acc)
    for start in range(0, k_total, tile):
        t = np.zeros_like(acc)
        for k in range(start, min(start + tile, k_total)):
            np.multiply(columns[k][:, None], w[k][None, :], out=product)
            np.add(t, product, out=t)
        np.add(acc, t, out=acc)
    return acc


def ordered_column_sum(values: FloatArray) -> FloatArray:
    """float32[n]: column sums of values[k, n] from +0, k ascending (row 17: row 7 with ones)."""
    total = np.zeros(values.shape[1], np.float32)
    for row in values:
        np.add(total, row, out=total)
    return total
