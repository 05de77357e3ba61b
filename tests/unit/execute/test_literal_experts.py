"""A mixture of experts on the plain path and in the interpreter: the same memory, every byte of every chip."""

from pathlib import Path

import numpy as np
import pytest
from tests.families import write_family
from tests.stepping import Stepper

from ticktrue.execute import Machine
from ticktrue.execute.literal import Literal
from ticktrue.model import load_model
from ticktrue.program import StepKind


@pytest.mark.parametrize(
    ("chips", "tokens", "slots", "fmt", "per_token", "experts"),
    [
        (2, 4, 1, "bf16", 2, "cut"),
        (1, 2, 2, "f32", 3, "cut"),
        (4, 1, 1, "f32", 1, "cut"),
        (8, 2, 1, "bf16", 2, "cut"),
        (2, 4, 1, "int8", 2, "cut"),
        (4, 2, 2, "fp8", 3, "cut"),
        (2, 4, 1, "bf16", 2, "parallel"),
        (4, 2, 2, "int8", 3, "parallel"),
        (1, 2, 1, "fp8", 2, "parallel"),
    ],
)
def test_every_byte_of_memory_is_equal_after_each_step(
    tmp_path: Path, chips: int, tokens: int, slots: int, fmt: str, per_token: int, experts: str
) -> None:
    model = load_model(str(write_family(tmp_path / "m", "qwen3_moe", 2, num_experts_per_tok=per_token)))
    s = Stepper.make(model.spec, model.weights(), chips, fmt, 130, slots=slots, experts=experts)
    timetable = s.timetable(StepKind(tokens, slots, 2, "all", "chip"))
    fast, plain = (Machine(s.image, s.weights, s.system) for _ in range(2))
    literal = Literal(s.image, timetable, s.system, plain.memory)
    rng = np.random.default_rng(1)
    for pos in (0, 40):
        parts = [rng.integers(0, model.spec.vocab, max(1, tokens - slot)).tolist() for slot in range(slots)]
        fast.batch(timetable, parts, [pos] * slots)
        literal.run(parts, [pos] * slots)
        assert (fast.memory.words == plain.memory.words).all()
