"""Small compiled programs that several tests of the replay share."""

from dataclasses import replace
from functools import cache

from tests.models import SPEC

from ticktrue.compile import Options, assemble, compile_image, compile_timetable
from ticktrue.hw import load_system
from ticktrue.program import StepKind

# two layers, three KV heads: 6 chips are 3 head groups of 2 context lanes
SMALL = replace(SPEC, name="small", layers=2, hidden=96, heads=3, kv_heads=3, head_dim=32, ffn=100, vocab=90)


@cache
def compiled(system_name="groq3-lpx-tray", chips=6, tokens=1, blocks=3, spec=SMALL):
    """(program of one timetable, system)."""
    system = load_system(system_name).subset(chips)
    return compiled_on(system, tokens, blocks, spec), system


def compiled_on(system, tokens=1, blocks=3, spec=SMALL):
    """A program of one timetable for any system."""
    image = compile_image(spec, system, Options("bf16", 512, hypothetical=True))
    return assemble(
        image, [compile_timetable(spec, system, image, StepKind(tokens, 1, blocks, "last", "chip"))]
    )
