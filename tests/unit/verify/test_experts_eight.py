"""A mixture of experts in 8 bits: every witness agrees, and faults in what is new, the scales that a register names."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
from tests.unit.verify.editor import Editor, with_region, with_tensor
from tests.unit.verify.test_experts import SPEC

from ticktrue.compile import Options, assemble, compile_image, compile_program, compile_timetable
from ticktrue.graph.build import build_graph
from ticktrue.graph.digest import graph_parts
from ticktrue.hw import load_system
from ticktrue.isa import Dtype, Op
from ticktrue.model import Experts
from ticktrue.program import Packing, Program, StepKind, decode, encode
from ticktrue.program import columns as col
from ticktrue.program.text import from_text, to_text
from ticktrue.sim import simulate
from ticktrue.verify import verify
from ticktrue.verify.dataflow import check_dataflow, rows_parts

SYSTEM = load_system("groq3-lpx-tray").subset(2)
SCALE = "L0.scale[gate.0.0]"


@cache
def editor(fmt: str = "int8") -> Editor:
    return Editor(compile_program(SPEC, SYSTEM, Options(fmt, 100), [StepKind(4, 1, 2, "all", "chip")]))


@pytest.mark.parametrize(
    ("chips", "fmt", "slots", "kind", "experts"),
    [
        (1, "int8", 1, StepKind(1, 1, 1, "last", "chip"), Experts(8, 2, 170)),
        (2, "fp8", 1, StepKind(16, 1, 2, "last", "chip"), Experts(8, 2, 170)),
        (4, "int8", 3, StepKind(4, 3, 2, "all", "chip"), Experts(3, 2, 350)),
        (8, "fp8", 2, StepKind(2, 2, 1, "all", "host"), Experts(8, 1, 24)),
        (1, "int8", 1, StepKind(2, 1, 1, "last", "chip"), Experts(330, 3, 8)),
        (1, "fp8", 1, StepKind(2, 1, 1, "last", "chip"), Experts(2, 1, 700)),
        (2, "int8", 1, StepKind(2, 1, 1, "last", "chip"), Experts(3, 3, 20, dense_layers=1)),
    ],
)
def test_every_witness_agrees(chips: int, fmt: str, slots: int, kind: StepKind, experts: Experts) -> None:
    spec, machine = replace(SPEC, experts=experts), load_system("groq3-lpx-tray").subset(chips)
    image = compile_image(spec, machine, Options(fmt, 100, slots=slots))
    timetable = compile_timetable(spec, machine, image, kind)
    program = assemble(image, [timetable])
    assert verify(program, machine).violations == ()
    timing = simulate(program, machine)
    assert timing.clean
    assert timing.recomputed_cycles == timing.duration_cycles
    graph = graph_parts(build_graph(spec, kind, fmt))
    assert [tuple(p) for p in rows_parts(program, timetable, machine)] == [tuple(p) for p in graph]


def test_matrices_have_eight_bits_and_the_router_sixteen() -> None:
    image = editor("fp8").program.image
    types = {r.name: r.p0 for r in image.regions if r.packing == Packing.TILES}
    assert {name for name, p0 in types.items() if p0 == Dtype.BF16} == {"L0.router", "L1.router"}
    assert {types["L0.xgu"], types["L1.xdown"], types["L0.qkv"], types["logits.0"]} == {int(Dtype.E4M3)}
    scales = {t.name: t.stack for t in image.tensors if t.name.endswith(".scale")}
    assert scales["layers.0.experts.up.scale"] == 8
    assert "layers.0.router.scale" not in scales


def test_a_plane_of_eight_bits_is_the_first_byte_of_a_pair() -> None:
    """The router's planes have 16 bits: plane 0 is bytes 0 and 1, so no plane of 8 bits may be byte 1 or 3."""
    t = editor().timetable
    rows = [
        t.template_start[k] + i
        for k in t.chains[:, 0]
        for i in range(t.template_start[k + 1] - t.template_start[k])
    ]
    templates = t.templates[rows]
    install = templates[:, col.T_OP] == Op.INSTALL
    eight = install & (templates[:, col.T_DTYPE] == Dtype.INT8)
    assert set(t.rows[eight, col.V_PORT].tolist()) == {0, 2}
    assert set(t.rows[install & ~eight, col.V_PORT].tolist()) <= {0, 1}


def tensor(name: str, /, **changes: object) -> Callable[[Editor], Program]:
    return lambda e: with_tensor(e.program, name, **changes)


def region(name: str, /, **changes: object) -> Callable[[Editor], Program]:
    return lambda e: with_region(e.program, name, **changes)


def moved_to(e: Editor, name: str) -> Program:
    """The scale gathered from another region, its bank group kept true."""
    row = e.rows(SCALE, Op.GATHER)[0][1]
    regions = e.program.image.regions + e.timetable.scratch
    group = regions[e.region(name)].group - int(e.timetable.templates[row, col.T_GROUP])
    return Editor(e.with_template(SCALE, Op.GATHER, 0, group=group)).with_value(
        SCALE, Op.GATHER, 0, region=name
    )


