"""Mixtures of many shapes are scheduled, legal, and their rows are the expression of the graph; narrow experts too."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from ticktrue.compile import Options, assemble, compile_image, compile_timetable, unproved_timetable
from ticktrue.errors import DoesNotFit
from ticktrue.hw import load_system
from ticktrue.model import Experts, Family, ModelSpec
from ticktrue.place import turns
from ticktrue.program import Program, StepKind
from ticktrue.sim import simulate
from ticktrue.verify import verify
from ticktrue.verify.dataflow import check_dataflow

BASE = ModelSpec(
    Family.QWEN3_MOE, "experts", 1, 64, 2, 1, 64, 64, 97, 10_000.0, 1e-6, 1_024, None, False, qk_norm=True
)
Shape = tuple[int, int, int, int]
"""Hidden, width of an expert, experts, experts for each token."""


def spec_of(shape: Shape) -> ModelSpec:
    hidden, ffn, count, k = shape
    return replace(BASE, hidden=hidden, experts=Experts(count, k, ffn))


def compiled(
    shape: Shape, chips: int, slots: int, tokens: int, fmt: str = "bf16", experts: str = "cut"
) -> tuple[Program, object]:
    """The program without the graph's digest; t_max is the step's own T, so that the arena holds the step and no more."""
    system = load_system("groq3-lpx-32x8" if chips > 8 else "groq3-lpx-tray").subset(chips)
    options = Options(fmt, 64, hypothetical=fmt == "f32", slots=slots, t_max=tokens, experts=experts)
    image = compile_image(spec_of(shape), system, options)
    kind = StepKind(tokens, slots, 1, "last", "chip")
    return assemble(image, [unproved_timetable(spec_of(shape), system, image, kind)]), system


def test_rows_and_pieces_are_each_taken_once() -> None:
    for pieces, rows, fit in product((1, 2, 7, 8, 26), (1, 2, 3, 8, 9, 64), (1, 3, 7)):
        seen = np.zeros((rows, pieces), dtype=int)
        for of_rows, of_pieces in turns(pieces, rows, fit):
            seen[of_rows, of_pieces] += 1
            assert len(seen[of_rows]) == 1 or len(range(pieces)[of_pieces]) <= fit
        assert (seen == 1).all()


WIDE = [(2048, 768, 16, 8), (1024, 1408, 8, 2), (2048, 64, 4, 3)]
NARROW = [(640, 32, 4, 2), (640, 48, 5, 3), (330, 24, 331, 7), (900, 17, 6, 1), (64, 16, 4, 2)]


@pytest.mark.parametrize(
    ("fmt", "experts"),
    [("bf16", "cut"), ("f32", "cut"), ("int8", "cut"), ("bf16", "parallel"), ("fp8", "parallel")],
)
@pytest.mark.parametrize(("slots", "tokens"), [(1, 1), (1, 4), (3, 2), (2, 8)])
@pytest.mark.parametrize("chips", [1, 4, 16])
@pytest.mark.parametrize("shape", [*WIDE[:1], *NARROW[:3]])
def test_a_step_is_legal(shape: Shape, chips: int, slots: int, tokens: int, fmt: str, experts: str) -> None:
    program, system = compiled(shape, chips, slots, tokens, fmt, experts)
    verdict = verify(program, system)
    assert verdict.clean, verdict.violations[:3]
    timing = simulate(program, system)
    assert timing.clean
    assert timing.recomputed_cycles == timing.duration_cycles


@pytest.mark.slow
@pytest.mark.parametrize("experts", ["cut", "parallel"])
@pytest.mark.parametrize("fmt", ["bf16", "f32", "int8"])
@pytest.mark.parametrize("tokens", [2, 4, 16, 64])
@pytest.mark.parametrize("chips", [1, 4, 16, 32])
@pytest.mark.parametrize("shape", [*WIDE, *NARROW])
def test_every_step_is_legal(shape: Shape, chips: int, tokens: int, fmt: str, experts: str) -> None:
    for slots in (1, 2, 5):
        try:
            program, system = compiled(shape, chips, slots, tokens, fmt, experts)
        except DoesNotFit:
            # whole experts: every chip takes in every chip's results of every row, and works on whole rows of all of them
            many = tokens * slots >= 320 and chips >= 16 and experts == "parallel"
            assert many or tokens * slots * shape[3] * shape[0] // chips > 100_000
            continue
        verdict = verify(program, system)
        assert verdict.clean, verdict.violations[:3]


@pytest.mark.parametrize(
    ("shape", "chips", "slots", "tokens", "fmt", "split"),
    [
        ((640, 32, 4, 2), 16, 1, 4, "bf16", True),  # 8 pieces in a tile, a chain for each of the rows
        ((640, 32, 4, 2), 16, 2, 8, "bf16", True),  # 16 rows: a chain for some of the pieces
        ((640, 32, 4, 2), 4, 1, 4, "f32", True),
        ((330, 24, 12, 5), 8, 1, 2, "f32", True),
        ((330, 24, 12, 5), 2, 3, 2, "bf16", False),
    ],
)
def test_the_rows_are_the_graphs_expression(
    shape: Shape, chips: int, slots: int, tokens: int, fmt: str, split: bool
) -> None:
    program, system = compiled(shape, chips, slots, tokens, fmt)
    (timetable,) = program.timetables
    proved = assemble(
        program.image, [compile_timetable(spec_of(shape), system, program.image, timetable.kind)]
    )
    assert verify(proved, system).clean
    assert check_dataflow(proved, system) == ()
    assert any(".xgu.tile[0.0." in label for label in timetable.labels) == split


def test_a_chain_for_each_row_is_sooner_than_one_that_waits_for_its_own_tile() -> None:
    """Two planes load while two are passed; in a chain over rows each tile waits for the passes of the one before."""
    one, four = (compiled((640, 32, 4, 2), 16, 1, t)[0].timetables[0].duration for t in (1, 4))
    wide = [compiled((640, 320, 4, 2), 16, 1, t)[0].timetables[0].duration for t in (1, 4)]
    assert four - one < wide[1] - wide[0]
