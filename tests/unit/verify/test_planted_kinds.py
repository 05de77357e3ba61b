"""Faults in what grids of kinds of attention bring: plans, patterns, lanes of a layer's state, rings of their own size."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest
from tests.families import write_family
from tests.unit.verify.editor import Editor, with_region
from tests.unit.verify.families import editor_of, system_of

from ticktrue.compile import Options, compile_program
from ticktrue.hw import load_system
from ticktrue.isa import Op
from ticktrue.model import load_model
from ticktrue.program import Grid, Packing, Program, StepKind
from ticktrue.program import columns as col
from ticktrue.verify import verify
from ticktrue.verify.dataflow import check_dataflow

SYSTEM = load_system("groq3-lpx-tray").subset(8)
FULL, SLIDING = Grid(2, 4), Grid(1, 8)
"""Of the second layer, and of the first: its ring has 8 blocks, one for each chip, where 4 would hold the window."""
OTHER = col.KIND_PATTERNS
APPEND, SCORE, APPEND_FULL, SCORE_FULL = (
    f"L{layer}.attn.{part}" for layer in range(2) for part in ("append_k[0.0]", "score[0.0]")
)


@cache
def editor() -> Editor:
    model = load_model(str(write_family(Path(mkdtemp()) / "gemma3", "gemma3")))
    options = Options("bf16", 460, heads=(FULL.h, SLIDING.h))
    return Editor(compile_program(model.spec, SYSTEM, options, [StepKind(2, 1, 7, "all", "chip")]))


def plan(e: Editor, *grids: Grid, **changes: int) -> Program:
    image = e.program.image
    made = replace(image.key.plan, grids=grids or image.key.plan.grids, **changes)
    return replace(e.program, image=replace(image, key=replace(image.key, plan=made)))


def ring(e: Editor, blocks: int) -> Program:
    image = e.program.image
    kinds = tuple(replace(a, ring=blocks) if a.ring else a for a in image.key.attention)
    return replace(e.program, image=replace(image, key=replace(image.key, attention=kinds)))


def state(e: Editor, name: str, **changes: int) -> Program:
    changed = with_region(e.program, name, **changes)
    assert changed.image.regions != e.program.image.regions
    return changed


FAULTS: list[tuple[str, str, Callable[[Editor], Program], str]] = [
    ("V112", "no grids", lambda e: replace(e.program, image=replace(e.program.image, key=replace(
        e.program.image.key, plan=replace(e.program.image.key.plan, grids=())))), "key.plan.grids"),
    ("V112", "a grid for one kind of two", lambda e: plan(e, FULL), "key.plan.grids"),
    ("V112", "a grid for a kind that is not there", lambda e: plan(e, FULL, SLIDING, FULL), "key.plan.grids"),
    ("V112", "a grid without lanes", lambda e: plan(e, FULL, Grid(1, 0)), "key.plan.grids[1].cp"),
    ("V112", "a grid of fewer than no head groups", lambda e: plan(e, Grid(-2, -4), SLIDING), "key.plan.grids[0].h"),
    ("V100", "a grid of fewer chips", lambda e: plan(e, FULL, Grid(1, 4)), "key.plan.grids[1]"),
    ("V100", "a grid of more chips", lambda e: plan(e, Grid(4, 4), SLIDING), "key.plan.grids[0]"),
    ("V100", "lanes that are no power of two", lambda e: plan(e, Grid(3, 3), Grid(3, 3), chips=9), "key.plan.grids[0].cp"),
    ("V100", "head groups that do not divide the KV heads", lambda e: plan(e, Grid(8, 1), SLIDING),
     "key.attention[0].kv_heads"),
    ("V100", "the grids of each other's kinds", lambda e: plan(e, SLIDING, FULL), "key.attention[1].ring"),
    ("V100", "a ring of fewer blocks than lanes", lambda e: ring(e, 4), "key.attention[1].ring"),
    ("V100", "state of as many records as on the other grid", lambda e: state(e, "L1.k0", count=64), "region L1.k0"),
    ("V100", "state from a head of another group", lambda e: state(e, "L1.k0", p1=64), "region L1.k0"),
    ("V100", "an append to the lanes of full attention", lambda e: e.with_template(APPEND, Op.SCATTER, 0, pattern=-OTHER),
     APPEND),
    ("V100", "an append to the lanes of sliding attention",
     lambda e: e.with_template(APPEND_FULL, Op.SCATTER, 0, pattern=OTHER), APPEND_FULL),
    ("V100", "a mask of head groups", lambda e: e.with_template(SCORE, Op.MASK, 0, pattern=1), SCORE),
    ("V112", "ALL of the second kind", lambda e: e.with_template("L0.o.gather", Op.LOAD, 0, pattern=OTHER), "L0.o.gather"),
    ("V112", "a mask of a kind that is not there", lambda e: e.with_template(SCORE, Op.MASK, 0, pattern=OTHER), SCORE),
    ("V112", "a pattern below zero", lambda e: e.with_template(SCORE_FULL, Op.MASK, 0, pattern=-2), SCORE_FULL),
]  # fmt: skip


def test_the_program_is_legal_and_right() -> None:
    e = editor()
    assert e.program.image.key.plan.grids == (FULL, SLIDING)
    assert [a.ring for a in e.program.image.key.attention] == [0, 8]
    assert verify(e.program, SYSTEM).violations == ()
    assert check_dataflow(e.program, SYSTEM) == ()
    counts = {r.name: r.count for r in e.program.image.regions if r.packing == Packing.KV}
    # 9 blocks for 460 + 64 positions over 4 lanes, two head groups; a ring of 8 over 8
    assert counts == {"L0.k0": 64, "L0.v0": 64, "L1.k0": 192, "L1.v0": 192}


@pytest.mark.parametrize(("code", "name", "plant", "culprit"), FAULTS, ids=[f"{f[0]} {f[1]}" for f in FAULTS])
def test_a_planted_fault_gives_exactly_its_code(
    code: str, name: str, plant: Callable[[Editor], Program], culprit: str
) -> None:
    verdict = verify(plant(editor()), SYSTEM)
    assert set(verdict.codes) == {code}, (name, *map(str, verdict.violations))
    assert any(culprit in str(v) for v in verdict.violations), (name, *map(str, verdict.violations))


def test_grids_that_are_equal_share_the_patterns_of_the_first() -> None:
    """Gemma 3 has two kinds of two KV heads: by default one grid, and no patterns of a second."""
    e, system = editor_of("gemma3"), system_of("gemma3")
    assert e.timetable.templates[:, col.T_PATTERN].max() < OTHER
    verdict = verify(e.with_template(SCORE, Op.MASK, 0, pattern=OTHER), system)
    assert verdict.codes == ("V112",)


WRONG: dict[str, Callable[[Editor], Program]] = {
    "a mask of the other kind's lanes": lambda e: e.with_template(SCORE, Op.MASK, 0, pattern=-OTHER),
    "a full mask of the other kind's lanes": lambda e: e.with_template(SCORE_FULL, Op.MASK, 0, pattern=OTHER),
    "q of the other kind's head groups": lambda e: e.with_template(SCORE_FULL, Op.LOAD, 0, pattern=OTHER),
    "keys of the other kind's head groups": lambda e: e.with_template(APPEND_FULL, Op.LOAD, 0, pattern=OTHER),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_only_the_digest_sees(name: str) -> None:
    """The lanes of a mask and the rank of an address are those of another grid: legal, and another expression."""
    wrong = WRONG[name](editor())
    assert verify(wrong, SYSTEM).violations == ()
    assert [v.code for v in check_dataflow(wrong, SYSTEM)] == ["V141"]