def earlier(e: Editor) -> Program:
    """The scales that are gathered first, a cycle before their ids are in the instruction queue."""
    starts = [
        (int(e.timetable.chains[i, 1]), n)
        for i, n in enumerate(e.timetable.labels)
        if n.startswith("L0.scale")
    ]
    return e.moved(min(starts)[1], -1)


RULES: dict[str, tuple[str, str, Callable[[Editor], Program]]] = {
    "a router in 8 bits": ("V100", "another type than its tensor's", region("L0.router", p0=int(Dtype.INT8))),
    "experts in 16 bits": ("V100", "another type than its tensor's", region("L0.xgu", p0=int(Dtype.BF16))),
    "scales of no matrix": ("V100", "another type than its tensor's", tensor("layers.0.q.scale", name="layers.0.q.times")),
    "scales of a matrix that is bf16": (
        "V100", "another type than its tensor's", tensor("layers.0.q.scale", name="layers.0.router.scale")),
    "scales of fewer experts": ("V100", "expected 14 by its packing rule", tensor("layers.1.experts.up.scale", stack=14)),
    "a stack of biases": ("V100", "expected 2 by its packing rule", tensor("layers.0.k.scale", stack=2)),
    "a record too few": ("V100", "expected 8 by its packing rule", region("layers.1.experts.up.scale", count=7)),
    "scales by a norm": ("V122", "function 6 is not legal", lambda e: moved_to(e, "layers.0.attn_norm")),
    "scales of a dense matrix by an expert": ("V122", "function 6 is not legal", lambda e: moved_to(e, "layers.0.q.scale")),
    "an expert beyond the last": (
        "V120", "beyond region layers.0.experts.gate.scale", lambda e: e.with_template(SCALE, Op.GATHER, 0, reg_stride=1)),
    "a rank that nobody writes": (
        "V122", "of rank 2, where 2 are written", lambda e: e.with_value("L0.scale[gate.0.1]", Op.GATHER, 0, a1=1)),
    "before its ids": ("V104", "expert register of token row 0", earlier),
    "x passed as it was read": (
        "V112", "of another", lambda e: e.with_template("L0.xgu.tile[0.0]", Op.INSTALL, 0, dtype=-2)),
}  # fmt: skip


@pytest.mark.parametrize("name", RULES)
def test_a_broken_rule_is_named(name: str) -> None:
    code, text, plant = RULES[name]
    found = verify(plant(editor()), SYSTEM).violations
    assert any(v.code == code and text in v.message for v in found), [(v.code, v.message) for v in found[:5]]


WRONG: dict[str, Callable[[Editor], Program]] = {
    "scales of another rank": lambda e: e.with_value(SCALE, Op.GATHER, 0, a1=1),
    "scales of another matrix": lambda e: e.with_value(SCALE, Op.GATHER, 0, region="layers.0.experts.up.scale"),
    "scales of another layer": lambda e: e.with_value("L1.scale[down.0.0]", Op.GATHER, 0, region="layers.0.experts.down.scale"),
    "scales a vector beside": lambda e: e.with_value(SCALE, Op.GATHER, 0, base=1),
    "scales of the first expert": lambda e: e.with_template(SCALE, Op.GATHER, 0, op=-1, reg_fn=-6),
    "scales of experts nearer": lambda e: e.with_template(SCALE, Op.GATHER, 0, reg_stride=-1),
    "up by the scales of gate": lambda e: e.with_value("L0.xgu.gate[0]", Op.LOAD, 3, region="xs.gate"),
    "the scale of another row's x": lambda e: e.with_template("L0.xdown.tile[1.0]", Op.LOAD, 1, step2=-1),
    "the scale of another rank's x": lambda e: e.with_value("L0.xdown.tile[1.0]", Op.LOAD, 1, base=-4),
    "x of another rank": lambda e: e.with_value("L0.xdown.tile[1.0]", Op.LOAD, 0, base=-4),
}  # fmt: skip


@pytest.mark.parametrize("fmt", ["int8", "fp8"])
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_read_is_caught(name: str, fmt: str) -> None:
    planted = WRONG[name](editor(fmt))
    assert [v.code for v in check_dataflow(planted, SYSTEM)] == ["V141"]


def test_the_programs_are_clean_and_keep_their_bytes() -> None:
    for fmt in ("int8", "fp8"):
        program = editor(fmt).program
        assert verify(program, SYSTEM).violations == ()
        assert check_dataflow(program, SYSTEM) == ()
        assert (
            encode(from_text(to_text(program))) == encode(program) == encode(decode(encode(program)).program)
        )


def test_a_scale_of_each_tile_of_x_is_taken() -> None:
    """Hidden 202 is one tile of 320; the second of a wider row has a scale of its own."""
    spec = replace(SPEC, hidden=404, experts=Experts(4, 2, 330))
    e = Editor(compile_program(spec, SYSTEM, Options("int8", 64), [StepKind(2, 1, 1, "last", "chip")]))
    assert check_dataflow(e.program, SYSTEM) == ()
    other = e.with_value("L0.xgu.tile[0.0]", Op.LOAD, 1, base=2)  # two rows on: the scale of the second tile
    assert verify(other, SYSTEM).violations == ()
    assert [v.code for v in check_dataflow(other, SYSTEM)] == ["V141"]
