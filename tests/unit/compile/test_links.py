"""Timetables for links, FIFOs and clocks other than the shipped ones: what the compiler makes is legal and timed as stated."""

from dataclasses import replace

import pytest
from tests.models import SPEC

from ticktrue.compile import Options, assemble, compile_image
from ticktrue.compile.pipeline import unproved_timetable
from ticktrue.errors import Unschedulable
from ticktrue.hw import System, load_system
from ticktrue.program import Program, StepKind
from ticktrue.program import columns as col
from ticktrue.sim import simulate
from ticktrue.verify import verify

TINY = load_system("tiny-16").subset(6)


def compiled(system: System, tokens: int = 4, blocks: int = 3) -> Program:
    image = compile_image(SPEC, system, Options(max_context=150))
    kind = StepKind(tokens, 1, blocks, "all", "chip")
    return assemble(image, [unproved_timetable(SPEC, system, image, kind)])


def seen_by(program: Program, system: System) -> set[str]:
    """What `verify` finds in the program on another machine, as if it had been compiled for it."""
    key = replace(program.image.key, facts=system.fact_digest())
    return set(verify(replace(program, image=replace(program.image, key=key)), system).codes)


@pytest.mark.parametrize("tokens", [1, 4])
@pytest.mark.parametrize("depth", [6, 7, 8, 9, 11])
def test_a_shallow_fifo_slows_the_links(depth: int, tokens: int) -> None:
    """Messages follow each other more slowly, within a SEND and from one SEND to the next, and all is legal and exact."""
    system = TINY.with_fact("c2c_fifo_vectors", depth)
    program, fast = compiled(system, tokens), compiled(TINY, tokens)
    assert verify(program, system).violations == ()
    timing = simulate(program, system)
    assert timing.mismatches == ()
    assert program.timetables[0].duration > fast.timetables[0].duration
    late = program.timetables[0].chains[:, 2]
    assert set(late.tolist()) == {col.ON_TIME, col.LATE_QUEUE}
    assert all(
        label.endswith("gather") for label, l in zip(program.timetables[0].labels, late, strict=True) if l
    )


def test_a_timetable_for_deep_fifos_overflows_shallow_ones() -> None:
    assert seen_by(compiled(TINY), TINY.with_fact("c2c_fifo_vectors", 4)) == {"V115"}


def test_a_fifo_that_cannot_hold_two_messages_is_refused() -> None:
    with pytest.raises(Unschedulable, match="T322: expected receive FIFOs of at least 6 vectors, found 5"):
        compiled(TINY.with_fact("c2c_fifo_vectors", 5))


@pytest.mark.parametrize(("ppm", "period"), [(900, 3_333), (9_000, 333)])
def test_fast_clocks_align_more_often(ppm: int, period: int) -> None:
    """A drift of 900 ppm uses up the spare 6 cycles of guard in 6 / 1,800e-6 = 3,333 cycles."""
    system = TINY.with_fact("drift_ppm", ppm)
    program = compiled(system)
    (timetable,) = program.timetables
    assert timetable.duration == compiled(TINY).timetables[0].duration  # g does not count held cycles
    assert timetable.deskew == period
    assert verify(program, system).violations == ()
    timing = simulate(program, system)
    assert timing.mismatches == ()
    assert timing.deskew_cycles == (timetable.duration // period + 1) * 16


def test_planted_alignments() -> None:
    """Aligned only at the entry, the clocks drift beyond the guard (V113); an epoch asks for more than that (V114)."""
    program = compiled(TINY)
    assert program.timetables[0].duration > 3_333
    assert seen_by(program, TINY.with_fact("drift_ppm", 900)) == {"V113"}
    assert seen_by(program, TINY.with_fact("epoch_cycles", 2_000)) == {"V114"}
    aligned = replace(program, timetables=(replace(program.timetables[0], deskew=2_000),))
    assert seen_by(aligned, TINY.with_fact("epoch_cycles", 2_000)) == set()
    assert seen_by(aligned, TINY.with_fact("epoch_cycles", 1_999)) == {"V114"}


@pytest.mark.parametrize(
    ("fact", "value"), [("skew0_cycles", 9), ("drift_ppm", 4_000_000), ("deskew_hold_cycles", 40_000)]
)
def test_clocks_that_no_alignment_can_keep_are_refused(fact: str, value: int) -> None:
    system = TINY.with_fact(fact, value).with_fact("epoch_cycles", 2_000)
    with pytest.raises(Unschedulable, match=r"T32[12]: expected"):
        compiled(system)


@pytest.mark.parametrize("name", ["groq3-lpx-tray", "groq3-lpx-tray8", "tiny-16", "tiny-4"])
def test_every_shipped_tray_is_legal_at_the_pace_of_its_links(name: str) -> None:
    """FIFOs, guard and epoch of the catalog need no slower links: no chain is late."""
    system = load_system(name).subset(4)
    program = compiled(system, tokens=1)
    assert verify(program, system).violations == ()
    assert not program.timetables[0].chains[:, 2].any()
