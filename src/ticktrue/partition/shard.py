"""Graph -> shards: every product is cut over its outputs, attention by KV head and context lanes; nothing is placed yet."""

from dataclasses import dataclass, replace

from ticktrue.graph.experts import PARTS, experts_of
from ticktrue.graph.types import Graph, Node, NodeKind
from ticktrue.isa import Dtype
from ticktrue.isa.ops import BLOCK, LANES, lanes_of
from ticktrue.model import ModelSpec, in_eight_bits
from ticktrue.program import Plan, Tensor
from ticktrue.program import columns as col
from ticktrue.units import ceil_div

VECTOR = 320
PART = 256  # most values of a part of a head that is wider than a beat; parts are equal
WEIGHTS = {"bf16": Dtype.BF16, "f32": Dtype.BF16, "int8": Dtype.INT8, "fp8": Dtype.E4M3}
PASSED = {"bf16": Dtype.BF16, "f32": Dtype.F32, "int8": Dtype.INT8, "fp8": Dtype.E4M3}


@dataclass(frozen=True, slots=True)
class Cut:
    """How one result is cut over outputs: `shard` columns per source, gathered as beats of `dtype`.

    `beats` per source; each beat is `width` vectors in memory and on links.
    """

    columns: int
    shard: int
    dtype: Dtype
    beats: int
    width: int

    @staticmethod
    def of(columns: int, sources: int, dtype: Dtype) -> "Cut":
        """The cut of `columns` over `sources` ranks, ⌈columns / sources⌉ each."""
        shard = ceil_div(columns, sources)
        size = 4 if dtype == Dtype.F32 else 2
        beats = ceil_div(shard, LANES)
        width = ceil_div(min(shard, LANES) * size, VECTOR)
        return Cut(columns, shard, dtype, beats, width)

    def span(self, first: int, count: int) -> tuple[int, int]:
        """(first source beat, number of source beats) that hold columns first .. first + count - 1."""

        def beat(column: int) -> int:
            rank, inside = divmod(column, self.shard)
            return rank * self.beats + inside // LANES

        u0, u1 = beat(first), beat(min(first + count, self.columns) - 1)
        return u0, u1 - u0 + 1


@dataclass(frozen=True, slots=True)
class AttentionShapes:
    """Sizes of one kind of attention on one chip.

    `act` is the type that q, k, v are rounded to, `ka` its lanes per vector; `stored` the type of the cache, `kl` its lanes per
    vector. `suffix` ends the names of its regions. `h` head groups of `cp` context lanes share it, whose chips talk in the
    patterns `across` (the same place of every group) and `context` (a group). It reads `blocks` blocks (a ring of `ring` at most,
    if there is one), of which a chip has `local_blocks`. `hv` KV heads share a vector group of `vg` vectors; `kv_groups` vector
    groups per position per chip. `round_heads` q heads of one KV head are attended at once; `rounds` such units per KV head. A
    head whose values leave no two lanes of a beat free for l and m is attended in `parts` of `value_dim` values.
    """

    suffix: str
    h: int
    cp: int
    across: int
    context: int
    heads: int
    kv_heads: int
    head_dim: int
    window: int
    ring: int
    scale: float
    tokens: int
    blocks: int
    local_blocks: int
    act: Dtype
    ka: int
    stored: Dtype
    kl: int
    group_heads: int
    local_kv: int
    local_heads: int
    hv: int
    vg: int
    kv_groups: int
    round_heads: int
    rounds: int
    value_dim: int
    parts: int
    q: Cut
    k: Cut
    v: Cut
    attn: Cut

    @property
    def q_rows(self) -> int:
        """Query rows attended at once: tokens of a slot x heads of a round."""
        return self.tokens * self.round_heads

    @property
    def vq(self) -> int:
        """Vectors of one head in the activation type."""
        return ceil_div(self.head_dim, self.ka)

    @property
    def units(self) -> int:
        """What is attended separately on a chip, per slot: (KV head, round)."""
        return self.local_kv * self.rounds

    @property
    def partial_width(self) -> int:
        """Vectors of one attention partial: value_dim + 2 float32 lanes."""
        return ceil_div((self.value_dim + 2) * 4, VECTOR)

    @property
    def v_groups(self) -> int:
        """State regions of V per position: vector groups, or the parts of each head."""
        return self.kv_groups * self.parts

    @property
    def v_width(self) -> int:
        """Vectors of V per position in one of them."""
        return self.vg if self.parts == 1 else ceil_div(self.value_dim, self.kl)

    @property
    def kr_width(self) -> int:
        """Vectors of the new K of a vector group, not yet in the type of the cache."""
        return ceil_div(self.hv * self.head_dim, self.ka)

    @property
    def vm_width(self) -> int:
        """Vectors of the new V of a vector group or part, not yet in the type of the cache."""
        return self.kr_width if self.parts == 1 else ceil_div(self.value_dim, self.ka)

    @property
    def even(self) -> bool:
        """Whether all parts of a head are of one size."""
        return self.parts * self.value_dim == self.head_dim

    def part_values(self, part: int) -> int:
        """Values in a part of a head."""
        return min(self.value_dim, self.head_dim - part * self.value_dim)


