"""The interpreter against the plain path on every family and on ragged batches: every byte of every chip, step by step."""

from pathlib import Path

import numpy as np
import pytest
from tests.families import FAMILIES, write_family
from tests.stepping import Stepper

from ticktrue.execute import Machine
from ticktrue.execute.literal import Literal
from ticktrue.isa import Draw
from ticktrue.model import load_model
from ticktrue.program import StepKind

CASES = {"qwen2": (2, "bf16"), "qwen3": (4, "f32"), "mistral": (2, "bf16"), "gemma3": (4, "bf16"), "gemma4": (2, "f32"),
         "gemma4_wide": (2, "bf16")}  # fmt: skip


def test_every_dense_family_has_a_case() -> None:
    assert set(CASES) == set(FAMILIES) - {"qwen3_moe"}


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("family", CASES)
def test_every_byte_of_memory_is_equal(tmp_path: Path, family: str, slots: int) -> None:
    chips, fmt = CASES[family]
    model = load_model(str(write_family(tmp_path / "m", family)))
    s = Stepper.make(model.spec, model.weights(), chips, fmt, 460, slots=slots)
    timetable = s.timetable(StepKind(2, slots, 7, "all", "chip"))
    fast, plain = (Machine(s.image, s.weights, s.system) for _ in range(2))
    literal = Literal(s.image, timetable, s.system, plain.memory)
    rng = np.random.default_rng(1)
    # the first positions, around a block's edge, and where a ring of four blocks has gone round
    for at, start in enumerate((0, 63, 300)):
        pos = [start + 5 * slot for slot in range(slots)]
        valid = [1 + (slot + at) % 2 if slot != at else 2 * (slots == 1) for slot in range(slots)]
        parts = [rng.integers(0, model.spec.vocab, n).tolist() for n in valid]
        draws = [Draw(0.7 if slot % 2 else 0.0, 0xFEDCBA9876543210 + slot, at) for slot in range(slots)]
        fast.batch(timetable, parts, pos, draws)
        literal.run(parts, pos, draws)
        assert (fast.memory.words == plain.memory.words).all()
