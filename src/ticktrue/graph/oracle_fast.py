"""The ordered product of `oracle_matmul` compiled with numba: same bits, for long contexts and real models.

Shares no code with `ticktrue.kernels`. Never `fastmath`: the compiler may neither reorder nor fuse. A test
compares it bit for bit with the numpy form, which stays the definition.
"""

import numba
import numpy as np
import numpy.typing as npt

from ticktrue.graph.oracle_matmul import FloatArray, ordered_matmul
from ticktrue.units import ceil_div

STRIP = 128
"""Outputs summed side by side: the lanes of the host's vectors are outputs, so no sum changes its order."""
ROWS = 4
"""Rows that share one read of the weights."""
FEW_ROWS = 8
"""Below this many rows, copying the weights into strips costs more than it gains."""


@numba.njit(cache=True, error_model="numpy", fastmath=False)  # type: ignore[untyped-decorator]  # numba has no types
def _strips_matmul(x: FloatArray, strips: FloatArray, tile: int, out: FloatArray) -> None:
    """Row 7 on x[4·r, k] and strips[strip, k, 128]; k strictly ascending for each output."""
    rows, depth = x.shape
    t = np.zeros((ROWS, STRIP), np.float32)
    acc = np.zeros((ROWS, STRIP), np.float32)
    t0, t1, t2, t3 = t[0], t[1], t[2], t[3]
    for s in range(strips.shape[0]):
        for r in range(0, rows, ROWS):
            acc[:] = np.float32(0)
            for start in range(0, depth, tile):
                t[:] = np.float32(0)
                for k in range(start, min(start + tile, depth)):
                    a0, a1, a2, a3 = x[r, k], x[r + 1, k], x[r + 2, k], x[r + 3, k]
                    w = strips[s, k]
                    for j in range(STRIP):
                        t0[j] = t0[j] + a0 * w[j]
                        t1[j] = t1[j] + a1 * w[j]
                        t2[j] = t2[j] + a2 * w[j]
                        t3[j] = t3[j] + a3 * w[j]
                for i in range(ROWS):
                    for j in range(STRIP):
                        acc[i, j] = acc[i, j] + t[i, j]
            out[r : r + ROWS, s * STRIP : (s + 1) * STRIP] = acc


def fast_matmul(x: FloatArray, w: FloatArray, tile: int) -> FloatArray:
    """float32[rows, outs], bit for bit `ordered_matmul(x, w, tile)`."""
    (rows, depth), outs = x.shape, w.shape[1]
    if rows < FEW_ROWS:
        return ordered_matmul(x, w, tile)
    padded = np.zeros((ceil_div(rows, ROWS) * ROWS, depth), np.float32)
    padded[:rows] = x
    out = np.empty((padded.shape[0], ceil_div(outs, STRIP) * STRIP), np.float32)
    _strips_matmul(padded, _strips(w), tile, out)
    return np.ascontiguousarray(out[:rows, :outs])


def _strips(w: FloatArray) -> npt.NDArray[np.float32]:
    """float32[strips, k, 128] from w[k, outs], the last strip filled with zeros."""
    depth, outs = w.shape
    strips = np.zeros((ceil_div(outs, STRIP), depth, STRIP), np.float32)
    for s in range(strips.shape[0]):
        part = w[:, s * STRIP : (s + 1) * STRIP]
        strips[s, :, : part.shape[1]] = part
    return strips
