"""What a model weighs by number format, before anything is cut or packed: weights, KV cache, activations of a step."""

from dataclasses import dataclass

from ticktrue.model.count import kv_elements, parameters
from ticktrue.model.spec import LayerKind, ModelSpec
from ticktrue.units import Bytes

CONTEXTS = (1_000, 10_000, 32_768, 100_000, 262_144, 1_048_576)
"""Contexts at which a cache is listed, as far as a model goes."""

SIZES = {"bf16": 2, "fp8": 1, "int8": 1}
"""Bytes of a number in each format that is counted."""


@dataclass(frozen=True, slots=True)
class Precision:
    """Bytes if every number had one format: no scales, no packing, a tied embedding once."""

    format: str
    weights_bytes: Bytes
    kv_bytes: Bytes
    activation_bytes: Bytes

    @property
    def total_bytes(self) -> Bytes:
        """All three."""
        return Bytes(self.weights_bytes + self.kv_bytes + self.activation_bytes)


def precisions(spec: ModelSpec, context: int, slots: int, tokens: int) -> tuple[Precision, ...]:
    """Weights, KV cache of `slots` sequences of `context` positions, activations of a step of `tokens` each, by format."""
    weights, kv = parameters(spec), slots * kv_elements(spec, context)
    live = slots * tokens * live_elements(spec)
    return tuple(
        Precision(name, Bytes(weights * size), Bytes(kv * size), Bytes(live * size))
        for name, size in SIZES.items()
    )


def kv_by_context(spec: ModelSpec, context: int, slots: int) -> tuple[tuple[int, int], ...]:
    """(positions, numbers in the caches of `slots` sequences) at several contexts and at `context`, ascending."""
    listed = sorted({c for c in (*CONTEXTS, context) if c <= spec.max_positions})
    return tuple((c, slots * kv_elements(spec, c)) for c in listed)


def live_elements(spec: ModelSpec) -> int:
    """Numbers that one token row holds at once: residual and its norm, with the widest of what a block or the head makes.

    Of attention q, k, v and the result; of a feed-forward block gate, up and their product, for each expert a token is sent to.
    """
    wide = [spec.vocab]
    for kind in LayerKind:
        if kind in spec.kinds:
            at = spec.attention_of(kind)
            wide.append(2 * at.heads * at.head_dim + 2 * at.kv_heads * at.head_dim)
    if spec.latent is not None:  # absorbed: a query and a result of the compressed width for each head
        wide.append(spec.heads * (2 * spec.latent.kv_rank + spec.latent.rope_dim))
    if spec.experts is None or spec.experts.dense_layers:
        wide.append(3 * spec.ffn)
    if spec.experts is not None:
        wide.append(3 * spec.experts.ffn * (spec.experts.per_token + spec.experts.shared))
    return 2 * spec.hidden + max(wide)
