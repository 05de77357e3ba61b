"""Compiled tiny programs, made once: the artefact as it really is."""

from functools import cache

from tests.models import SPEC

from ticktrue.compile import Options, compile_program
from ticktrue.hw import load_system
from ticktrue.program import Program, StepKind

KINDS = {
    "decode": (2, (StepKind(1, 1, 1, "last", "chip"),)),
    "two": (6, (StepKind(1, 1, 3, "last", "chip"), StepKind(4, 1, 3, "all", "chip"))),
    "alone": (1, (StepKind(2, 1, 2, "last", "chip"),)),
    "image": (3, ()),
}


@cache
def compiled(name: str) -> Program:
    chips, kinds = KINDS[name]
    system = load_system("groq3-lpx-tray").subset(chips)
    return compile_program(SPEC, system, Options("bf16", 512), kinds)
