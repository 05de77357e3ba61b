"""The mixture of experts in a graph: its nodes, and the rows of docs/dataflow.md for TOPK, LATCH and GATHER EXPERT."""

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


def check_format(spec: ModelSpec, fmt: str) -> None:
    """Refuse a mixture of experts in 8 bits: their scales would have to be gathered by the expert as well.

    Raises:
        UnsupportedModel: T333.
    """
    if spec.experts is not None and fmt in {"int8", "fp8"}:
        raise UnsupportedModel(
            f"{spec.name} is a mixture of experts, which runs in bf16 and f32, not yet in {fmt}", code="T333",
            where="--format", hint="use --format bf16",
        )  # fmt: skip


class Mixture:
    """One layer's experts in the hash algebra. `tile`: k of a product; `tag_convert`: 0 where nothing is rounded."""

    def __init__(self, experts: Experts, tile: int, tag_convert: np.uint64, tag_gate: np.uint64) -> None:
        self._experts, self._tile = experts, tile
        self._convert, self._gate = tag_convert, tag_gate
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
        out = np.zeros_like(h)
        for rank in range(k):
            ids = chosen[:, k + rank].copy()
            f = np.asarray(
                kernel.gate(self._product(h, gate, ids), self._product(h, up, ids), self._gate), np.uint64
            )
            if self._convert:
                kernel.convert(f, self._convert)
            experts_kernel.weigh(out, chosen[:, rank].copy(), self._product(f, down, ids))
        return out

    def _sums(self, node: Node, part: str, outputs: int, inputs: int) -> Hashes:
        """Of each weight the sum over all experts."""
        of, count = base(f"{node.tensor}.{part}"), self._experts.count
        return np.asarray(experts_kernel.over_experts(of, (count, outputs, inputs), self._key), np.uint64)

    def _product(self, x: Hashes, sums: Hashes, ids: Hashes) -> Hashes:
        return np.asarray(
            experts_kernel.product_of(x, sums, ids, self._key, (self._tile, tag("PASS"))), np.uint64
        )
