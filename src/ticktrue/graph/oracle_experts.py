"""Feed-forward blocks of the oracle: the gate (row 21), the router (row 27) and its experts (row 28)."""

import numpy as np
import numpy.typing as npt

from ticktrue.graph.oracle_format import Arithmetic
from ticktrue.graph.oracle_math import exp, gated_gelu, gated_silu
from ticktrue.graph.oracle_matmul import FloatArray
from ticktrue.graph.oracle_weights import Gated, Mixture
from ticktrue.model import Activation


def gated(block: Gated, h: FloatArray, activation: Activation, arithmetic: Arithmetic) -> FloatArray:
    """float32[rows, hidden], not rounded: down of the gate of gate and up of h (rows 7 to 10, 21)."""
    gate, up = block.gate(h, arithmetic), block.up(h, arithmetic)
    function = gated_silu if activation is Activation.SILU else gated_gelu
    return block.down(arithmetic.round(function(gate, up)), arithmetic)


def mixed(block: Mixture, h: FloatArray, activation: Activation, arithmetic: Arithmetic) -> FloatArray:
    """float32[rows, hidden], not rounded: the experts of every row, ranks ascending (row 28)."""
    ids, weights = chosen(block.router(h, arithmetic), block.per_token)
    acc = np.zeros_like(h)
    for rank in range(block.per_token):
        y = np.empty_like(h)
        for expert in np.unique(ids[:, rank]):
            rows = ids[:, rank] == expert
            y[rows] = gated(block.experts[expert], np.ascontiguousarray(h[rows]), activation, arithmetic)
        acc = acc + weights[:, rank, None] * y
    return acc


def chosen(logits: FloatArray, count: int) -> tuple[npt.NDArray[np.int64], FloatArray]:
    """Row 27: ids int64[rows, count] of the largest logits, of equals the lower index first, and their weights."""
    ids = np.argsort(-logits, axis=1, kind="stable")[:, :count]
    e = exp(np.take_along_axis(logits, ids, axis=1) - np.take_along_axis(logits, ids[:, :1], axis=1))
    total = np.zeros(logits.shape[0], np.float32)
    for rank in range(count):
        total = total + e[:, rank]
    return ids, np.asarray(e / total[:, None], np.float32)
