"""The mixture of experts in a graph: its nodes, and the rows of docs/dataflow.md for TOPK, LATCH and GATHER EXPERT."""

from collections.abc import Callable
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
EXPERT, EXPERT_HOME, EXPERT_LOCAL = 6, 7, 8
"""Numbers of the register functions in docs/dataflow.md."""
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


def _key(function: int) -> np.uint64:
    return np.uint64(mix(tag("GATHER"), np.uint64(function)))


class _Sums(NamedTuple):
    """Of each weight, and in 8 bits of each scale, the sum over experts that a register chooses from; key 0: of one alone."""

    weights: Hashes
    scales: Hashes | None
    key: np.uint64


class _Weights(NamedTuple):
    """The three matrices of an expert."""

    gate: _Sums
    up: _Sums
    down: _Sums


class _Taken(NamedTuple):
    """Rows as products take them, and in 8 bits the scale of each tile of them."""

    values: Hashes
    scales: Hashes | None


class Mixture:
    """One layer's experts in the hash algebra.

    `tile`: k of a product; `tags` of CONVERT (0 where nothing is rounded) and the gate; `keys`: of TILE_SCALE and QUANTISE, None
    but in 8 bits; `homes`: chips that whole experts are spread over, 0 where each is cut.
    """

    def __init__(
        self,
        experts: Experts,
        tile: int,
        tags: tuple[np.uint64, np.uint64],
        keys: tuple[np.uint64, ...] | None,
        homes: int = 0,
    ) -> None:
        self._experts, self._tile = experts, tile
        self._convert, self._gate = tags
        self._keys = keys
        self._homes = homes

    def route(self, logits: Hashes) -> Hashes:
        """Row 27: of each row the weights, then the ids of the ranks."""
        top = np.uint64(mix(tag("TOPK"), np.uint64(self._experts.per_token)))
        return np.asarray(experts_kernel.topk(logits, top, self._experts.per_token), np.uint64)

    def mixed(self, node: Node, h: Hashes, chosen: Hashes) -> Hashes:
        """Row 28, unrounded: the experts of every row, ranks ascending."""
        k = self._experts.per_token
        out, x = np.zeros_like(h), self._taken(h)
        made = self._made(node, x, chosen)
        for rank in range(k):
            experts_kernel.weigh(out, chosen[:, rank].copy(), made(rank, chosen[:, k + rank].copy()))
        return out

    def _made(self, node: Node, x: _Taken, chosen: Hashes) -> Callable[[int, Hashes], Hashes]:
        """What the expert of a rank makes of each row, given the ids of that rank.

        Cut, or alone on one chip: its weights are those that the register names. Whole on chips: every chip runs the expert of
        that number among its own and a register names the chip; or it runs all it has and a register names the expert.
        """
        experts, homes = self._experts, self._homes
        if homes == 0:
            whole = self._weights(node, (0, experts.count), EXPERT)
            return lambda _, ids: self._run(x, whole, ids)
        held = -(-experts.count // homes)
        if experts.per_token < held:
            homes = -(-experts.count // held)
            chips = [self._weights(node, (g * held, held), EXPERT_LOCAL) for g in range(homes)]
            return lambda _, ids: self._one_of([self._run(x, own, ids) for own in chips], ids, EXPERT_HOME)
        every = [self._run(x, self._weights(node, (e, 1), 0), chosen[:, 0]) for e in range(experts.count)]
        return lambda _, ids: self._one_of(every, ids, EXPERT)

    def _one_of(self, values: list[Hashes], ids: Hashes, function: int) -> Hashes:
        """The value that a register names: the only one, or their sum, each with its own key, closed with the register's hash."""
        if len(values) == 1:
            return values[0]
        out = np.zeros_like(values[0])
        for a, value in enumerate(values):
            out += np.uint64(mix(_key(function), np.uint64(a))) * value
        experts_kernel.close(out, ids, _key(function))
        return out

    def _run(self, x: _Taken, w: _Weights, ids: Hashes) -> Hashes:
        """Gate, up, the gated product and down of every row with the weights that its register names."""
        f = np.asarray(
            kernel.gate(self._product(x, w.gate, ids), self._product(x, w.up, ids), self._gate), np.uint64
        )
        if self._convert:
            kernel.convert(f, self._convert)
        return self._product(self._taken(f), w.down, ids)

    def _weights(self, node: Node, experts: tuple[int, int], function: int) -> _Weights:
        """Sums over the experts (first, count) that a register function chooses from; of one expert, its weights themselves."""
        ffn, hidden = self._experts.ffn, node.outputs
        gate, up = (self._sums(node, (part, ffn, hidden), experts, function) for part in PARTS[:2])
        return _Weights(gate, up, self._sums(node, (PARTS[2], hidden, ffn), experts, function))

    def _sums(
        self, node: Node, matrix: tuple[str, int, int], experts: tuple[int, int], function: int
    ) -> _Sums:
        part, outputs, inputs = matrix
        name, (first, count) = f"{node.tensor}.{part}", experts
        last = min(first + count, self._experts.count)
        key = _key(function) if count > 1 else np.uint64(0)
        shape = (first, last, outputs, inputs)
        weights = np.asarray(experts_kernel.over_experts(base(name), shape, key), np.uint64)
        if self._keys is None:
            return _Sums(weights, None, key)
        scales = experts_kernel.over_experts(base(f"{name}.scale"), (first, last, outputs, 1), key)
        return _Sums(weights, np.asarray(scales, np.uint64)[:, 0].copy(), key)

    def _taken(self, x: Hashes) -> _Taken:
        """What products take of x: in 8 bits quantised once, whatever multiplies it."""
        if self._keys is None:
            return _Taken(x, None)
        q, scales = kernel.quantised(x, self._keys)
        return _Taken(np.asarray(q, np.uint64), np.asarray(scales, np.uint64))

    def _product(self, x: _Taken, sums: _Sums, ids: Hashes) -> Hashes:
        """Rows 7 to 10 with the matrix that the register of hash ids[t] names."""
        if x.scales is None or sums.scales is None:
            y = experts_kernel.product_of(x.values, sums.weights, ids, sums.key, (self._tile, tag("PASS")))
            return np.asarray(y, np.uint64)
        y = experts_kernel.product8_of(x.values, x.scales, sums.weights, ids, sums.key, tag("PASS"))
        experts_kernel.times_named(y, sums.scales, ids, sums.key)
        return np.asarray(y, np.uint64)
