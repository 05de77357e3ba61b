"""A whole rack: 128 and 256 chips compile, are legal, and are timed exactly; both halves, slow links and alignments included."""

from dataclasses import replace

import pytest
from tests.models import SPEC

from ticktrue.compile import Options, assemble, compile_image
from ticktrue.compile.pipeline import unproved_timetable
from ticktrue.hw import load_system
from ticktrue.program import Plan, StepKind
from ticktrue.sim import simulate
from ticktrue.verify import verify

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("name", "chips", "tokens", "plan"),
    [
        ("groq3-lpx", 128, 1, Plan.of(128, 1, tray=16)),
        ("groq3-lpx", 192, 1, Plan.of(192, 3, tray=16)),
        ("groq3-lpx", 256, 1, Plan.of(256, 1, tray=16)),
        ("groq3-lpx", 256, 8, Plan.of(256, 1, tray=16)),
        ("groq3-lpx-two-hop", 256, 1, Plan.of(256, 1, tray=16)),
        ("groq3-lpx-32x8", 256, 1, Plan.of(256, 1, tray=8)),
        ("groq3-lpx-32x8-two-hop", 96, 4, Plan.of(96, 3, tray=8)),
    ],
)
def test_a_rack_is_legal_and_timed_exactly(name: str, chips: int, tokens: int, plan: Plan) -> None:
    system = load_system(name).subset(chips)
    spec = replace(SPEC, layers=1)
    image = compile_image(spec, system, Options(max_context=150))
    assert image.key.plan == plan
    timetable = unproved_timetable(spec, system, image, StepKind(tokens, 1, 3, "all", "chip"))
    program = assemble(image, [timetable])
    assert verify(program, system).violations == ()
    timing = simulate(program, system)
    assert timing.mismatches == ()
    assert timing.deskew_cycles == (timetable.duration // 30_000 + 1) * 16
