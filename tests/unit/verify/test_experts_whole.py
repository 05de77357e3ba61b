"""Whole experts on chips, in reserved slots: every witness agrees, and faults in what is new, each with its code."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
from tests.unit.verify.editor import Editor, with_region, with_tensor
from tests.unit.verify.test_experts import SPEC

from ticktrue.compile import Options, assemble, compile_image, compile_program, compile_timetable, graph_of
from ticktrue.errors import UsageError
from ticktrue.graph.digest import graph_parts
from ticktrue.hw import load_system
from ticktrue.isa import Op, RegFn
from ticktrue.model import Experts, Family
from ticktrue.program import Program, StepKind, decode, encode
from ticktrue.program import columns as col
from ticktrue.program.text import from_text, to_text
from ticktrue.sim import simulate
from ticktrue.verify import verify
from ticktrue.verify.dataflow import check_dataflow, rows_parts

RANKS, OWN = 2, 4
"""Chips on which a slot is a rank (4 experts each, 2 a token), and on which it is one of the chip's own experts (2 each)."""


def system(chips: int):
    return load_system("groq3-lpx-32x8" if chips > 16 else "groq3-lpx-tray").subset(chips)


@cache
def editor(chips: int) -> Editor:
    options, kind = Options("bf16", 100, experts="parallel"), StepKind(4, 1, 2, "all", "chip")
    return Editor(compile_program(SPEC, system(chips), options, [kind]))


@pytest.mark.parametrize(
    ("chips", "fmt", "slots", "kind", "experts"),
    [
        (1, "bf16", 1, StepKind(1, 1, 1, "last", "chip"), Experts(8, 2, 170)),
        (1, "f32", 1, StepKind(2, 1, 1, "last", "chip"), Experts(3, 3, 40)),
        (2, "bf16", 1, StepKind(16, 1, 2, "last", "chip"), Experts(8, 2, 170)),
        (4, "bf16", 3, StepKind(4, 3, 2, "all", "chip"), Experts(8, 2, 170)),
        (16, "bf16", 1, StepKind(2, 1, 1, "last", "chip"), Experts(8, 2, 170)),  # half of the chips hold none
        (2, "int8", 1, StepKind(2, 1, 1, "last", "chip"), Experts(7, 2, 170)),  # the last chip has one fewer
        (4, "fp8", 2, StepKind(2, 2, 1, "all", "host"), Experts(9, 4, 350)),
        (8, "f32", 2, StepKind(2, 2, 1, "all", "host"), Experts(8, 1, 24)),
        (32, "bf16", 1, StepKind(2, 1, 1, "last", "chip"), Experts(40, 3, 20, dense_layers=1)),  # in two hops
    ],
)
def test_every_witness_agrees(chips: int, fmt: str, slots: int, kind: StepKind, experts: Experts) -> None:
    spec, machine = replace(SPEC, experts=experts), system(chips)
    options = Options(fmt, 100, hypothetical=True, slots=slots, experts="parallel")
    image = compile_image(spec, machine, options)
    timetable = compile_timetable(spec, machine, image, kind)
    program = assemble(image, [timetable])
    assert verify(program, machine).violations == ()
    timing = simulate(program, machine)
    assert timing.clean
    assert timing.recomputed_cycles == timing.duration_cycles
    graph = graph_parts(graph_of(spec, image, kind))
    assert [tuple(p) for p in rows_parts(program, timetable, machine)] == [tuple(p) for p in graph]


def test_a_chip_has_whole_experts_and_reserves_the_fewer_of_ranks_and_experts() -> None:
    for chips, held, slots in ((1, 8, 2), (2, 4, 2), (4, 2, 2), (8, 1, 1), (16, 1, 1)):
        image = compile_image(SPEC, system(chips), Options("bf16", 100, experts="parallel"))
        up = next(t for t in image.tensors if t.name == "layers.0.experts.up")
        assert (up.held, up.stack, up.shard, up.outputs) == (held, 8, 170, 170)
        inbox = next(r for r in image.regions if r.name == "in.xy.0")
        assert inbox.count == chips
        assert inbox.stride == slots * image.key.t_max * 3  # 202 float32 lanes are 3 vectors


def test_only_a_mixture_has_whole_experts() -> None:
    dense = replace(SPEC, family=Family.QWEN3, experts=None)
    for spec, experts in ((dense, "parallel"), (SPEC, "sorted")):
        with pytest.raises(UsageError, match="expected experts of cut, parallel") as raised:
            compile_image(spec, system(2), Options("bf16", 100, experts=experts))
        assert raised.value.code == "T122"


def key(e: Editor, experts: str) -> Program:
    image = e.program.image
    return replace(e.program, image=replace(image, key=replace(image.key, experts=experts)))


def tensor(e: Editor, name: str, **changes: int) -> Program:
    return with_tensor(e.program, name, **changes)


def region(e: Editor, name: str, **changes: int) -> Program:
    return with_region(e.program, name, **changes)


def named_by(e: Editor, label: str, fn: RegFn) -> Program:
    old = e.timetable.templates[e.rows(label, Op.GATHER)[0][1]]
    return e.with_template(label, Op.GATHER, 0, reg_fn=int(fn) - int(old[col.T_REGFN]))


