"""What one chip holds of a model, before it is placed: exact from one layer of each kind, so that any size takes milliseconds.

Layers of one kind have regions of one size, so a model of one layer of each kind, cut and packed as a whole model is, gives the
sizes of all; the layers are then counted. Nothing here asks whether the model can be run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ticktrue.graph.build import build_graph
from ticktrue.hw import System
from ticktrue.isa import OpTable
from ticktrue.model import LayerKind, ModelSpec
from ticktrue.partition import ShardedGraph, partition, rings_of
from ticktrue.place.fill import Wanted, fill_groups, layer_of
from ticktrue.place.image import _arrange, _row_estimate, _wanted
from ticktrue.place.layout import Phase
from ticktrue.program import Plan, RegionClass, StepKind
from ticktrue.units import Bytes, ceil_div

VECTOR_BYTES = 320
CODE = "code"
_PLAIN = "bf16"


@dataclass(frozen=True, slots=True)
class Part:
    """A region of one chip, without place: its class, its name (that within its layer, if it has one), its vectors."""

    cls: RegionClass
    name: str
    vectors: int
    keys: bool = False


@dataclass(frozen=True, slots=True)
class LayerDemand:
    """What a layer of one kind takes: its regions, and rows of code."""

    parts: tuple[Part, ...]
    rows: int


@dataclass(frozen=True, slots=True)
class Demand:
    """What a model takes on one chip of a group.

    `start[g]`: vectors of bank group g that inboxes and scratch take, whatever the layers; `inbox` of them are inboxes.
    `first` is held by the chips that take a token in, `last` by those that choose one, `all_stages` by every chip.
    `kinds` of layers; `kind_of[i]` is that of layer i. `rows` of code come with no layer.
    """

    plan: Plan
    start: tuple[int, ...]
    inbox: int
    first: tuple[Part, ...]
    last: tuple[Part, ...]
    all_stages: tuple[Part, ...]
    kinds: tuple[LayerDemand, ...]
    kind_of: tuple[int, ...]
    rows: int
    row_bytes: int
    group_vectors: int

    @property
    def layers(self) -> int:
        """Layers of the whole model."""
        return len(self.kind_of)


@dataclass(frozen=True, slots=True)
class Held:
    """What a chip holds, in bytes by region class, and whether its bank groups hold that; `fullest_bytes` of `group_bytes`.

    `largest` names its largest region, of `largest_bytes`: one region lies in one bank group.
    """

    by_class: Mapping[str, int]
    fullest_bytes: Bytes
    group_bytes: Bytes
    largest: str
    largest_bytes: Bytes

    @property
    def total_bytes(self) -> Bytes:
        """All of it."""
        return Bytes(sum(self.by_class.values()))

    @property
    def fits(self) -> bool:
        """Whether every bank group holds what lies in it."""
        return self.fullest_bytes <= self.group_bytes


def one_of_each(spec: ModelSpec) -> tuple[ModelSpec, tuple[int, ...]]:
    """A model of one layer of each kind that `spec` has, and for every layer of `spec` the layer of it that it is like."""
    dense = spec.experts.dense_layers if spec.experts else spec.layers
    marks = [(layer >= dense, spec.kind(layer)) for layer in range(spec.layers)]
    kinds = sorted(set(marks), key=lambda m: (m[0], list(LayerKind).index(m[1])))
    experts = spec.experts
    if experts is not None:
        experts = replace(experts, dense_layers=sum(not mixed for mixed, _ in kinds))
    small = replace(
        spec, layers=len(kinds), layer_kinds=tuple(kind for _, kind in kinds), experts=experts,
    )  # fmt: skip
    return small, tuple(kinds.index(mark) for mark in marks)


def demand_of(
    spec: ModelSpec, system: System, plan: Plan, step: StepKind, formats: tuple[str, str]
) -> Demand:
    """What `spec` takes on each chip of `plan`.

    Args:
        spec: of a model whose graph can be built; whether its arithmetic is there in these formats is not asked.
        system: whose chips and facts.
        plan: head groups and context lanes of one group of chips.
        step: the largest step: tokens, slots and blocks that the image holds.
        formats: of weights and activations, and of the cache.
    """
    small, kind_of = one_of_each(spec)
    rings = rings_of(small, plan, step.tokens, step.blocks)
    graph = replace(build_graph(small, step, _PLAIN, rings), fmt=formats[0], kv=formats[1])
    sharded = partition(graph, plan)
    arranged = _arrange(sharded, system)
    groups = OpTable.of(system.chip).mem_groups
    start, inbox = [0] * groups, 0
    kinds: list[list[Part]] = [[] for _ in range(small.layers)]
    others: list[Part] = []
    for region in arranged.regions:
        if region.cls in {RegionClass.INBOX, RegionClass.ARENA}:
            start[region.group] += region.vectors
            inbox += region.vectors if region.cls == RegionClass.INBOX else 0
        elif region.cls != RegionClass.CODE:
            layer, name = layer_of(region.name)
            part = Part(region.cls, name, region.vectors, _wanted(region).keys)
            (others if layer < 0 else kinds[layer]).append(part)
    base, rows = _rows(sharded, arranged.phases, system.chip.value("streams"))
    last = tuple(p for p in others if p.name.startswith("logits.") or p.name in _HEAD)
    first = tuple(p for p in others if p.name == "embed")
    return Demand(
        plan=plan, start=tuple(start), inbox=inbox, first=first, last=last,
        all_stages=tuple(p for p in others if p not in first + last),
        kinds=tuple(LayerDemand(tuple(parts), n) for parts, n in zip(kinds, rows, strict=True)), kind_of=kind_of,
        rows=base, row_bytes=system.chip.value("code_bytes_per_row"),
        group_vectors=OpTable.of(system.chip).group_vectors,
    )  # fmt: skip


_HEAD = frozenset({"final_norm", "lm_head.scale"})


def _rows(sharded: ShardedGraph, phases: tuple[Phase, ...], streams: int) -> tuple[int, list[int]]:
    """Rows of code that come with no layer, and with one layer of each kind."""
    own: list[list[Phase]] = [[] for _ in range(sharded.shapes.layers)]
    others: list[Phase] = []
    for phase in phases:
        layer = layer_of(phase.name)[0]
        (others if layer < 0 else own[layer]).append(phase)

    def estimate(layers: Sequence[int], of: Sequence[Phase]) -> int:
        shapes = replace(
            sharded.shapes,
            layers=len(layers),
            kind_of=tuple(sharded.shapes.kind_of[layer] for layer in layers),
        )
        return _row_estimate(replace(sharded, shapes=shapes), tuple(of), streams)

    empty = estimate((), ())
    rows = [estimate((layer,), phases_of_layer) - empty for layer, phases_of_layer in enumerate(own)]
    return estimate((), others), rows


def hold(
    demand: Demand, layers: Sequence[int] | None = None, *, first: bool = True, last: bool = True
) -> Held:
    """What a chip holds of some layers (by default all); `first` and `last`: whether tokens come in and are chosen there."""
    own = range(demand.layers) if layers is None else layers
    rows = demand.rows + sum(demand.kinds[demand.kind_of[layer]].rows for layer in own)
    code = Part(RegionClass.CODE, CODE, ceil_div(rows * demand.row_bytes, VECTOR_BYTES))
    placed = [
        (-1, p)
        for p in (*(demand.first if first else ()), *demand.all_stages, *(demand.last if last else ()))
    ]
    for layer in own:
        placed += [(layer, p) for p in demand.kinds[demand.kind_of[layer]].parts]
    placed.append((-1, code))
    scratch = sum(demand.start) - demand.inbox
    by_class = {"inbox": demand.inbox, "arena": scratch}
    for _, part in placed:
        by_class[part.cls.name.lower()] = by_class.get(part.cls.name.lower(), 0) + part.vectors
    if sum(by_class.values()) > demand.group_vectors * len(
        demand.start
    ):  # more than all groups: no need to look
        fullest = ceil_div(sum(by_class.values()), len(demand.start))
    else:
        fullest = max(
            fill_groups([_named(layer, p) for layer, p in placed], demand.start, demand.group_vectors).fill
        )
    largest = max((part for _, part in placed), key=lambda p: p.vectors)
    return Held(
        {name: v * VECTOR_BYTES for name, v in by_class.items() if v}, Bytes(fullest * VECTOR_BYTES),
        Bytes(demand.group_vectors * VECTOR_BYTES), largest.name, Bytes(largest.vectors * VECTOR_BYTES),
    )  # fmt: skip


def _named(layer: int, part: Part) -> Wanted:
    """A part as a region of its layer, under the name that it has in an image: ties between sizes go by name."""
    if layer < 0:
        return Wanted(part.name, -1, part.name, part.vectors, part.keys)
    before = "layers" if part.cls == RegionClass.CONST else "L"
    name = f"layers.{layer}.{part.name}" if before == "layers" else f"L{layer}.{part.name}"
    return Wanted(name, layer, part.name, part.vectors, part.keys)
