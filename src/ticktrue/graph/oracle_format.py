"""What the number format decides for the oracle: how activations are rounded and how deep a tile is."""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, localcontext

import numpy as np

from ticktrue.errors import UnsupportedModel
from ticktrue.graph.oracle_math import bf16_round
from ticktrue.graph.oracle_matmul import FloatArray, Matmul, ordered_matmul
from ticktrue.graph.oracle_rope import DIGITS, nearest_float32

ACTIVATION_TILE_BYTES = 320
"""A tile is 320 bytes of activations: 160 of bf16, 80 of float32 (row 7)."""


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """A number format at work: rounding of activations, tile depth in k, and the ordered product."""

    round: Callable[[FloatArray], FloatArray]
    tile: int
    matmul: Matmul


def arithmetic(fmt: str, matmul: Matmul = ordered_matmul) -> Arithmetic:
    """The arithmetic of format `bf16` or `f32`.

    Raises:
        UnsupportedModel: for any other format.
    """
    match fmt:
        case "bf16":
            return Arithmetic(bf16_round, ACTIVATION_TILE_BYTES // 2, matmul)
        case "f32":
            return Arithmetic(_unrounded, ACTIVATION_TILE_BYTES // 4, matmul)
        case _:
            raise UnsupportedModel(
                f"the oracle knows the formats bf16 and f32, found {fmt!r}", where="oracle format"
            )


def score_scale(head_dim: int) -> np.float32:
    """fl32(1 / sqrt(head_dim)): the real number rounded once (row 14)."""
    with localcontext() as context:
        context.prec = DIGITS
        return nearest_float32(1 / Decimal(head_dim).sqrt())


def _unrounded(x: FloatArray) -> FloatArray:
    return x
