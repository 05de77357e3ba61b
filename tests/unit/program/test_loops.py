"""Unrolling: what each iteration's chains, rows and labels are, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
from tests.models import SPEC
from tests.unit.program.programs import compiled

from ticktrue.compile import Options, compile_image, unproved_timetable
from ticktrue.errors import InputError
from ticktrue.hw import load_system
from ticktrue.program import Loop, Program, StepKind, Timetable, decode, encode, expand, unroll
from ticktrue.program import columns as col
from ticktrue.program.diff import diff
from ticktrue.program.loops import first_row, unrolled_rows
from ticktrue.program.text import from_text, to_text


def plain() -> Timetable:
    """Chains of one, two and three rows of one template each, all rows numbered by region and base."""
    rows = np.zeros((9, col.V_COLUMNS), dtype=np.int32)
    rows[:, col.V_REGION] = [0, 1, 2, -1, 4, 5, 6, 7, 8]
    rows[:, col.V_BASE] = np.arange(9)
    size = [1, 2, 3]
    return Timetable(
        kind=StepKind(1, 1, 1, "last", "chip"), scratch=(),
        templates=np.zeros((6, col.T_COLUMNS), dtype=np.int32),
        template_start=np.array([0, *np.cumsum(size)], dtype=np.int32),
        chains=np.array([[0, 5, 0], [1, 10, 0], [2, 20, 1], [2, 90, 0]], dtype=np.int64), rows=rows,
        labels=("embed", "L0.a", "fold", "L1.b"), outputs=(), loops=(), duration=0, dataflow="",
    )  # fmt: skip


def test_without_loops_nothing_is_made() -> None:
    t = plain()
    assert unroll(t) is t


def test_every_iteration_is_written_out() -> None:
    t = replace(plain(), loops=(Loop(1, 2, 3, 100, ((1, 10), (4, -2))),))
    u = unroll(t)
    assert u.loops == ()
    assert u.labels == ("embed", "L0.a", "fold", "L1.a", "fold[i1]", "L2.a", "fold[i2]", "L1.b")
    assert u.chains.tolist() == [[0, 5, 0], [1, 10, 0], [2, 20, 1], [1, 110, 0], [2, 120, 1], [1, 210, 0], [2, 220, 1],
                                 [2, 90, 0]]  # fmt: skip
    regions = [0, 1, 2, -1, 4, 5, 11, 2, -1, 2, 5, 21, 2, -1, 0, 5, 6, 7, 8]
    assert u.rows[:, col.V_REGION].tolist() == regions
    assert u.rows[:, col.V_BASE].tolist() == [0, *([1, 2, 3, 4, 5] * 3), 6, 7, 8]
    assert unrolled_rows(t) == len(u.rows) == 19
    assert u.rows.dtype == np.int32


def test_layer_numbers_go_on_by_the_layers_of_a_body() -> None:
    t = replace(plain(), labels=("L0.x", "L1.x", "L2.x", "L9.x"), loops=(Loop(1, 2, 3, 100, ()),))
    assert unroll(t).labels == ("L0.x", "L1.x", "L2.x", "L3.x", "L4.x", "L5.x", "L6.x", "L9.x")


def test_two_loops_follow_each_other() -> None:
    t = replace(plain(), loops=(Loop(0, 0, 2, 7, ()), Loop(2, 3, 2, 1_000, ((6, 1),))))
    u = unroll(t)
    assert u.chains[:, 1].tolist() == [5, 12, 10, 20, 90, 1_020, 1_090]
    assert u.rows[:, col.V_REGION].tolist() == [0, 0, 1, 2, -1, 4, 5, 6, 7, 8, -1, 4, 5, 7, 7, 8]
    assert first_row(u).tolist() == [0, 1, 2, 4, 7, 10, 13, 16]


@pytest.mark.parametrize("chips", [1, 3, 8])
def test_rows_of_iterations_are_those_of_the_timetable_written_out(chips: int) -> None:
    """Two ways to the flat rows: the body's rows moved, and every chain expanded by itself. Also for what is not legal."""
    spec, system = replace(SPEC, layers=8), load_system("groq3-lpx-tray").subset(chips)
    image = compile_image(spec, system, Options(max_context=300))
    t = unproved_timetable(spec, system, image, StepKind(2, 1, 2, "all", "chip"))
    rng, (loop,) = np.random.default_rng(chips), t.loops
    kinds = [t.loops]
    for _ in range(20):
        a, b, c, d = sorted(rng.choice(len(t.chains), 4, replace=False).tolist())
        one, two = (
            tuple((int(r), int(rng.integers(0, 5))) for r in rng.choice(30, 3, replace=False))
            for _ in range(2)
        )
        kinds.append((Loop(a, b, 3, 7, one), Loop(c, d, 4, 900, two)))
    for loops in kinds:
        looped = replace(t, loops=loops)
        flat, plain = expand(image, looped, system), expand(image, unroll(looped), system)
        assert (flat.rows == plain.rows).all()
        assert (flat.start == plain.start).all()
        assert (flat.row_of_chain == plain.row_of_chain).all()
        assert flat.rows.dtype == plain.rows.dtype
    assert loop.count == 8


