"""Expert registers and stacked weights: faults planted in a compiled mixture of experts, each with the code that names it."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from tests.unit.verify.editor import Editor, with_region, with_tensor

from ticktrue.compile import Options, compile_image, compile_program, compile_timetable
from ticktrue.graph.build import build_graph
from ticktrue.graph.digest import graph_parts
from ticktrue.hw import load_system
from ticktrue.isa import Op, OpTable, RegFn
from ticktrue.model import Experts, Family, ModelSpec
from ticktrue.program import Flat, Program, StepKind, decode, encode, expand
from ticktrue.program import columns as col
from ticktrue.program.diff import diff
from ticktrue.program.text import from_text, to_text
from ticktrue.sim import simulate
from ticktrue.verify import verify
from ticktrue.verify.dataflow import check_dataflow, rows_parts
from ticktrue.verify.registers import check_registers
from ticktrue.verify.scope import Scope
from ticktrue.verify.verdict import Findings

SYSTEM = "groq3-lpx-tray"
SPEC = ModelSpec(Family.QWEN3_MOE, "experts", 2, 202, 4, 2, 64, 338, 499, 10_000.0, 1e-6, 1_024, None, False,
                 qk_norm=True, experts=Experts(8, 2, 170))  # fmt: skip
KIND = StepKind(4, 1, 2, "all", "chip")


@pytest.fixture(scope="module")
def editor() -> Editor:
    """Two layers of 8 experts, 2 of them a token, on 2 chips; T = 4."""
    return Editor(compile_program(SPEC, load_system(SYSTEM).subset(2), Options("bf16", 100), [KIND]))


def system():
    return load_system(SYSTEM).subset(2)


def test_the_program_is_clean(editor: Editor) -> None:
    verdict = verify(editor.program, system())
    assert verdict.clean, verdict.violations
    assert check_dataflow(editor.program, system()) == ()
    timing = simulate(editor.program, system())
    assert timing.clean
    assert timing.recomputed_cycles == timing.duration_cycles


@pytest.mark.parametrize(
    ("chips", "fmt", "slots", "kind"),
    [
        (1, "bf16", 1, StepKind(1, 1, 1, "last", "chip")),
        (2, "bf16", 1, StepKind(64, 1, 2, "last", "chip")),
        (4, "bf16", 3, StepKind(4, 3, 2, "all", "chip")),
        (4, "f32", 2, StepKind(2, 2, 1, "all", "host")),
        (8, "f32", 1, StepKind(8, 1, 1, "last", "chip")),
    ],
)
def test_every_witness_agrees(chips: int, fmt: str, slots: int, kind: StepKind) -> None:
    machine = load_system(SYSTEM).subset(chips)
    image = compile_image(SPEC, machine, Options(fmt, 100, hypothetical=True, slots=slots))
    timetable = compile_timetable(SPEC, machine, image, kind)
    program = Program(image, (timetable,))
    assert verify(program, machine).violations == ()
    assert simulate(program, machine).clean
    graph = graph_parts(build_graph(SPEC, kind, fmt))
    assert [tuple(p) for p in rows_parts(program, timetable, machine)] == [tuple(p) for p in graph]


def test_more_experts_than_lanes_and_a_dense_layer() -> None:
    for experts in (Experts(330, 3, 8), Experts(2, 1, 40), Experts(3, 3, 20, dense_layers=1)):
        spec = replace(SPEC, experts=experts)
        kind = StepKind(2, 1, 1, "last", "chip")
        program = compile_program(spec, system(), Options("bf16", 64), [kind])
        assert verify(program, system()).violations == ()
        assert simulate(program, system()).clean
        assert check_dataflow(program, system()) == ()


# ---- faults that break a rule --------------------------------------------------------------------------------------------------


def tensor(e: Editor, name: str, **changes: int) -> Program:
    return with_tensor(e.program, name, **changes)


def region(e: Editor, name: str, **changes: int) -> Program:
    return with_region(e.program, name, **changes)


def gather_of(e: Editor, **values: int) -> Program:
    return e.with_template("L0.xgu.tile[0.0]", Op.GATHER, 0, **values)


def group_of(e: Editor, to: str, label: str, op: Op) -> dict[str, int]:
    """What to add to the bank group of a row so that it is that of another region."""
    row = e.rows(label, op)[0][1]
    regions = e.program.image.regions + e.timetable.scratch
    return {"group": regions[e.region(to)].group - int(e.timetable.templates[row, col.T_GROUP])}


def elsewhere(e: Editor, to: str) -> Program:
    """A tile gathered from another region, its bank group kept true."""
    moved = gather_of(e, **group_of(e, to, "L0.xgu.tile[0.0]", Op.GATHER))
    return Editor(moved).with_value("L0.xgu.tile[0.0]", Op.GATHER, 0, region=to)


def earlier(e: Editor) -> Program:
    """The first tile taken a cycle before its ids are in the instruction queue."""
    first = min(
        (int(e.timetable.chains[i, 1]), n) for i, n in enumerate(e.timetable.labels) if n.startswith("L0.xgu")
    )
    return e.moved(first[1], -1)


RULES: dict[str, tuple[str, str, Callable[[Editor], Program]]] = {
    "a tile before its ids": ("V104", "expert register of token row 0", earlier),
    "fewer ids than are read": (
        "V103", "rank 1, which nothing wrote", lambda e: e.with_template("L0.route", Op.TOPK, 0, x0=-1)),
    "a rank that nobody writes": (
        "V122", "of rank 2, where 2 are written", lambda e: e.with_value("L0.xgu.tile[1.0]", Op.GATHER, 0, a1=1)),
    "a token row too many": (
        "V122", "token row 4 of a step of 4", lambda e: e.with_value("L0.xgu.tile[0.0]", Op.GATHER, 0, a0=1)),
    "a row of ids too many": (
        "V122", "token row 4 of a step of 4", lambda e: e.with_value("L1.route", Op.LATCH, 0, a0=1)),
    "an expert that does not exist": (
        "V120", "beyond region L", lambda e: e.with_value("L0.route", Op.TOPK, 0, a0=1)),
    "experts too far apart": ("V120", "beyond region L0.xgu", lambda e: gather_of(e, reg_stride=200)),
    "experts beyond the bank group": ("V121", "beyond bank group", lambda e: gather_of(e, reg_stride=1 << 20)),
    "experts that do not differ": (
        "V100", "reg_stride is 0",
        lambda e: gather_of(e, reg_stride=-int(e.timetable.templates[e.rows("L0.xgu.tile[0.0]", Op.GATHER)[0][1],
                                                                     col.T_REGSTRIDE]))),
    "constants by an expert": ("V122", "function 6 is not legal", lambda e: elsewhere(e, "layers.0.attn_norm")),
    "scratch by an expert": ("V122", "function 6 is not legal", lambda e: elsewhere(e, "h")),
    "weights by a position": ("V112", "by an expert register, to be wide", lambda e: gather_of(e, reg_fn=-4)),
    "a LOAD by a register": ("V122", "function 6 is not legal", lambda e: gather_of(e, op=-1)),
    "a rank where there is none": (
        "V100", "expected a1 = 0", lambda e: e.with_value("embed[0].keep", Op.GATHER, 0, a1=1)),
    "no rank chosen": ("V112", "ranks whose weights", lambda e: e.with_template("L0.route", Op.TOPK, 0, x0=-2)),
    "more ranks than fit": ("V112", "ranks whose weights", lambda e: e.with_template("L0.route", Op.TOPK, 0, x0=159)),
    "more ranks than experts": ("V112", "ranks whose weights", lambda e: e.with_value("L0.route", Op.TOPK, 0, a0=-7)),
    "columns that no beat has": ("V112", "columns that its beats have", lambda e: e.with_value("L0.route", Op.TOPK, 0, a0=313)),
    "ids that nobody chose": ("V112", "name a TOPK", lambda e: e.with_template("L0.route", Op.LATCH, 0, s0=-1)),
    "ids that are a fold": ("V112", "name a TOPK", lambda e: e.with_template("L0.route", Op.TOPK, 0, op=-7, x0=-2)),
    "more matrices than records": ("V100", "another number of records", lambda e: tensor(e, "layers.0.experts.up", stack=9)),
    "fewer records": ("V100", "another number of records", lambda e: region(e, "L1.xdown", count=7)),
    "a stack of norms": ("V100", "expected 1 outside tiles", lambda e: tensor(e, "layers.0.attn_norm", stack=2)),
    "no matrix at all": ("V112", "expected positive sizes", lambda e: tensor(e, "layers.0.experts.up", stack=0)),
    "tiles longer than a record": (
        "V100", "beyond a record",
        lambda e: region(e, "L0.xdown", stride=e.program.image.regions[e.region("L0.xdown")].stride - 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", RULES)
def test_a_broken_rule_is_named(editor: Editor, name: str) -> None:
    code, text, plant = RULES[name]
    found = verify(plant(editor), system()).violations
    assert any(v.code == code and text in v.message for v in found), [(v.code, v.message) for v in found[:5]]


def test_a_tile_before_its_ids_is_late_by_that_alone(editor: Editor) -> None:
    """One cycle: the latency of a register's write is what `verify` and `sim` both ask for."""
    wrong = earlier(editor)
    verdict = verify(wrong, system())
    assert {v.code for v in verdict.violations} == {"V104"}
    assert "L0.route LATCH" in verdict.violations[0].message
    assert not simulate(wrong, system()).clean


