"""Graph -> shards: every product is cut over its outputs, attention by KV head and context lanes; nothing is placed yet."""

from dataclasses import dataclass

from ticktrue.graph.types import Graph, NodeKind
from ticktrue.isa import Dtype
from ticktrue.isa.ops import LANES
from ticktrue.program import Plan, Tensor
from ticktrue.units import ceil_div

VECTOR = 320


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
class Shapes:
    """Every size the later stages need of a sharded step, in lanes, beats and vectors.

    `act` is the activation type (bf16, or float32 in format f32), `ka` its lanes per vector and `per_beat` its vectors per beat.
    `hv` KV heads share a vector group of `vg` vectors; `kv_groups` vector groups per position per chip.
    `round_heads` q heads of one KV head are attended at once; `rounds` such units per KV head.
    """

    tokens: int
    blocks: int
    local_blocks: int
    hidden: int
    ffn: int
    vocab: int
    heads: int
    kv_heads: int
    head_dim: int
    layers: int
    act: Dtype
    ka: int
    per_beat: int
    group_heads: int
    local_kv: int
    local_heads: int
    hv: int
    vg: int
    kv_groups: int
    round_heads: int
    rounds: int
    embed: Cut
    q: Cut
    k: Cut
    v: Cut
    attn: Cut
    y: Cut
    ffn_cut: Cut
    logits: Cut

    @property
    def x_beats(self) -> int:
        """Beats of a residual row."""
        return ceil_div(self.hidden, LANES)

    @property
    def q_rows(self) -> int:
        """Query rows attended at once: tokens x heads of a round."""
        return self.tokens * self.round_heads

    @property
    def vq(self) -> int:
        """Vectors of one head in the activation type."""
        return ceil_div(self.head_dim, self.ka)

    @property
    def partial_width(self) -> int:
        """Vectors of one attention partial: head_dim + 2 float32 lanes."""
        return ceil_div((self.head_dim + 2) * 4, VECTOR)


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


def shapes_of(graph: Graph, plan: Plan) -> Shapes:
    """All sizes of one step on one chip of `plan`."""
    spec, kind = graph.spec, graph.kind
    act = Dtype.F32 if graph.fmt == "f32" else Dtype.BF16
    ka = 80 if act == Dtype.F32 else 160
    d, group = spec.head_dim, spec.heads // spec.kv_heads
    local_kv = spec.kv_heads // plan.h
    hv = min(max(1, ka // d), local_kv)
    round_heads = _round_heads(group, kind.tokens)
    g, f32 = plan.chips, Dtype.F32
    return Shapes(
        tokens=kind.tokens, blocks=kind.blocks, local_blocks=ceil_div(kind.blocks, plan.cp), hidden=spec.hidden,
        ffn=spec.ffn, vocab=spec.vocab, heads=spec.heads, kv_heads=spec.kv_heads, head_dim=d, layers=spec.layers,
        act=act, ka=ka, per_beat=LANES // ka, group_heads=group, local_kv=local_kv, local_heads=local_kv * group,
        hv=hv, vg=ceil_div(hv * d, ka), kv_groups=ceil_div(local_kv, hv), round_heads=round_heads,
        rounds=group // round_heads,
        embed=Cut.of(spec.hidden, g, Dtype.BF16), q=Cut.of(spec.heads * d, g, f32), k=Cut.of(spec.kv_heads * d, g, f32),
        v=Cut.of(spec.kv_heads * d, g, act), attn=Cut.of(spec.heads * d, plan.h, act),
        y=Cut.of(spec.hidden, g, act), ffn_cut=Cut.of(spec.ffn, g, act), logits=Cut.of(spec.vocab, g, f32),
    )  # fmt: skip


def partition(graph: Graph, plan: Plan) -> ShardedGraph:
    """Cuts every product over outputs: each rank gets ⌈N / chips⌉ of them, zero beyond N."""
    g = plan.chips
    tensors = [Tensor("embed", graph.spec.vocab, graph.spec.hidden, ceil_div(graph.spec.hidden, g))]
    widths = {"q": graph.spec.hidden, "k": graph.spec.hidden, "v": graph.spec.hidden, "gate": graph.spec.hidden,
              "up": graph.spec.hidden, "o": graph.spec.heads * graph.spec.head_dim, "down": graph.spec.ffn,
              "lm_head": graph.spec.hidden}  # fmt: skip
    for node in graph.nodes:
        match node.kind:
            case NodeKind.LINEAR | NodeKind.LOGITS:
                inputs = widths[node.tensor.rsplit(".", 1)[-1]]
                tensors.append(Tensor(node.tensor, node.outputs, inputs, ceil_div(node.outputs, g)))
            case NodeKind.NORM:
                tensors.append(Tensor(node.tensor, 1, node.outputs, node.outputs))
            case _:
                pass
    return ShardedGraph(graph, plan, shapes_of(graph, plan), tuple(tensors))
