"""Graph nodes -> chains, in dataflow order: one timetable without cycles yet."""

from collections.abc import Container

from ticktrue.compile import attention, head, linear, rows
from ticktrue.compile.chains import ChainWriter
from ticktrue.compile.step import Step, all_gather
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
    step = Step(sharded, writer, phases)
    spans: Spans = {}
    for node in sharded.graph.nodes:
        if node.layer < 0 or node.layer in layers:
            begin = len(writer.labels)
            _node(step, node)
            if node.layer >= 0:
                spans[node.layer] = (spans.get(node.layer, (begin, 0))[0], len(writer.labels) - 1)
    templates, start, chains, values = writer.tables()
    n, s = sharded.graph.logit_rows, sharded.shapes
    outputs = (
        Output("logits", writer.index["logits"], 0, n, s.logits.beats),
        Output("next_token", writer.index["next"], 0, n, 1),
    )
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
            rows.rope_rows(step)
        case NodeKind.NORM:
            last = node.layer < 0 and step.sharded.graph.kind.logits == "last"
            rows.norm(step, node.name, node.tensor, spec.rms_eps, last=last)
        case NodeKind.LINEAR | NodeKind.GATE:
            _product(step, node, layer)
        case NodeKind.ROPE:
            if node.name.endswith("q_rope"):
                attention.rope_queries(step, f"{layer}.attn")
            else:
                attention.keys_values(step, f"{layer}.attn")
        case NodeKind.APPEND:
            attention.append(step, f"{layer}.attn", node.layer)
        case NodeKind.ATTENTION:
            _attention(step, f"{layer}.attn", node.layer)
        case NodeKind.RESIDUAL:
            rows.residual(step, node.name, "in.o" if node.name.endswith("x_attn") else "in.down")
        case NodeKind.LOGITS:
            head.logits(step, step.sharded.graph.logit_rows)
        case NodeKind.GREEDY:
            head.greedy(step, step.sharded.graph.logit_rows)
        case NodeKind.LAST_ROW:
            pass  # read by the final norm itself


def _product(step: Step, node: Node, layer: str) -> None:
    s, t = step.s, step.s.tokens
    part = node.tensor.rsplit(".", 1)[-1] if node.tensor else node.kind.value
    match part:
        case "q":
            phase = step.phases[f"{layer}.qkv"]
            linear.tiles(step, phase, "h", "part.qkv", t)
            for i, (name, cut) in enumerate((("q", s.q), ("k", s.k), ("v", s.v))):
                linear.fold_matrix(step, phase, ("part.qkv", f"sh.{name}"), i, cut)
            for name, cut in (("q", s.q), ("k", s.k), ("v", s.v)):
                all_gather(step, f"{layer}.{name}", f"sh.{name}", f"in.{name}", cut)
        case "o" | "down":
            x = "a" if part == "o" else "f"
            phase = step.phases[f"{layer}.{part}"]
            linear.tiles(step, phase, x, f"part.{part}", t)
            linear.fold_matrix(step, phase, (f"part.{part}", f"sh.{part}"), 0, s.y)
            all_gather(step, f"{layer}.{part}", f"sh.{part}", f"in.{part}", s.y)
        case "gate":
            phase = step.phases[f"{layer}.gu"]
            if node.kind == NodeKind.LINEAR:
                linear.tiles(step, phase, "h", "part.gu", t)
                linear.fold_gate(step, phase, "part.gu", "sh.ffn")
                all_gather(step, f"{layer}.ffn", "sh.ffn", "in.ffn", s.ffn_cut)
                rows.assemble(step, f"{layer}.ffn", ("in.ffn", "f"), s.ffn_cut)
        case _:
            pass  # k, v come with q; up comes with gate


def _attention(step: Step, label: str, layer: int) -> None:
    attention.score(step, label, layer)
    attention.softmax(step, label)
    attention.values(step, label, layer)
    attention.combine_local(step, label)
    attention.combine_remote(step, label)
    attention.collect(step, label)
