"""Compiled programs of families for planted faults: windows in rings, several slots, biases, norms of heads, parts of heads."""

from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from tests.families import write_family
from tests.unit.verify.editor import Editor

from ticktrue.compile import Options, compile_program
from ticktrue.hw import System, load_system
from ticktrue.model import load_model
from ticktrue.program import StepKind

KINDS = {
    "gemma3": (4, 3, StepKind(2, 2, 7, "all", "chip")),
    "qwen2": (4, 2, StepKind(2, 2, 3, "last", "chip")),
    "gemma4": (2, 2, StepKind(1, 2, 2, "all", "chip")),
    "gemma4_wide": (2, 1, StepKind(2, 1, 2, "last", "chip")),
}
"""Chips, slots of the image, and the step."""


def system_of(family: str) -> System:
    return load_system("groq3-lpx-tray").subset(KINDS[family][0])


@cache
def editor_of(family: str) -> Editor:
    """The program of one timetable, with its graph's digest."""
    _, slots, kind = KINDS[family]
    model = load_model(str(write_family(Path(mkdtemp()) / family, family)))
    options = Options("bf16", 460, slots=slots)
    return Editor(compile_program(model.spec, system_of(family), options, [kind]))