def flat_with(editor: Editor, changes: dict[int, dict[int, int]]) -> tuple[Flat, Scope]:
    flat = expand(editor.program.image, editor.timetable, system())
    rows = flat.rows.copy()
    for r, fields in changes.items():
        for column, value in fields.items():
            rows[r, column] = value
    flat = replace(flat, rows=rows)
    return flat, Scope(editor.program.image, editor.timetable, system(), flat, Findings())


def rows_of(editor: Editor, op: Op, register: bool) -> list[int]:
    rows = expand(editor.program.image, editor.timetable, system()).rows
    return np.flatnonzero(
        (rows[:, col.C_OP] == op) & ((rows[:, col.C_REGFN] == RegFn.EXPERT) == register)
    ).tolist()


def codes(editor: Editor, changes: dict[int, dict[int, int]]) -> list[str]:
    _, scope = flat_with(editor, changes)
    check_registers(scope)
    return [v.code for v in scope.findings.kept]


def test_registers_are_owned_from_the_first_to_the_last_event(editor: Editor) -> None:
    """Two LATCHes, and the tiles between them: each moved alone against its neighbours, to the very cycle that is legal."""
    rows = expand(editor.program.image, editor.timetable, system()).rows
    latency = int(OpTable.of(system().chip).latency[Op.LATCH])
    first, second = rows_of(editor, Op.LATCH, register=False)
    gathers = rows_of(editor, Op.GATHER, register=True)
    mine = [r for r in gathers if rows[first, col.C_ISSUE] < rows[r, col.C_ISSUE] < rows[second, col.C_ISSUE]]
    theirs = [r for r in gathers if r not in mine]
    assert codes(editor, {}) == []
    ready = int(rows[first, col.C_ISSUE] + rows[first, col.C_SPAN]) + latency
    one = mine[0]
    assert codes(editor, {one: {col.C_ISSUE: ready}}) == []
    assert codes(editor, {one: {col.C_ISSUE: ready - 1}}) == ["V104"]
    assert codes(editor, {one: {col.C_ISSUE: int(rows[first, col.C_ISSUE]) - 10_000}}) == ["V103"]
    # the second LATCH may not begin before the last tile of the first layer is taken
    last = max(int(rows[r, col.C_ISSUE] + rows[r, col.C_SPAN]) for r in mine)
    assert codes(editor, {second: {col.C_ISSUE: last}}) == []
    assert codes(editor, {second: {col.C_ISSUE: last - 1}}) == ["V104"]
    # nor before the first is done, nor after its own tiles
    free = {r: {col.C_ISSUE: ready} for r in mine}
    assert set(codes(editor, {**free, second: {col.C_ISSUE: ready - 1}})) == {"V104"}
    late = min(int(rows[r, col.C_ISSUE]) for r in theirs)
    span = int(rows[second, col.C_SPAN]) + latency
    assert codes(editor, {second: {col.C_ISSUE: late - span}}) == []
    assert "V104" in codes(editor, {second: {col.C_ISSUE: late - span + 1}})
    # without the first one nothing is written
    only = {first: {col.C_OP: int(Op.MOVE)}}
    assert codes(editor, only) == ["V103"] * len(mine)


