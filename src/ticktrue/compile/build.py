"""Graph nodes -> chains, in dataflow order: one timetable without cycles yet."""

from collections.abc import Container

from ticktrue.compile import attention, experts, head, heads, linear, rows
from ticktrue.compile.chains import ChainWriter
from ticktrue.compile.step import Step, all_gather
from ticktrue.graph.experts import experts_of
from ticktrue.graph.types import Node, NodeKind
from ticktrue.hw import System
from ticktrue.partition import ShardedGraph
from ticktrue.place import phases_of, place_scratch
from ticktrue.program import Image, Output, Timetable

Spans = dict[int, tuple[int, int]]
"""First and last chain of each layer."""


def build_chains(sharded: ShardedGraph, image: Image, system: System) -> Timetable:
    """All chains of one step, unscheduled: every start is 0, every port 0."""
    return build_layers(sharded, image, system, range(sharded.graph.spec.layers))[0]


def build_layers(
    sharded: ShardedGraph, image: Image, system: System, layers: Container[int]
) -> tuple[Timetable, Spans]:
    """As `build_chains`, with the chains of some layers only, each of which reads what the one before it has written."""
    scratch = place_scratch(sharded, image)
    regions = image.regions + scratch
    writer = ChainWriter(regions, sharded.plan, system)
    phases = {p.name: p for p in phases_of(sharded)}
    step = Step(sharded, writer, phases, image.key.slots)
    spans: Spans = {}
    for node in sharded.graph.nodes:
        if node.layer < 0 or node.layer in layers:
            begin = len(writer.labels)
            _node(step, node)
            if node.layer >= 0:
                spans[node.layer] = (spans.get(node.layer, (begin, 0))[0], len(writer.labels) - 1)
    templates, start, chains, values = writer.tables()
    n, s = sharded.graph.logit_rows, sharded.shapes
    outputs: tuple[Output, ...] = (Output("logits", writer.index["logits"], 0, n, s.logits.beats),)
    if sharded.graph.kind.sampler == "chip":
        outputs += (Output("next_token", writer.index["next"], 0, n, 1),)
        if sharded.graph.kind.logits == "all":
            outputs += (Output("accept", writer.index["accept"], 0, s.slots, 1),)
    timetable = Timetable(
        kind=sharded.graph.kind, scratch=scratch, templates=templates, template_start=start, chains=chains, rows=values,
        labels=tuple(writer.labels), outputs=outputs, loops=(), duration=0, dataflow="",
    )  # fmt: skip
    return timetable, spans


def _node(step: Step, node: Node) -> None:  # noqa: C901, PLR0912 - one arm per node kind
    spec = step.sharded.graph.spec
    layer = f"L{node.layer}"
    match node.kind:
        case NodeKind.EMBED:
            rows.embed(step)
        case NodeKind.ROPE_TABLE:
            rows.rope_rows(step, step.s.kinds[node.kind_index])
        case NodeKind.NORM:
            _norm(step, node)
        case NodeKind.ROUTER:
            experts.route(step, node.layer)
        case NodeKind.EXPERTS:
            experts.experts(step, node.layer)
        case NodeKind.LINEAR | NodeKind.GATE:
            _product(step, node, layer)
        case NodeKind.ROPE if node.name.endswith("q_rope"):
            heads.queries(step, f"{layer}.attn", node.layer)
        case NodeKind.ROPE:
            heads.keys(step, f"{layer}.attn", node.layer)
            heads.values(step, f"{layer}.attn", node.layer)
        case NodeKind.APPEND:
            attention.append(_attending(step, node.layer))
        case NodeKind.ATTENTION:
            _attention(_attending(step, node.layer))
        case NodeKind.RESIDUAL:
            attn = node.name.endswith("x_attn")
            scalar = f"layers.{node.layer}.layer_scalar" if spec.layer_scalar and not attn else ""
            whole = step.s.experts is not None and step.s.experts.held and experts_of(spec, node.layer)
            inbox = "in.o" if attn else rows.WHOLE if whole else "in.down"
            if spec.post_norms:
                weight = f"layers.{node.layer}.{'post_attn_norm' if attn else 'post_ffn_norm'}"
                rows.normed_residual(step, node.name, inbox, weight, scalar)
            else:
                rows.residual(step, node.name, inbox, scalar)
        case NodeKind.LOGITS:
            head.logits(step, step.sharded.graph.logit_rows)
        case NodeKind.GREEDY:
            head.choose(step, step.sharded.graph.logit_rows)
        case (
            NodeKind.LAST_ROW | NodeKind.HEAD_NORM | NodeKind.LAYER_SCALAR | NodeKind.NOISE | NodeKind.ACCEPT
        ):
            pass  # done by the final norm, by ROPE, by the residual, on the way to the choice, with it


def _attending(step: Step, layer: int) -> attention.Attending:
    return attention.Attending(step, f"L{layer}.attn", layer, step.s.attention(layer))


def _norm(step: Step, node: Node) -> None:
    spec, last = step.sharded.graph.spec, step.sharded.graph.kind.logits == "last"
    if node.layer < 0 and last:
        rows.last_norm(step, node.name, node.tensor, spec.rms_eps)
    elif not node.name.endswith(("post_attn_norm", "post_ffn_norm")):  # those are done by the residual
        rows.norm(step, node.name, node.tensor, spec.rms_eps)


def _product(step: Step, node: Node, layer: str) -> None:
    s, n = step.s, step.s.rows
    part = node.tensor.rsplit(".", 1)[-1] if node.tensor else node.kind.value
    match part:
        case "q":
            _qkv(step, node.layer)
        case "o" | "down":
            x = f"a{s.attention(node.layer).suffix}" if part == "o" else "f"
            phase = step.phases[f"{layer}.{part}"]
            linear.tiles(step, phase, x, f"part.{part}", n)
            linear.fold_matrix(step, phase, (f"part.{part}", f"sh.{part}", node.bias), 0, s.y)
            all_gather(step, f"{layer}.{part}", f"sh.{part}", f"in.{part}", s.y)
        case "router":
            experts.router(step, node.layer)
        case "gate" if node.kind == NodeKind.LINEAR:
            phase = step.phases[f"{layer}.gu"]
            linear.tiles(step, phase, "h", "part.gu", n)
            linear.fold_gate(step, phase, "part.gu", "sh.ffn")
            all_gather(step, f"{layer}.ffn", "sh.ffn", "in.ffn", s.ffn_cut)
            rows.assemble(step, f"{layer}.ffn", ("in.ffn", "f"), s.ffn_cut)
        case _:
            pass  # k, v come with q; up comes with gate


def _qkv(step: Step, layer: int) -> None:
    s, spec = step.s, step.sharded.graph.spec
    a, phase = s.attention(layer), step.phases[f"L{layer}.qkv"]
    parts = [("q", a.q), ("k", a.k)] + ([] if spec.attention(layer).k_is_v else [("v", a.v)])
    linear.tiles(step, phase, "h", "part.qkv", s.rows)
    for i, (name, cut) in enumerate(parts):
        bias = f"layers.{layer}.{name}_bias" if spec.attention_bias else ""
        linear.fold_matrix(step, phase, ("part.qkv", f"sh.{name}{a.suffix}", bias), i, cut)
    for name, cut in parts:
        all_gather(step, f"L{layer}.{name}", f"sh.{name}{a.suffix}", f"in.{name}{a.suffix}", cut)


def _attention(t: attention.Attending) -> None:
    attention.score(t)
    attention.softmax(t)
    attention.values(t)
    attention.combine_local(t)
    attention.combine_remote(t)
    attention.collect(t)
