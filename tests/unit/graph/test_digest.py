"""The dataflow digest of a graph against a literal evaluation in Python integers, and what it depends on."""

from dataclasses import replace

import pytest
from tests.unit.graph.slow import Slow

from ticktrue.errors import Bug
from ticktrue.graph.build import build_graph
from ticktrue.graph.digest import graph_digest, graph_parts, joined
from ticktrue.graph.types import NodeKind
from ticktrue.model import Experts, Family, ModelSpec
from ticktrue.program import StepKind

TOY = ModelSpec(Family.LLAMA, "toy", 2, 326, 4, 2, 6, 165, 11, 1e4, 1e-5, 32_768)
NARROW = replace(TOY, layers=1, hidden=6, ffn=5, vocab=7, kv_heads=1)


def step(tokens=1, blocks=1, logits="last"):
    return StepKind(tokens, 1, blocks, logits, "chip")


@pytest.mark.parametrize("fmt", ["bf16", "f32"])
@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        (TOY, step()),
        (TOY, step(3, 2, "all")),
        (replace(TOY, layers=1), step(4, 1, "last")),
        (replace(NARROW, head_dim=162), step(2, 1, "all")),
        (NARROW, step(2, 9)),
        (replace(NARROW, vocab=1, heads=1, head_dim=2), step(1, 258)),
        (replace(NARROW, heads=1), step(130, 3)),
        (NARROW, StepKind(2, 1, 1, "last", "host")),
        (replace(NARROW, family=Family.QWEN3_MOE, experts=Experts(3, 2, 7)), step(3, 1, "all")),
        (replace(TOY, layers=2, family=Family.QWEN3_MOE, experts=Experts(4, 3, 9, dense_layers=1)), step(1)),
    ],
    ids=[
        "one token",
        "chunk",
        "last row",
        "score tiles",
        "second rope row",
        "lanes wrap",
        "absent blocks",
        "host",
        "experts",
        "a dense layer, then experts",
    ],
)
def test_equals_the_literal_evaluation(spec, kind, fmt):
    assert tuple(graph_parts(build_graph(spec, kind, fmt))) == Slow(spec, kind, fmt).parts()


def test_is_the_sha_of_its_parts():
    graph = build_graph(NARROW, step(2, 1, "all"), "bf16")
    parts = graph_parts(graph)
    assert [p.name for p in parts] == ["logits", "next_token", "accept", "L0.K", "L0.V"]
    assert graph_digest(graph) == joined(parts)
    assert len({graph_digest(graph), *(p.sha256 for p in parts)}) == 6


@pytest.mark.parametrize(
    "change",
    [
        {"rms_eps": 1e-6},
        {"heads": 2},
        {"head_dim": 8},
        {"kv_heads": 2},
        {"hidden": 8},
        {"ffn": 6},
        {"vocab": 8},
        {"layers": 2},
    ],
    ids=str,
)
def test_depends_on_every_number_of_the_model(change):
    a, b = (graph_parts(build_graph(s, step(), "bf16"))[0] for s in (NARROW, replace(NARROW, **change)))
    assert a != b


@pytest.mark.parametrize("change", [step(2), step(1, 2), step(1, 1, "all"), step(1, 3)], ids=StepKind.label)
def test_depends_on_the_step(change):
    digests = [graph_digest(build_graph(NARROW, kind, "bf16")) for kind in (step(), change)]
    assert digests[0] != digests[1]


def test_depends_on_the_format():
    a, b = (graph_parts(build_graph(NARROW, step(), fmt)) for fmt in ("bf16", "f32"))
    assert all(x != y for x, y in zip(a, b, strict=True))


def test_another_format_has_no_digest():
    with pytest.raises(Bug):
        graph_digest(build_graph(NARROW, step(), "q4"))


def test_a_node_without_a_rule_is_a_bug():
    graph = build_graph(NARROW, step(), "bf16")
    nodes = (replace(graph.nodes[0], kind="mystery"),)
    with pytest.raises(Bug):
        graph_digest(replace(graph, nodes=nodes))


def test_attention_needs_its_state():
    graph = build_graph(NARROW, step(), "bf16")
    with pytest.raises(Bug):
        graph_digest(replace(graph, nodes=tuple(n for n in graph.nodes if n.kind != NodeKind.APPEND)))