TAKE, TILE = "L0.take[0.0]", "L0.xgu.tile[0.0]"
RULES: dict[str, tuple[int, str, str, Callable[[Editor], Program]]] = {
    "a form that there is not": (RANKS, "V112", "one of cut, parallel", lambda e: key(e, "sorted")),
    "said to be cut": (RANKS, "V100", "expected 0 whole, found 4", lambda e: key(e, "cut")),
    "an expert too many": (RANKS, "V100", "expected 4 whole, found 5", lambda e: tensor(e, "layers.0.experts.up", held=5)),
    "less than none": (RANKS, "V112", "expected positive sizes", lambda e: tensor(e, "layers.0.experts.up", held=-1)),
    "a share of what is whole": (
        RANKS, "V100", "expected 170, found 85", lambda e: tensor(e, "layers.0.experts.gate", shard=85)),
    "whole ones of a dense matrix": (RANKS, "V100", "expected 0 whole, found 1", lambda e: tensor(e, "layers.0.q", held=1)),
    "fewer records": (RANKS, "V100", "another number of records", lambda e: region(e, "L1.xdown", count=3)),
    "homes of other sizes": (
        RANKS, "V122", "expected the 4 whole experts", lambda e: e.with_value(TAKE, Op.GATHER, 0, a2=-1)),
    "numbers among others": (
        RANKS, "V122", "expected the 4 whole experts", lambda e: e.with_value(TILE, Op.GATHER, 0, a2=4)),
    "a size that means nothing": (OWN, "V100", "expected a2 = 0", lambda e: e.with_value(TAKE, Op.GATHER, 0, a2=2)),
    "tiles by the home": (RANKS, "V112", "by an expert register, to be wide", lambda e: named_by(e, TILE, RegFn.EXPERT_HOME)),
    "tiles by the expert": (RANKS, "V120", "beyond region L0.xgu",
                            lambda e: Editor(named_by(e, TILE, RegFn.EXPERT)).with_value(TILE, Op.GATHER, 0, a2=-4)),
    "results by the number": (RANKS, "V122", "function 8 is not legal", lambda e: named_by(e, TAKE, RegFn.EXPERT_LOCAL)),
    "results too far apart": (
        RANKS, "V120", "beyond region in.xy.0", lambda e: e.with_template(TAKE, Op.GATHER, 0, reg_stride=1 << 12)),
    "results where none are": (
        RANKS, "V103", "that nothing wrote", lambda e: e.with_template(TAKE, Op.GATHER, 0, reg_stride=30)),
    "experts where none are": (
        OWN, "V103", "that nothing wrote", lambda e: e.with_template(TAKE, Op.GATHER, 0, reg_stride=12)),
    "a rank that nobody writes": (
        OWN, "V122", "of rank 2, where 2 are written", lambda e: e.with_value(TAKE, Op.GATHER, 0, a1=2)),
    "results before they are there": (RANKS, "V104", "in.xy.0", lambda e: e.moved(TAKE, -1)),
    "results before their ids": (OWN, "V103", "which nothing wrote", lambda e: e.moved("L0.route", 10**6)),
    "a sum before what it sums": (RANKS, "V104", "xz", lambda e: e.moved("L0.mix[0]", -1)),
}  # fmt: skip


@pytest.mark.parametrize("name", RULES)
def test_a_broken_rule_is_named(name: str) -> None:
    chips, code, text, plant = RULES[name]
    found = verify(plant(editor(chips)), system(chips)).violations
    assert any(v.code == code and text in v.message for v in found), [(v.code, v.message) for v in found[:5]]


def of_region(e: Editor, name: str) -> int:
    regions = e.program.image.regions
    return regions[e.region(name)].stride


WRONG: dict[str, tuple[int, Callable[[Editor], Program]]] = {
    "ranks exchanged": (RANKS, lambda e: e.with_value(TAKE, Op.GATHER, 0, a1=1)),
    "ranks of own experts exchanged": (OWN, lambda e: e.with_value(TAKE, Op.GATHER, 0, a1=1)),
    "the result of another slot": (RANKS, lambda e: e.with_value(TAKE, Op.GATHER, 0, base=12)),
    "the result of another row": (RANKS, lambda e: e.with_template(TAKE, Op.GATHER, 0, step2=-3)),
    "the first chip's result": (RANKS, lambda e: Editor(
        e.with_template(TAKE, Op.GATHER, 0, op=-1, reg_fn=-7, reg_stride=-24)).with_value(TAKE, Op.LOAD, 0, a2=-4)),
    "slots nearer than they are": (RANKS, lambda e: e.with_template(TAKE, Op.GATHER, 0, reg_stride=-12)),
    "tiles of another slot's rank": (RANKS, lambda e: e.with_value(TILE, Op.GATHER, 0, a1=1)),
    "tiles of another layer": (RANKS, lambda e: e.with_value("L1.xgu.tile[0.0]", Op.GATHER, 0, region="L0.xgu")),
    "an own expert twice": (OWN, lambda e: e.with_value("L0.xgu.tile[1.0]", Op.LOAD, 0, base=-of_region(e, "L0.xgu"))),
    "own experts exchanged": (OWN, lambda e: e.with_value(TILE, Op.LOAD, 0, base=of_region(e, "L0.xgu"))),
    "x of another slot": (OWN, lambda e: e.with_value("L0.xdown.tile[1.0]", Op.LOAD, 1, base=-8)),
    "the sum of another rank": (OWN, lambda e: e.with_template("L0.mix[0]", Op.LOAD, 0, step=-12)),
    "the residual of another layer's sum": (OWN, lambda e: e.moved("L0.x_ffn.add[0]", 10**6)),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_read_is_caught(name: str) -> None:
    chips, plant = WRONG[name]
    assert [v.code for v in check_dataflow(plant(editor(chips)), system(chips))] == ["V141"]


def test_the_programs_are_clean_and_keep_their_bytes() -> None:
    for chips in (RANKS, OWN):
        program = editor(chips).program
        assert verify(program, system(chips)).violations == ()
        assert check_dataflow(program, system(chips)) == ()
        text = to_text(program)
        assert f" held={8 // chips}" in text
        assert encode(from_text(text)) == encode(program) == encode(decode(encode(program)).program)
