"""The compiled interpreter against the plain path: the same memory, every byte of every chip, after whole steps."""

from pathlib import Path

import numpy as np
import pytest
from tests.models import TINY_D128, TINY_KV3, write_llama
from tests.stepping import Stepper

from ticktrue.execute import Machine
from ticktrue.execute.literal import Literal
from ticktrue.isa import Draw
from ticktrue.model import load_model
from ticktrue.program import StepKind


@pytest.mark.parametrize(
    ("shape", "chips", "tokens", "fmt", "blocks"),
    [
        (TINY_KV3, 6, 4, "bf16", 3),
        (TINY_KV3, 2, 1, "bf16", 2),
        (TINY_KV3, 1, 4, "f32", 1),
        (TINY_D128, 4, 2, "bf16", 2),
        (TINY_D128, 2, 2, "f32", 3),
    ],
)
def test_every_byte_of_memory_is_equal_after_each_step(
    tmp_path: Path, shape: object, chips: int, tokens: int, fmt: str, blocks: int
) -> None:
    model = load_model(str(write_llama(tmp_path / "m", 3, shape)))  # type: ignore[arg-type]
    s = Stepper.make(model.spec, model.weights(), chips, fmt, 300)
    timetable = s.timetable(StepKind(tokens, 1, blocks, "all", "chip"))
    fast, plain = (Machine(s.image, s.weights, s.system) for _ in range(2))
    literal = Literal(s.image, timetable, s.system, plain.memory)
    ids = np.random.default_rng(1).integers(0, model.spec.vocab, 3 * tokens).tolist()
    for at, pos in ((0, 0), (tokens, tokens), (2 * tokens, 64 * blocks - tokens)):
        part = ids[at : at + max(1, tokens - 1)]
        draw = Draw(0.7 if pos else 0.0, 0xFEDCBA9876543210 + at, at)
        fast.step(timetable, part, pos, draw)
        literal.run([part], [pos], [draw])
        assert (fast.memory.words == plain.memory.words).all()
