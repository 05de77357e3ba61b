"""Compiled loops: which rank each row's address goes by on one chip, and which chip it speaks with."""

import numba as nb
import numpy as np

from ticktrue.isa import Op
from ticktrue.program import columns as col

C_OP, C_PATTERN, C_RANKFN, C_K = col.C_OP, col.C_PATTERN, col.C_RANKFN, col.C_K
SEND, RECEIVE = int(Op.SEND), int(Op.RECEIVE)
RANK_OWN, RANK_FROM = col.RANK_OWN, col.RANK_FROM


@nb.njit(cache=True)
def ranks(rows, table):
    """int64[R]: the chip's own rank in the row's pattern, or the rank of the chip K places back, or 0 where neither is asked for.

    `table` int64[patterns, k]: rank of the chip k places back.
    """
    last = table.shape[1] - 1
    out = np.zeros(rows.shape[0], np.int64)
    for r in range(rows.shape[0]):
        fn = rows[r, C_RANKFN]
        if fn == RANK_OWN:
            out[r] = table[rows[r, C_PATTERN], 0]
        elif fn == RANK_FROM:
            out[r] = table[rows[r, C_PATTERN], min(rows[r, C_K], last)]
    return out


@nb.njit(cache=True)
def peers(rows, on, back):
    """int64[R]: the chip that a SEND goes to or a RECEIVE comes from, -1 for other rows.

    `on`, `back` int64[patterns, k]: the chip k places on, and that k places back.
    """
    last = on.shape[1] - 1
    out = np.full(rows.shape[0], -1, np.int64)
    for r in range(rows.shape[0]):
        if rows[r, C_OP] == SEND:
            out[r] = on[rows[r, C_PATTERN], min(rows[r, C_K], last)]
        elif rows[r, C_OP] == RECEIVE:
            out[r] = back[rows[r, C_PATTERN], min(rows[r, C_K], last)]
    return out
