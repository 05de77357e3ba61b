"""The mixture of experts in a graph: its nodes, and the rows of docs/dataflow.md for TOPK, LATCH and GATHER EXPERT."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ticktrue.errors import UnsupportedModel
from ticktrue.graph import digest_kernel as kernel
from ticktrue.graph import experts_kernel
from ticktrue.graph.types import Node
from ticktrue.model import Experts, ModelSpec
from ticktrue.program.hashing import base, mix, tag

Hashes = npt.NDArray[np.uint64]
EXPERT = 6
"""Number of the register function in docs/dataflow.md."""
PARTS = ("gate", "up", "down")


def experts_of(spec: ModelSpec, layer: int) -> Experts | None:
    """The experts of a layer; None where its feed-forward block is dense.

    Raises:
        UnsupportedModel: T333 for a mixture that docs/numerics.md has no row for.
    """
    experts = spec.experts
    if experts is None or layer < experts.dense_layers:
        return None
    lacking = {
        "a single expert": experts.count < 2,  # noqa: PLR2004
        "shared experts": experts.shared != 0,
        "a router that is not softmax": experts.router != "softmax",
        "router weights that are not normalised": not experts.normalise,
        "biases of experts": spec.mlp_bias,
        f"more than {kernel.LANES // 2} experts a token": 2 * experts.per_token > kernel.LANES,
    }
    if found := [name for name, there in lacking.items() if there]:
        raise UnsupportedModel(
            f"{spec.name} has {', '.join(found)}, which docs/numerics.md has no row for", code="T333",
            where=f"layer {layer}",
        )  # fmt: skip
    return experts


class _Sums(NamedTuple):
    """Of each weight, and in 8 bits of each scale, the sum over all experts."""

    weights: Hashes
    scales: Hashes | None


class _Taken(NamedTuple):
    """Rows as products take them, and in 8 bits the scale of each tile of them."""

    values: Hashes
    scales: Hashes | None


class Mixture:
    """One layer's experts in the hash algebra.

    `tile`: k of a product; `tag_convert`: 0 where nothing is rounded; `keys`: of TILE_SCALE and QUANTISE, None but in 8 bits.
    """

    def __init__(
        self,
        experts: Experts,
        tile: int,
        tags: tuple[np.uint64, np.uint64],
        keys: tuple[np.uint64, ...] | None,
    ) -> None:
        self._experts, self._tile = experts, tile
        self._convert, self._gate = tags
        self._keys = keys
        self._key = np.uint64(mix(tag("GATHER"), np.uint64(EXPERT)))

    def route(self, logits: Hashes) -> Hashes:
        """Row 27: of each row the weights, then the ids of the ranks."""
        top = np.uint64(mix(tag("TOPK"), np.uint64(self._experts.per_token)))
        return np.asarray(experts_kernel.topk(logits, top, self._experts.per_token), np.uint64)

    def mixed(self, node: Node, h: Hashes, chosen: Hashes) -> Hashes:
        """Row 28, unrounded: the experts of every row, ranks ascending."""
        k, hidden = self._experts.per_token, h.shape[1]
        gate, up = (self._sums(node, part, self._experts.ffn, hidden) for part in PARTS[:2])
        down = self._sums(node, PARTS[2], hidden, self._experts.ffn)
        out, x = np.zeros_like(h), self._taken(h)
        for rank in range(k):
            ids = chosen[:, k + rank].copy()
            f = np.asarray(
                kernel.gate(self._product(x, gate, ids), self._product(x, up, ids), self._gate), np.uint64
            )
            if self._convert:
                kernel.convert(f, self._convert)
            experts_kernel.weigh(out, chosen[:, rank].copy(), self._product(self._taken(f), down, ids))
        return out

    def _sums(self, node: Node, part: str, outputs: int, inputs: int) -> _Sums:
        name, count = f"{node.tensor}.{part}", self._experts.count
        weights = experts_kernel.over_experts(base(name), (count, outputs, inputs), self._key)
        if self._keys is None:
            return _Sums(np.asarray(weights, np.uint64), None)
        scales = experts_kernel.over_experts(base(f"{name}.scale"), (count, outputs, 1), self._key)
        return _Sums(np.asarray(weights, np.uint64), np.asarray(scales, np.uint64)[:, 0].copy())

    def _taken(self, x: Hashes) -> _Taken:
        """What products take of x: in 8 bits quantised once, whatever multiplies it."""
        if self._keys is None:
            return _Taken(x, None)
        q, scales = kernel.quantised(x, self._keys)
        return _Taken(np.asarray(q, np.uint64), np.asarray(scales, np.uint64))

    def _product(self, x: _Taken, sums: _Sums, ids: Hashes) -> Hashes:
        """Rows 7 to 10 with the matrix that the register of hash ids[t] names."""
        if x.scales is None or sums.scales is None:
            y = experts_kernel.product_of(x.values, sums.weights, ids, self._key, (self._tile, tag("PASS")))
            return np.asarray(y, np.uint64)
        y = experts_kernel.product8_of(x.values, x.scales, sums.weights, ids, self._key, tag("PASS"))
        experts_kernel.times_named(y, sums.scales, ids, self._key)
        return np.asarray(y, np.uint64)