@pytest.mark.parametrize(
    "loops",
    [
        (Loop(1, 4, 2, 10, ()),),
        (Loop(-1, 2, 2, 10, ()),),
        (Loop(2, 1, 2, 10, ()),),
        (Loop(0, 1, 0, 10, ()),),
        (Loop(0, 1, 2, -10, ()),),
        (Loop(0, 1, 1 << 40, 1, ()),),
        (Loop(0, 1, 1 << 22, 1, ()),),
        (Loop(0, 1, 2, 1 << 60, ()),),
        (Loop(0, 2, 2, 10, ()), Loop(1, 1, 2, 1, ())),
        (Loop(2, 3, 2, 10, ()), Loop(0, 0, 2, 1, ())),
        (Loop(0, 1, 2, 1, ((1, 1 << 40),)),),
        (Loop(0, 1, 3, 1, ((1, -1),)),),
    ],
)
def test_what_is_no_loop_is_refused(loops: tuple[Loop, ...]) -> None:
    with pytest.raises(InputError, match=r"^T361: .*loop"):
        unroll(replace(plain(), loops=loops))


def test_a_region_past_the_last_is_refused_by_the_expansion() -> None:
    program = compiled("decode")
    t = program.timetables[0]
    region = int(t.rows[0, col.V_REGION])
    system = load_system(program.image.key.system).subset(program.image.key.plan.chips)
    with pytest.raises(InputError, match="T361"):
        expand(program.image, replace(t, loops=(Loop(0, 0, 2, 10, ((region, 10_000),)),)), system)


def test_text_and_bytes_and_difference_of_a_loop() -> None:
    spec, system = replace(SPEC, layers=8), load_system("groq3-lpx-tray").subset(2)
    image = compile_image(spec, system, Options(max_context=300))
    t = unproved_timetable(spec, system, image, StepKind(1, 1, 2, "last", "chip"))
    program = Program(image, (t,))
    (loop,) = t.loops
    assert loop.count == 8
    assert from_text(to_text(program)) is not None
    assert encode(from_text(to_text(program))) == encode(program)
    assert decode(encode(program)).program.timetables[0].loops == t.loops
    assert f"loop first={loop.first} last={loop.last} count=8 period={loop.period} strides=" in to_text(
        program
    )
    longer = replace(loop, period=loop.period + 1, strides=loop.strides[1:])
    found = [str(d) for d in diff(program, Program(image, (replace(t, loops=(longer,)),)))]
    label = t.kind.label()
    assert f"{label} loop 0 period: {loop.period:,} -> {loop.period + 1:,}" in found
    assert any(line.startswith(f"{label} loop 0 strides: ") for line in found)
    gone = [str(d) for d in diff(program, Program(image, (replace(t, loops=()),)))]
    assert len(gone) == 1
    assert gone[0].startswith(f"{label} loop 0: only in the first: first={loop.first}")
