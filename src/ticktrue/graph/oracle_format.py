"""What the number format decides for the oracle: rounding and tiles of activations, grids of weights and cache."""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, localcontext

import numpy as np

from ticktrue.errors import UnsupportedModel
from ticktrue.graph.oracle_math import bf16_round
from ticktrue.graph.oracle_matmul import FloatArray, Matmul, ordered_matmul
from ticktrue.graph.oracle_quantize import E4M3, INT8, Grid
from ticktrue.graph.oracle_rope import DIGITS, nearest_float32

ACTIVATION_TILE_BYTES = 320
"""A tile is 320 bytes of activations: 160 of bf16, 80 of float32 (row 7)."""
GRIDS = {"int8": INT8, "fp8": E4M3}
CACHES = ("bf16", "e4m3")


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """A number format at work.

    `round`, `tile` and `matmul` are those of rows 7, 14 and 17, which no 8-bit format changes; `grid` is that of
    weights and of the activations they multiply, None where weights are bf16; `cache_e4m3`: row 13 with e4m3.
    """

    round: Callable[[FloatArray], FloatArray]
    tile: int
    matmul: Matmul
    grid: Grid | None = None
    cache_e4m3: bool = False


def arithmetic(fmt: str, matmul: Matmul = ordered_matmul, cache: str | None = None) -> Arithmetic:
    """The arithmetic of format `bf16`, `f32`, `int8` or `fp8`.

    Args:
        fmt: the format.
        matmul: the ordered product.
        cache: `bf16` or `e4m3`; None: the format's own, float32 in `f32` and bf16 in the others.

    Raises:
        UnsupportedModel: for another format, or a cache the format does not have.
    """
    if cache is not None and (cache not in CACHES or fmt == "f32"):
        raise UnsupportedModel(
            f"format {fmt} has a cache of {'float32' if fmt == 'f32' else ' or '.join(CACHES)}, found {cache!r}",
            where="oracle cache",
        )
    match fmt:
        case "f32":
            return Arithmetic(_unrounded, ACTIVATION_TILE_BYTES // 4, matmul)
        case "bf16" | "int8" | "fp8":
            grid, e4m3 = GRIDS.get(fmt), cache == "e4m3"
            return Arithmetic(bf16_round, ACTIVATION_TILE_BYTES // 2, matmul, grid, e4m3)
        case _:
            raise UnsupportedModel(
                f"the oracle knows the formats bf16, f32, int8 and fp8, found {fmt!r}", where="oracle format"
            )


def score_scale(head_dim: int) -> np.float32:
    """fl32(1 / sqrt(head_dim)): the real number rounded once (row 14)."""
    with localcontext() as context:
        context.prec = DIGITS
        return nearest_float32(1 / Decimal(head_dim).sqrt())


def _unrounded(x: FloatArray) -> FloatArray:
    return x