@dataclass(frozen=True, slots=True)
class ExpertShapes:
    """A mixture of experts, `per_token` of `count` for each row: cuts of the router's logits, of the gated product, of y_j.

    `held`: whole experts on a chip, 0 where each is cut over all chips. A chip runs `slots` of them for every row.
    """

    count: int
    per_token: int
    ffn: int
    logits: Cut
    ffn_cut: Cut
    y: Cut
    held: int
    slots: int

    @property
    def named(self) -> bool:
        """Whether a slot is a rank, whose expert a register names; else a slot is an expert that the chip holds."""
        return self.held == 0 or self.per_token < self.held


@dataclass(frozen=True, slots=True)
class Shapes:
    """Every size the later stages need of a sharded step, in lanes, beats and vectors.

    `rows` = slots x tokens: row s * T + t is token t of slot s. `act` is the activation type (bf16, or float32 in format f32),
    `ka` its lanes per vector and `per_beat` its vectors per beat. `dense`: whether some layer has no experts.

    `weight` is the type of weights, `passed` that of activations in products with them, `depth` its lanes per vector: the K of
    a tile.
    """

    tokens: int
    slots: int
    rows: int
    blocks: int
    hidden: int
    ffn: int
    vocab: int
    layers: int
    act: Dtype
    ka: int
    per_beat: int
    weight: Dtype
    passed: Dtype
    depth: int
    kinds: tuple[AttentionShapes, ...]
    kind_of: tuple[int, ...]
    embed: Cut
    y: Cut
    ffn_cut: Cut
    logits: Cut
    experts: ExpertShapes | None
    dense: bool

    @property
    def x_beats(self) -> int:
        """Beats of a residual row."""
        return ceil_div(self.hidden, LANES)

    def attention(self, layer: int) -> AttentionShapes:
        """The kind of attention of a layer."""
        return self.kinds[self.kind_of[layer]]


@dataclass(frozen=True, slots=True)
class ShardedGraph:
    """A graph, its plan and the sizes that follow."""

    graph: Graph
    plan: Plan
    shapes: Shapes
    tensors: tuple[Tensor, ...]


def _round_heads(group: int, tokens: int) -> int:
    """The most q heads of a KV head, a divisor of the group, whose rows for all tokens fit 320 lanes."""
    return max(n for n in range(1, group + 1) if group % n == 0 and (n * tokens <= LANES or n == 1))


def ring_blocks(window: int, cp: int, t_max: int, blocks: int) -> int:
    """Blocks of a sliding layer's ring; 0 without a window.

    A power of two that holds the window and a whole step past it, or all `blocks` of the image where those are fewer.
    """
    if window == 0:
        return 0
    need = max(cp, min(blocks, ceil_div(window + t_max, BLOCK) + 1))
    return 1 << (need - 1).bit_length()


