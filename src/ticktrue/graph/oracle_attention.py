"""Attention in blocks of 64 positions with the combine order of rows 14 to 20, for the oracle alone.

Vectorised over query rows (a query position of one head) and never over the positions that are summed. Arrays
stand with the query rows last, so that the positions of a block are the rows of the ordered products.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ticktrue.graph.oracle_format import Arithmetic
from ticktrue.graph.oracle_math import exp, softcap
from ticktrue.graph.oracle_matmul import FloatArray, ordered_column_sum

BLOCK = 64
"""Positions per block, absolute (row 15)."""
COMBINE_LANES = 256
"""Lane of a block = absolute index mod 256 (row 19)."""
QUERIES_AT_ONCE = 256
"""Query positions worked on together: bounds the memory, changes no bit."""

ZERO = np.float32(0)
LOWEST = np.float32(np.finfo(np.float32).min)
"""Stands where no score is visible; never reaches a result."""

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Scoring:
    """What a layer does to scores and which positions it sees (rows 14, 15 and 18)."""

    scale: np.float32
    window: int = 0
    """A row at position t sees t − window + 1 to t; 0: from position 0."""
    cap: np.float32 = ZERO
    """Softcap of the scores; 0: none."""
    sinks: FloatArray | None = None
    """float32[heads]: one more score for each head, of a position without value."""


@dataclass(frozen=True, slots=True)
class Partial:
    """One partial (m, l, o) of every query row; it counts only where present[rows]."""

    present: BoolArray
    top: FloatArray
    """m, float32[rows]: the largest visible score."""
    weight: FloatArray
    """l, float32[rows]: the sum of p."""
    out: FloatArray
    """o, float32[head_dim, rows]: the sum of p · v."""


@dataclass(frozen=True, slots=True)
class KeyValueBlock:
    """Keys and values, float32[positions <= 64, head_dim], of one KV head from position `first` on."""

    first: int
    k: FloatArray
    v: FloatArray


def combine(a: Partial, b: Partial) -> Partial:
    """Row 18: m = max; l = (l1·a1) + (l2·a2); o = (o1·a1) + (o2·a2); an absent side: the other."""
    both = a.present & b.present
    top = np.maximum(a.top, b.top)
    a1, a2 = exp(np.where(both, a.top - top, ZERO)), exp(np.where(both, b.top - top, ZERO))
    return Partial(
        present=a.present | b.present,
        top=np.where(both, top, np.where(a.present, a.top, b.top)),
        weight=np.where(both, (a.weight * a1) + (b.weight * a2), np.where(a.present, a.weight, b.weight)),
        out=np.where(both, (a.out * a1) + (b.out * a2), np.where(a.present, a.out, b.out)),
    )


def add_block(lanes: dict[int, Partial], index: int, block: Partial) -> None:
    """Row 19, inside lanes: put the partial of block `index` behind those of its lane (index mod 256).

    Args:
        lanes: lane to partial of the blocks before; a lane that no block has reached is not there. Changed in place.
        index: absolute index of the block.
        block: its partial.
    """
    _join(lanes, index % COMBINE_LANES, block)


def combine_lanes(lanes: dict[int, Partial]) -> Partial:
    """The tree of row 19 over lanes 0 to 255; those not there are absent."""
    lanes = dict(lanes)
    h = COMBINE_LANES // 2
    while h:
        for i in range(h):
            if i + h in lanes:
                _join(lanes, i, lanes[i + h])
        h //= 2
    return lanes[0]


def _join(lanes: dict[int, Partial], lane: int, partial: Partial) -> None:
    lanes[lane] = combine(lanes[lane], partial) if lane in lanes else partial


def with_sink(result: Partial, sink: FloatArray) -> Partial:
    """Row 18's end: combine with (sink, 1, 0), sink float32[rows]."""
    one = Partial(
        present=np.ones_like(result.present),
        top=sink,
        weight=np.ones_like(result.weight),
        out=np.zeros_like(result.out),
    )
    return combine(result, one)


def block_partial(
    q: FloatArray, kv: KeyValueBlock, at: IntArray, arithmetic: Arithmetic, scoring: Scoring
) -> Partial:
    """Rows 14 to 17 for one block.

    Args:
        q: float32[head_dim, rows].
        kv: the block's keys and values.
        at: int64[rows], the position of each query row.
        arithmetic: the format's rounding, tile and product.
        scoring: the scale, the window and the softcap.
    """
    score = arithmetic.matmul(kv.k, q, arithmetic.tile) * scoring.scale
    if scoring.cap:
        score = softcap(score, scoring.cap)
    positions = kv.first + np.arange(kv.k.shape[0])
    visible = positions[:, None] <= at[None, :]
    if scoring.window:
        visible &= positions[:, None] > at[None, :] - scoring.window
    top = np.where(visible, score, LOWEST).max(axis=0)
    p = np.where(visible, arithmetic.round(exp(np.where(visible, score - top[None, :], ZERO))), ZERO)
    return Partial(
        present=np.asarray(visible.any(axis=0)),
        top=top,
        weight=ordered_column_sum(p),
        out=arithmetic.matmul(np.ascontiguousarray(kv.v.T), p, arithmetic.tile),
    )


def attend(
    q: FloatArray, k: FloatArray, v: FloatArray, arithmetic: Arithmetic, scoring: Scoring
) -> FloatArray:
    """float32[n, heads · head_dim]: attention of the last n positions over all so far, rounded (row 20).

    Args:
        q: float32[n, heads, head_dim], rotated and rounded.
        k: float32[positions, kv_heads, head_dim], with those of the n new positions at the end.
        v: as k.
        arithmetic: the format's rounding, tile and product.
        scoring: what the layer does to scores.
    """
    n, heads, head_dim = q.shape
    positions, kv_heads, _ = k.shape
    group = heads // kv_heads
    out = np.empty((n, heads, head_dim), np.float32)
    for first in range(0, n, QUERIES_AT_ONCE):
        last = min(first + QUERIES_AT_ONCE, n)
        at = np.repeat(np.arange(first, last, dtype=np.int64) + (positions - n), group)
        for head in range(kv_heads):
            of_head = slice(head * group, (head + 1) * group)
            rows = np.ascontiguousarray(q[first:last, of_head].reshape(-1, head_dim).T)
            result = _attend_rows(rows, (k[:, head], v[:, head]), at, arithmetic, scoring)
            if scoring.sinks is not None:
                result = with_sink(result, np.tile(scoring.sinks[of_head], last - first))
            mixed = arithmetic.round(result.out / result.weight[None, :])
            out[first:last, of_head] = mixed.T.reshape(last - first, group, head_dim)
    return out.reshape(n, heads * head_dim)


def _attend_rows(
    q: FloatArray,
    kv: tuple[FloatArray, FloatArray],
    at: IntArray,
    arithmetic: Arithmetic,
    scoring: Scoring,
) -> Partial:
    """The partial over all visible blocks of query rows of one KV head, at ascending positions."""
    lanes: dict[int, Partial] = {}
    seen = int(at[-1]) + 1
    oldest = max(0, int(at[0]) - scoring.window + 1) if scoring.window else 0
    for index in range(oldest // BLOCK, (seen - 1) // BLOCK + 1):
        first, stop = index * BLOCK, min((index + 1) * BLOCK, seen)
        kv_block = KeyValueBlock(first, kv[0][first:stop], kv[1][first:stop])
        add_block(lanes, index, block_partial(q, kv_block, at, arithmetic, scoring))
    return combine_lanes(lanes)
