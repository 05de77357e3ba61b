"""Families that cannot be compiled yet, weighed by the rules of those that can: a model of the same shape, and what differs.

A stand-in has a graph; what its original has beside it (biases, sinks, shared experts, latent attention) is packed here by the
same rules, so bytes are those that a program would hold if it stored these tensors as it stores others.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod

from ticktrue.compile.pipeline import WIDEST_HEAD
from ticktrue.errors import UnsupportedModel
from ticktrue.graph.experts import experts_of
from ticktrue.isa.ops import LANES, lanes_of
from ticktrue.model import Family, LatentAttention, ModelSpec, canonical_shapes
from ticktrue.model.family import PLANNED, RUNNABLE
from ticktrue.partition.shard import PASSED, WEIGHTS
from ticktrue.place import Matrix, pack
from ticktrue.place.demand import Demand, LayerDemand, Part, one_of_each
from ticktrue.program import RegionClass
from ticktrue.units import ceil_div

_BEAT = 4  # vectors of 320 float32 lanes
_REPLACED = frozenset({"qkv", "o"})  # by latent attention


@dataclass(frozen=True, slots=True)
class StandIn:
    """A shape whose graph can be built, in place of `of`; `why`: what of `of` no program has yet, empty if it can be compiled."""

    of: ModelSpec
    spec: ModelSpec
    why: str


def stand_in(spec: ModelSpec) -> StandIn:
    """The model itself where it can be compiled, else the model of the same shape that stands for it."""
    why = lacking(spec)
    if not why:
        return StandIn(spec, spec, "")
    experts = spec.experts
    if experts is not None:
        experts = replace(experts, shared=0, router="softmax", normalise=True)
    plain = replace(
        spec, family=Family.QWEN3_MOE if spec.family in PLANNED else spec.family, attention_bias=False if spec.sinks
        else spec.attention_bias, output_bias=False, mlp_bias=False, sinks=False, gate_limit=0.0, yarn=None, experts=experts,
    )  # fmt: skip
    if spec.latent is not None:
        wide = spec.latent.kv_rank + spec.latent.rope_dim
        plain = replace(plain, latent=None, kv_heads=1, head_dim=wide)
    return StandIn(spec, plain, why)


def lacking(spec: ModelSpec) -> str:
    """What keeps a model from being compiled, in words; empty if nothing does."""
    if spec.family not in RUNNABLE:
        return f"{spec.family}: {PLANNED.get(spec.family, 'its operations')}"
    try:
        experts_of(spec, spec.layers - 1)
    except UnsupportedModel as problem:
        return problem.message
    wide = max(spec.attention_of(kind).head_dim for kind in spec.kinds)
    return f"heads of {wide} elements, more than {WIDEST_HEAD}" if wide > WIDEST_HEAD else ""


def complete(demand: Demand, stand: StandIn, fmt: str) -> Demand:
    """What the original takes: the demand of its stand-in, and what differs in each kind of layer."""
    if stand.spec is stand.of:
        return demand
    small, _ = one_of_each(stand.of)
    stored = _stored(one_of_each(stand.spec)[0])
    kinds = []
    for layer, kind in enumerate(demand.kinds):
        missing = {name: shape for name, shape in _layer(small, layer).items() if name not in stored[layer]}
        parts = list(kind.parts)
        if stand.of.latent is not None:
            parts = [p for p in parts if p.name not in _REPLACED and not _is_values(p)]
            parts += _latent(stand.of, stand.of.latent, demand.plan.chips, fmt)
        parts += _others(missing, demand.plan.chips, fmt, stand.of)
        kinds.append(LayerDemand(tuple(parts), kind.rows))
    return replace(demand, kinds=tuple(kinds))


def _layer(spec: ModelSpec, layer: int) -> dict[str, tuple[int, ...]]:
    before = f"layers.{layer}."
    return {n.removeprefix(before): s for n, s in canonical_shapes(spec).items() if n.startswith(before)}


def _stored(spec: ModelSpec) -> list[set[str]]:
    return [set(_layer(spec, layer)) for layer in range(spec.layers)]


def _is_values(part: Part) -> bool:
    """Whether it is the V of a cache: latent attention stores V within K."""
    return part.cls == RegionClass.STATE and not part.keys


def _packed(name: str, shapes: Iterable[tuple[int, int]], chips: int, fmt: str) -> list[Part]:
    """One phase of matrices [outputs, inputs], cut over outputs, as tiles; in 8 bits with a scale for each output."""
    matrices = tuple(Matrix(i, k, 0, ceil_div(n, chips)) for i, (n, k) in enumerate(shapes))
    passed, weight = PASSED[fmt], WEIGHTS[fmt]
    parts = [Part(RegionClass.WEIGHT, name, pack(matrices, lanes_of(passed), lanes_of(weight)).vectors)]
    if lanes_of(weight) == LANES:
        scales = sum(_BEAT * ceil_div(m.count, LANES) for m in matrices)
        parts.append(Part(RegionClass.CONST, f"{name}.scale", scales))
    return parts


def _latent(spec: ModelSpec, mla: LatentAttention, chips: int, fmt: str) -> list[Part]:
    """Latent attention in its absorbed form: kv_b is two products of each head, one for queries and one for results."""
    products = (
        ("qkv_a", [(mla.q_rank, spec.hidden), (mla.kv_rank + mla.rope_dim, spec.hidden)]),
        ("q_b", [(spec.heads * (mla.nope_dim + mla.rope_dim), mla.q_rank)]),
        ("k_absorbed", [(spec.heads * mla.kv_rank, mla.nope_dim)]),
        ("v_absorbed", [(spec.heads * mla.v_dim, mla.kv_rank)]),
        ("o", [(spec.hidden, spec.heads * mla.v_dim)]),
    )
    return [part for name, shapes in products for part in _packed(name, shapes, chips, fmt)]


_OF_LATENT = frozenset({"q_a", "q_b", "kv_a", "kv_b"})


def _others(missing: dict[str, tuple[int, ...]], chips: int, fmt: str, spec: ModelSpec) -> list[Part]:
    """Matrices as tiles; vectors as float32 lanes: of outputs cut as the outputs are, of experts one after another."""
    count = spec.experts.count if spec.experts else 1
    parts: list[Part] = []
    for name, tensors in (("shared.gu", ("shared.gate", "shared.up")), ("shared.down", ("shared.down",))):
        shapes = [(n, k) for n, k in (missing[t] for t in tensors if t in missing)]
        parts += _packed(name, shapes, chips, fmt) if shapes else []
    for name, shape in missing.items():
        if name in _OF_LATENT or name.startswith("shared."):
            continue
        stack = count if name.startswith("experts.") else 1
        lanes = ceil_div(prod(shape) // stack, 1 if name.endswith("norm") or name == "sinks" else chips)
        parts.append(Part(RegionClass.CONST, name, stack * _BEAT * ceil_div(lanes, LANES)))
    return parts