def rings_of(spec: ModelSpec, plan: Plan, t_max: int, blocks: int) -> tuple[int, ...]:
    """The ring of each kind of attention of a model, in an image of `blocks` blocks a slot."""
    return tuple(
        ring_blocks(spec.attention_of(kind).window, grid.cp, t_max, blocks)
        for kind, grid in zip(spec.kinds, plan.grids, strict=True)
    )


def kv_heads(spec: ModelSpec) -> tuple[int, ...]:
    """KV heads of each kind of attention: what its head groups share."""
    return tuple(spec.attention_of(k).kv_heads for k in spec.kinds)


def _attention_shapes(graph: Graph, plan: Plan, index: int) -> AttentionShapes:
    spec, kind = graph.spec, graph.kind
    at = spec.attention_of(spec.kinds[index])
    act = Dtype.F32 if graph.fmt == "f32" else Dtype.BF16
    stored = Dtype.E4M3 if graph.kv == "fp8" else act
    ka, kl, d, ring = lanes_of(act), lanes_of(stored), at.head_dim, graph.rings[index]
    grid, g, f32 = plan.grids[index], plan.chips, Dtype.F32
    local_kv = at.kv_heads // grid.h
    hv = min(max(1, min(kl, LANES - 1) // d), local_kv)  # the last lane of a beat is for the ones beside V
    round_heads = _round_heads(at.group, kind.tokens)
    blocks = min(kind.blocks, ring) if ring else kind.blocks
    value_dim = d if d + 2 <= LANES else ceil_div(d, ceil_div(d, PART))
    return AttentionShapes(
        suffix=f".{index}" if index else "", h=grid.h, cp=grid.cp, across=plan.pattern(col.PATTERN_HEADS, index),
        context=plan.pattern(col.PATTERN_CONTEXT, index), heads=at.heads, kv_heads=at.kv_heads, head_dim=d, window=at.window,
        ring=ring, scale=at.scale, tokens=kind.tokens, blocks=blocks, local_blocks=ceil_div(blocks, grid.cp), act=act, ka=ka,
        stored=stored, kl=kl, group_heads=at.group, local_kv=local_kv, local_heads=local_kv * at.group, hv=hv,
        vg=ceil_div(hv * d, kl), kv_groups=ceil_div(local_kv, hv), round_heads=round_heads, rounds=at.group // round_heads,
        value_dim=value_dim, parts=ceil_div(d, value_dim), q=Cut.of(at.heads * d, g, f32), k=Cut.of(at.kv_heads * d, g, f32),
        v=Cut.of(at.kv_heads * d, g, f32 if spec.v_norm else act), attn=Cut.of(at.heads * d, grid.h, act),
    )  # fmt: skip


def _expert_shapes(graph: Graph, plan: Plan, act: Dtype) -> ExpertShapes | None:
    spec, g = graph.spec, plan.chips
    of = experts_of(spec, spec.layers - 1)
    if of is None:
        return None
    logits = Cut.of(of.count, g, Dtype.F32)
    if graph.homes == 0:
        cuts = (logits, Cut.of(of.ffn, g, act), Cut.of(spec.hidden, g, Dtype.F32))
        return ExpertShapes(of.count, of.per_token, of.ffn, *cuts, 0, of.per_token)
    held = held_experts(of.count, g)
    whole = replace(
        Cut.of(of.ffn, 1, act), width=LANES // lanes_of(act)
    )  # whole beats, as products take them
    cuts = (logits, whole, Cut.of(spec.hidden, 1, Dtype.F32))
    return ExpertShapes(of.count, of.per_token, of.ffn, *cuts, held, min(of.per_token, held))


def held_experts(count: int, chips: int) -> int:
    """Whole experts on each of `chips` chips, the last ones with fewer or none."""
    return ceil_div(count, chips)


def shapes_of(graph: Graph, plan: Plan) -> Shapes:
    """All sizes of one step on one chip of `plan`."""
    spec, kind = graph.spec, graph.kind
    act = Dtype.F32 if graph.fmt == "f32" else Dtype.BF16
    g = plan.chips
    return Shapes(
        tokens=kind.tokens, slots=kind.slots, rows=graph.rows, blocks=kind.blocks, hidden=spec.hidden, ffn=spec.ffn,
        vocab=spec.vocab, layers=spec.layers, act=act, ka=lanes_of(act), per_beat=LANES // lanes_of(act),
        weight=WEIGHTS[graph.fmt], passed=PASSED[graph.fmt], depth=lanes_of(PASSED[graph.fmt]),
        kinds=tuple(_attention_shapes(graph, plan, i) for i in range(len(spec.kinds))),
        kind_of=tuple(spec.kinds.index(spec.kind(layer)) for layer in range(spec.layers)),
        embed=Cut.of(spec.hidden, g, Dtype.BF16), y=Cut.of(spec.hidden, g, act), ffn_cut=Cut.of(spec.ffn, g, act),
        logits=Cut.of(spec.vocab, g, Dtype.F32), experts=_expert_shapes(graph, plan, act),
        dense=any(experts_of(spec, layer) is None for layer in range(spec.layers)),
    )  # fmt: skip


def _stacked(graph: Graph, node: Node, g: int) -> list[Tensor]:
    """Gate, up and down of all experts of a layer, cut over their outputs or whole; in 8 bits each followed by its scales."""
    of, hidden = experts_of(graph.spec, node.layer), graph.spec.hidden
    if of is None:
        return []
    sizes = ((of.ffn, hidden), (of.ffn, hidden), (hidden, of.ffn))
    out: list[Tensor] = []
    held = held_experts(of.count, g) if graph.homes else 0
    for part, (n, k) in zip(PARTS, sizes, strict=True):
        name, shard = f"{node.tensor}.{part}", n if held else ceil_div(n, g)
        out.append(Tensor(name, n, k, shard, of.count, held))
        if graph.eight_bits:
            out.append(Tensor(scale_name(name), n, 1, shard, of.count, held))
    return out


def scale_name(tensor: str) -> str:
    """Name of the scales of a matrix in 8 bits, one per output."""
    return f"{tensor}.scale"


def partition(graph: Graph, plan: Plan) -> ShardedGraph:
    """Cuts every product over outputs: each rank gets ⌈N / chips⌉ of them, zero beyond N."""
    g, spec = plan.chips, graph.spec
    tensors = [Tensor("embed", spec.vocab, spec.hidden, ceil_div(spec.hidden, g))]
    width = {node.id: node.outputs for node in graph.nodes}
    for node in graph.nodes:
        match node.kind:
            case NodeKind.LINEAR | NodeKind.LOGITS:
                tensors.append(
                    Tensor(node.tensor, node.outputs, width[node.inputs[0]], ceil_div(node.outputs, g))
                )
                if graph.eight_bits and in_eight_bits(node.tensor):
                    tensors.append(
                        Tensor(scale_name(node.tensor), node.outputs, 1, ceil_div(node.outputs, g))
                    )
                if node.bias:
                    tensors.append(Tensor(node.bias, node.outputs, 1, ceil_div(node.outputs, g)))
            case NodeKind.NORM:
                tensors.append(Tensor(node.tensor, 1, node.outputs, node.outputs))
            case NodeKind.HEAD_NORM if node.tensor:
                d = spec.attention(node.layer).head_dim
                tensors.append(Tensor(node.tensor, 1, d, d))
            case NodeKind.EXPERTS:
                tensors += _stacked(graph, node, g)
            case NodeKind.LAYER_SCALAR:
                tensors.append(Tensor(node.tensor, 1, 1, 1))
            case _:
                pass
    return ShardedGraph(graph, plan, shapes_of(graph, plan), tuple(tensors))