# ---- legal faults: the wrong read ----------------------------------------------------------------------------------------------

WRONG: dict[str, Callable[[Editor], Program]] = {
    "ranks exchanged": lambda e: e.with_value("L0.xgu.tile[0.0]", Op.GATHER, 0, a1=1),
    "ranks of down exchanged": lambda e: e.with_value("L1.xdown.tile[1.0]", Op.GATHER, 0, a1=-1),
    "experts of another layer": lambda e: e.with_value("L1.xgu.tile[0.0]", Op.GATHER, 0, region="L0.xgu"),
    "ids of the layer before": lambda e: e.moved("L1.route", 10**7),
    "experts a vector apart": lambda e: gather_of(e, reg_stride=-1),
    "another expert's record": lambda e: gather_of(e, reg_stride=-160),
    "the tile of the first expert": lambda e: e.with_template(
        "L0.xgu.tile[0.0]", Op.GATHER, 0, op=-1, reg_fn=-6
    ),
    "activations of another rank": lambda e: e.with_value("L0.xdown.tile[1.0]", Op.LOAD, 0, base=-8),
    "activations of another row": lambda e: e.with_template("L0.xgu.tile[0.0]", Op.LOAD, 0, step2=-1),
    "ranks added the other way round": lambda e: Editor(
        e.with_template("L0.mix[0]", Op.LOAD, 0, step=-2 * step_of(e))
    ).with_value("L0.mix[0]", Op.LOAD, 0, base=step_of(e)),
    "a rank left out": lambda e: e.with_template("L0.mix[0]", Op.LOAD, 0, step=-step_of(e)),
    "weights of another row": lambda e: e.with_template("L0.mix[0]", Op.LOAD, 1, step2=-1),
    "ids taken for weights": lambda e: e.with_template("L0.route", Op.STORE, 0, s0=-1),
    "an expert fewer": lambda e: e.with_value("L0.route", Op.TOPK, 0, a0=-1),
    "logits of another layer": lambda e: e.with_value("L1.router.tile[0]", Op.LOAD, 0, region="L0.router"),
    "pieces of gate and up exchanged": lambda e: e.pieces(exchanged(e)),
}


def step_of(e: Editor) -> int:
    return int(e.timetable.templates[e.rows("L0.mix[0]", Op.LOAD)[0][1], col.T_STEP])


def exchanged(e: Editor) -> Callable[[np.ndarray], None]:
    """The tensors of a layer's gate and up pieces."""
    names = [t.name for t in e.program.image.tensors]
    gate, up = (names.index(f"layers.1.experts.{part}") for part in ("gate", "up"))

    def change(pieces: np.ndarray) -> None:
        of = pieces[:, col.P_TENSOR].copy()
        pieces[of == gate, col.P_TENSOR], pieces[of == up, col.P_TENSOR] = up, gate

    return change


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_read_is_caught(editor: Editor, name: str) -> None:
    found = check_dataflow(WRONG[name](editor), system())
    assert [v.code for v in found] == ["V141"]


def test_text_and_bytes_keep_stacks_and_registers(editor: Editor) -> None:
    text = to_text(editor.program)
    assert all(word in text for word in (" stack=8", "reg_fn=EXPERT", "LATCH", "TOPK"))
    again = from_text(text)
    assert encode(again) == encode(editor.program) == encode(decode(encode(again)).program)
    assert diff(editor.program, again) == ()
