"""The two sides on compiled programs: equal for every plan, chunk, bucket and format; different for every planted wrong read.

The faults are programs that are legal or nearly so and compute something else: what no rule of the machine can see.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from tests.models import TINY_D128, TINY_KV3, LlamaShape
from tests.unit.verify.editor import Editor

from ticktrue.compile import Options, compile_image, compile_program, compile_timetable
from ticktrue.graph.build import build_graph
from ticktrue.graph.digest import graph_parts
from ticktrue.hw import load_system
from ticktrue.isa import Op
from ticktrue.model import Family, ModelSpec
from ticktrue.program import Program, StepKind
from ticktrue.program import columns as col
from ticktrue.verify.dataflow import check_dataflow, rows_parts

SYSTEM = "groq3-lpx-tray"


def spec_of(shape: LlamaShape, **changes) -> ModelSpec:
    s = replace(shape, **changes)
    return ModelSpec(
        Family.LLAMA, "tiny", s.layers, s.hidden, s.heads, s.kv_heads, s.head_dim, s.ffn, s.vocab, s.rope_theta, s.rms_eps,
        s.max_positions, None, s.tied,
    )  # fmt: skip


def step(tokens, blocks, logits="last"):
    return StepKind(tokens, 1, blocks, logits, "chip")


def both_sides(spec, chips, fmt, kinds, context):
    """Names of the parts that differ, over all kinds."""
    system = load_system(SYSTEM).subset(chips)
    options = Options(fmt, context, hypothetical=True)
    image = compile_image(spec, system, options)
    out = []
    for kind in kinds:
        timetable = compile_timetable(spec, system, image, kind)
        rows = rows_parts(Program(image, (timetable,)), timetable, system)
        graph = graph_parts(build_graph(spec, kind, fmt))
        out += [f"{kind.label()} {a.name}" for a, b in zip(rows, graph, strict=False) if tuple(a) != tuple(b)]
        out += [kind.label()] * (len(rows) != len(graph))
    return out


KINDS = (step(1, 1), step(4, 3, "all"), step(64, 3), step(1, 21, "all"))


@pytest.mark.parametrize("fmt", ["bf16", "f32"])
@pytest.mark.parametrize("chips", [1, 2, 3, 4, 6, 8, 16])
def test_both_sides_agree(chips, fmt):
    kinds = KINDS[chips % 2 :: 2] if chips in {1, 2, 3, 8} else KINDS[:2]
    assert both_sides(spec_of(TINY_KV3), chips, fmt, kinds, 1_300) == []


@pytest.mark.parametrize("fmt", ["bf16", "f32"])
def test_both_sides_agree_where_a_head_fills_more_than_a_vector(fmt):
    assert both_sides(spec_of(TINY_D128), 4, fmt, [step(1, 3), step(4, 2, "all"), step(64, 1)], 192) == []


def test_both_sides_agree_where_the_host_samples():
    kinds = [StepKind(1, 1, 1, "last", "host"), StepKind(4, 1, 3, "all", "host")]
    assert both_sides(spec_of(TINY_KV3), 6, "bf16", kinds, 192) == []


@pytest.mark.parametrize("chips", [1, 6])
def test_both_sides_agree_where_lanes_wrap(chips):
    small = spec_of(TINY_KV3, layers=1, ffn=70, hidden=66)
    assert both_sides(small, chips, "bf16", [step(1, 266)], 17_000) == []


@pytest.mark.slow
@pytest.mark.parametrize("fmt", ["bf16", "f32"])
@pytest.mark.parametrize("chips", [1, 2, 3, 4, 6, 8, 16])
def test_both_sides_agree_everywhere(chips, fmt):
    kinds = [step(t, b, logits) for t in (1, 4, 64) for b in (1, 3, 21) for logits in ("last", "all")]
    assert both_sides(spec_of(TINY_KV3), chips, fmt, kinds, 1_300) == []
    assert both_sides(spec_of(TINY_KV3), chips, fmt, [step(1, 266), step(4, 266)], 17_000) == []


# ---- planted faults ----------------------------------------------------------------------------------------------------------


def swapped(region: str, name: str) -> Callable[["Editor"], Program]:
    """Exchanges one column between the first two weight pieces of a region that differ in it."""

    def plant(e: Editor) -> Program:
        column, index = col.P_NAMES.index(name), e.region(region)

        def change(pieces: np.ndarray) -> None:
            mine = np.flatnonzero(pieces[:, col.P_REGION] == index)
            other = next(i for i in mine if pieces[i, column] != pieces[mine[0], column])
            pieces[[mine[0], other], column] = pieces[[other, mine[0]], column]

        return e.pieces(change)

    return plant


def float_step(e: Editor, label: str, op: Op, name: str) -> Program:
    """The next float32 in place of a constant."""
    return e.with_template(label, op, 0, **{name: 1})


FAULTS: dict[str, Callable[[Editor], Program]] = {
    "wrong rope row, coarse": lambda e: e.with_value("rope[0]", Op.GATHER, 0, base=1),
    "wrong rope row, fine": lambda e: e.with_value("rope[0]", Op.GATHER, 1, base=1),
    "rope row of another token": lambda e: e.with_template("L1.attn.k_rope[0.0]", Op.LOAD, 1, step=-1),
    "q head swapped": lambda e: e.with_value("L0.attn.score[0.0]", Op.LOAD, 0, base=4),
    "q tokens shifted": lambda e: e.with_value("L0.attn.score[0.0]", Op.LOAD, 0, base=1),
    "wrong K tile of x": lambda e: e.with_value("L0.down.tile[0]", Op.LOAD, 1, base=1),
    "weight pieces swapped": swapped("L0.down", "k0"),
    "weight pieces of the head swapped": swapped("logits.0", "k0"),
    "weight tensors swapped": swapped("L0.gu", "tensor"),
    "a piece's lanes shifted": lambda e: e.with_value("L0.qkv.tile[0]", Op.MOVE, 0, a0=1),
    "wrong weight tile": lambda e: e.with_value("L0.o.tile[0]", Op.LOAD, 0, region="L1.o"),
    "wrong inbox slot": lambda e: e.with_value("L0.o.gather", Op.STORE, 0, base=4),
    "rank of the sender shifted": lambda e: e.with_template("L0.o.gather", Op.STORE, 0, rank_fn=-1),
    "wrong gathered columns": lambda e: e.with_value("L1.x_ffn.add[0]", Op.MERGE, 0, a2=1),
    "wrong source beat": lambda e: e.with_value("L1.x_ffn.add[0]", Op.MERGE, 0, a1=1),
    "wrong norm vector": lambda e: e.with_value("L1.attn_norm.scale", Op.LOAD, 2, region="layers.0.attn_norm"),
    "norm of another width": lambda e: float_step(e, "L0.attn_norm.r", Op.MEAN_RSQRT, "x0"),
    "another epsilon": lambda e: float_step(e, "L0.attn_norm.r", Op.MEAN_RSQRT, "x1"),
    "another scale": lambda e: float_step(e, "L1.attn.score[0.0]", Op.SCALE, "x0"),
    "V of another layer": lambda e: e.with_value("L1.attn.value[0.0]", Op.LOAD, 0, region="L0.v0"),
    "K for V": lambda e: e.with_value("L1.attn.value[0.0]", Op.LOAD, 0, region="L1.k0"),
    "K of another layer": lambda e: e.with_value("L1.attn.score[0.0]", Op.LOAD, 1, region="L0.k0"),
    "K appended to another layer": lambda e: e.with_value("L1.attn.append_k[0.0]", Op.SCATTER, 0, region="L0.k0"),
    "K appended one further": lambda e: e.with_value("L1.attn.append_k[0.0]", Op.SCATTER, 0, base=1),
    "V appended as K": lambda e: e.with_value("L0.attn.append_k[0.0]", Op.LOAD, 0, region="vm"),
    "maximum of another block": lambda e: e.with_template("L0.attn.softmax[0]", Op.LOAD, 1, step2=-1),
    "blocks in another order": lambda e: e.with_value("L0.attn.tree[0.2]", Op.LOAD, 1, base=-12),
    "block left out": lambda e: e.with_value("L0.attn.tree[0.1]", Op.LOAD, 1, base=12),
    "combine of the wrong partner": lambda e: e.with_value("L0.attn.across[1]", Op.LOAD, 1, base=-1),
    "mask one block off": lambda e: e.with_value("L0.attn.score[0.0]", Op.MASK, 0, a0=1),
    "mask for fewer rows": lambda e: e.with_template("L0.attn.score[0.0]", Op.MASK, 0, x0=-1),
    "sum of p without its last": lambda e: e.with_value("L0.attn.value[0.0]", Op.INSTALL, 0, a1=1),
    "stale residual": lambda e: e.moved("L0.ffn_norm.scale", -10**6),
    "stale scratch": lambda e: e.with_value("L1.down.tile[0]", Op.LOAD, 1, region="a"),
    "gate for up": lambda e: e.with_value("L0.gu.gate[0]", Op.LOAD, 1, base=-1),
    "not rounded": lambda e: e.with_template("L0.o.fold[0.0]", Op.STORE, 0, s0=-1),
    "rounded too early": lambda e: e.with_template("L0.q.gather", Op.SEND, 0, dtype=-1),
    "partial sums added the other way round": lambda e: e.with_template("L0.down.fold[0.0]", Op.LOAD, 0, step=-1),
    "logits of another beat": lambda e: e.with_value("greedy.local", Op.LANE_ARGMAX, 0, a2=1),
    "a column too few": lambda e: e.with_value("greedy.local", Op.LANE_ARGMAX, 0, a1=-1),
    "noise of another column": lambda e: e.with_value("greedy.local", Op.NOISE, 0, a0=1),
    "noise a column too few": lambda e: e.with_value("greedy.local", Op.NOISE, 0, a1=-1),
    "noise of another row": lambda e: e.with_template("greedy.local", Op.NOISE, 0, x0=-1),
    "one candidate left out": lambda e: e.with_template("greedy.pick", Op.LOAD, 0, step=-1),
    "token table row shifted": lambda e: e.with_value("embed[0].keep", Op.GATHER, 0, base=1),
    "another row is the last": lambda e: e.with_value("final_norm.scale", Op.GATHER, 0, base=4),
    "a fixed row is the last": lambda e: e.with_template("final_norm.scale", Op.GATHER, 0, reg_fn=-5, op=-1),
}  # fmt: skip


@pytest.fixture(scope="module")
def editor() -> Editor:
    """The two-layer Llama with 3 KV heads on 6 chips (h = 3, cp = 2), T = 4, B = 5."""
    system = load_system(SYSTEM).subset(6)
    program = compile_program(spec_of(TINY_KV3), system, Options("bf16", 300), [step(4, 5)])
    return Editor(program)


def test_the_program_is_clean(editor: Editor) -> None:
    assert check_dataflow(editor.program, load_system(SYSTEM).subset(6)) == ()


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_caught(editor: Editor, name: str) -> None:
    wrong = FAULTS[name](editor)
    found = check_dataflow(wrong, load_system(SYSTEM).subset(6))
    assert [v.code for v in found] == ["V141"]
    assert found[0].where == "T4.S1.B5.last.chip"
    assert editor.timetable.dataflow in found[0].message


def test_a_program_for_another_step_is_caught(editor: Editor) -> None:
    wrong = editor.replaced(kind=step(4, 4))
    assert [v.code for v in check_dataflow(wrong, load_system(SYSTEM).subset(6))] == ["V141"]


def test_outputs_that_are_not_there_are_caught(editor: Editor) -> None:
    system = load_system(SYSTEM).subset(6)
    t = editor.timetable
    for outputs in ((), t.outputs[:1], tuple(replace(o, region=10**6) for o in t.outputs),
                    tuple(replace(o, rows=3) for o in t.outputs), tuple(replace(o, base=1) for o in t.outputs)):  # fmt: skip
        assert len(check_dataflow(editor.replaced(outputs=outputs), system)) == 1


def test_an_image_without_pieces_or_tensors_is_caught(editor: Editor) -> None:
    system, image = load_system(SYSTEM).subset(6), editor.program.image
    for changed in (replace(image, pieces=image.pieces[:0]), replace(image, tensors=())):
        assert len(check_dataflow(replace(editor.program, image=changed), system)) == 1


def test_the_digest_of_an_empty_timetable_is_not_the_graphs(editor: Editor) -> None:
    t = editor.timetable
    empty = editor.replaced(chains=t.chains[:0], rows=t.rows[:0], labels=())
    assert len(check_dataflow(empty, load_system(SYSTEM).subset(6))) == 1
