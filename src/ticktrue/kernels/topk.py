"""The router's choice: the k largest of a row of logits and their softmax (numerics row 27)."""

import numpy as np
from numba import njit

from ticktrue.kernels.bits import u32_as_f32
from ticktrue.kernels.functions import exp_f32

_ZERO = np.float32(0)
SIGNATURES: dict[str, tuple[str, ...]] = {
    "topk": ("void(float32[::1]" + ", int64" * 9 + ", int64[::1], float32[::1])",),
}
"""What each kernel is compiled for when the IR test reads its code (see `tests/unit/kernels/ir_check.py`)."""


@njit(cache=True, error_model="numpy")
def topk(pool, a, sa, o, so, n, m, columns, k, lanes, ids, w):
    """For each j: lanes 0 .. k-1 the weights by rank, lanes k .. 2k-1 the columns (bits); the first `lanes` of them are stored.

    Of n beats of 320 columns each; the largest first, of equals the lower column. `ids`, `w`: room for k.
    """
    for j in range(m):
        first = a + j * n * sa
        for rank in range(k):
            best = -1
            largest = _ZERO
            for c in range(columns):
                taken = False
                for q in range(rank):
                    taken = taken or ids[q] == c
                if not taken:
                    v = pool[first + c // 320 * sa + c % 320]
                    if best < 0 or v > largest:
                        best = c
                        largest = v
            ids[rank] = best
            w[rank] = largest
        total = _ZERO
        top = w[0]
        for rank in range(k):
            w[rank] = exp_f32(w[rank] - top)
            total = total + w[rank]
        for rank in range(k):
            if rank < lanes:
                pool[o + j * so + rank] = w[rank] / total
            if k + rank < lanes:
                pool[o + j * so + k + rank] = u32_as_f32(np.uint32(ids[rank]))
