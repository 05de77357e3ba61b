"""What a step of a model reads and computes, counted from its shape: weights, cache, products, kernels.

Every count is exact but two: which experts a batch meets (its expectation under a uniform, independent router), and how
many kernels a layer takes (`layer_kernels`, a rule). What it does not know: fusion, padding, an unequal cut.
"""

from collections import Counter
from dataclasses import dataclass
from math import prod
from typing import Literal

from ticktrue.model import Attention, ModelSpec, canonical_shapes

Role = Literal["attention", "ffn", "experts", "head", "small"]

EVERY = 1 << 30  # a cut without limit
# Down-projections of latent attention and all vectors are on every GPU; so is the router.
_REPLICATED = frozenset({"q_a", "kv_a", "router"})
_END_KERNELS = 4  # embedding, final norm, head, choice


@dataclass(frozen=True, slots=True)
class Piece:
    """Weights of one role that can be cut `limit` ways and are copied beyond; `elements` of the whole model.

    Experts count all of them; `role` small is not multiplied as a matrix, or is too small to matter.
    """

    role: Role
    elements: int
    limit: int


@dataclass(frozen=True, slots=True)
class KvPiece:
    """Cache of the layers of one kind: numbers per position of a sequence, of at most `window` positions (0: all)."""

    elements: int
    window: int
    limit: int


@dataclass(frozen=True, slots=True)
class AttentionWork:
    """Operations per query token and position seen, in the layers of one kind; cut over the heads."""

    operations: int
    window: int


@dataclass(frozen=True, slots=True)
class Traffic:
    """A model as a GPU sees it.

    Attributes:
        hidden, vocab, layers: as in the ModelSpec.
        pieces: weights that are read once per step whatever the batch, and the experts.
        embedding: elements of the input embedding; only rows of it are read. Tied: the head reads the same ones.
        experts: count and number per token; (0, 0) if there are none.
        degrees: query heads, and KV heads of each kind of attention, which a tensor-parallel cut must respect.
    """

    hidden: int
    vocab: int
    layers: int
    pieces: tuple[Piece, ...]
    kv: tuple[KvPiece, ...]
    attention: tuple[AttentionWork, ...]
    embedding: int
    tied: bool
    experts: tuple[int, int]
    kernels: int
    heads: int
    kv_heads: tuple[int, ...]


def traffic(spec: ModelSpec) -> Traffic:
    """The counts of a model."""
    weights: Counter[tuple[Role, int]] = Counter()
    embedding = 0
    for name, shape in canonical_shapes(spec).items():
        if name == "embed":
            embedding = prod(shape)
        elif not name.endswith("layer_scalar"):
            weights[_place(spec, name, shape)] += prod(shape)
    if spec.tied_embeddings:
        weights["head", EVERY] += embedding
    experts = spec.experts
    return Traffic(
        hidden=spec.hidden,
        vocab=spec.vocab,
        layers=spec.layers,
        pieces=tuple(Piece(role, count, limit) for (role, limit), count in sorted(weights.items())),
        kv=_cache(spec),
        attention=_attention(spec),
        embedding=embedding,
        tied=spec.tied_embeddings,
        experts=(experts.count, experts.per_token) if experts else (0, 0),
        kernels=_END_KERNELS + sum(layer_kernels(spec, layer) for layer in range(spec.layers)),
        heads=spec.heads,
        kv_heads=()
        if spec.latent
        else tuple(sorted({spec.attention_of(kind).kv_heads for kind in spec.kinds})),
    )


def layer_kernels(spec: ModelSpec, layer: int) -> int:
    """Kernels of a layer: one for each step that present engines run apart; all-reduces are counted elsewhere.

    Attention: q, k and v as one; rotary embedding with the cache's write; scores to values as one; output. Latent attention:
    both down-projections as one, their norms, q up, k absorbed, rotary with the write, scores to values, v up, output.
    Feed-forward: gate and up as one, activation, down. Experts: router, choice, dispatch, gate and up, activation, down,
    combination; shared ones a feed-forward more. A norm before each block (with the sum before it), one after it if there is one.
    """
    attention = 4 + spec.qk_norm if spec.latent is None else 8
    norms = 4 if spec.post_norms else 2
    experts = spec.experts
    if experts is None or layer < experts.dense_layers:
        return attention + norms + 3
    return attention + norms + 7 + (3 if experts.shared else 0)


def _place(spec: ModelSpec, name: str, shape: tuple[int, ...]) -> tuple[Role, int]:
    """Role of a tensor, and how many ways it can be cut."""
    if name == "lm_head":
        return "head", EVERY
    _, _, part = name.partition(".")
    number, _, tensor = part.partition(".")
    if tensor.startswith("experts."):
        return "experts", EVERY
    if len(shape) < 2:  # noqa: PLR2004, a vector
        return "small", 1
    if tensor in _REPLICATED:
        return ("small" if tensor == "router" else "attention"), 1
    if tensor in {"k", "v"}:
        return "attention", spec.attention(int(number)).kv_heads
    role: Role = "attention" if tensor in {"q", "o", "q_b", "kv_b"} else "ffn"
    return role, EVERY


def _cache(spec: ModelSpec) -> tuple[KvPiece, ...]:
    """The cache, by kind of layer."""
    if spec.latent is not None:
        return (KvPiece(spec.layers * (spec.latent.kv_rank + spec.latent.rope_dim), 0, 1),)
    found: Counter[tuple[int, int]] = Counter()
    for layer in range(spec.layers):
        at = spec.attention(layer)
        found[at.window, at.kv_heads] += 2 * at.kv_heads * at.head_dim
    return tuple(KvPiece(elements, window, limit) for (window, limit), elements in sorted(found.items()))


def _attention(spec: ModelSpec) -> tuple[AttentionWork, ...]:
    """Operations of scores and values: a multiplication and an addition each."""
    found: Counter[int] = Counter()
    for layer in range(spec.layers):
        found[0 if spec.latent else spec.attention(layer).window] += _operations(spec, spec.attention(layer))
    return tuple(AttentionWork(operations, window) for window, operations in sorted(found.items()))


def _operations(spec: ModelSpec, at: Attention) -> int:
    """Per query token and position: latent attention in the absorbed form, over the compressed cache."""
    if spec.latent is not None:
        return 2 * spec.heads * (2 * spec.latent.kv_rank + spec.latent.rope_dim)
    return 4 * at.heads * at.head_dim
