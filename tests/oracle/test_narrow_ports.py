"""Chips whose narrow memory ports move fewer vectors per cycle than a beat has: legal, proved, and the same bits."""

from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest
from tests.families import write_family
from tests.models import write_llama
from tests.stepping import Stepper, same_bits

from ticktrue.compile import Options, assemble, compile_image, compile_timetable, unproved_timetable
from ticktrue.errors import Unschedulable
from ticktrue.graph.oracle import Cache, Oracle
from ticktrue.graph.oracle_fast import fast_matmul
from ticktrue.hw import System, load_system
from ticktrue.model import Model, load_model
from ticktrue.program import StepKind
from ticktrue.sim import simulate
from ticktrue.verify import verify
from ticktrue.verify.dataflow import check_dataflow

CASES = (
    ("llama", "groq3-lpx-tray", 2, ("bf16", "auto"), 8),
    ("gemma3", "groq3-lpx-tray", 8, ("bf16", "fp8"), 1),
    ("gemma4_wide", "groq3-lpx-tray", 2, ("int8", "auto"), 4),
    ("qwen2", "groq3-lpx", 16, ("fp8", "fp8"), 2),
    ("gemma4", "groq3-lpx-tray", 1, ("f32", "auto"), 16),
)
"""Family, system, chips, formats, tokens. Eight chips have more peers than write ports; 16 of a rack gather in two hops."""


@cache
def model(family: str) -> Model:
    directory = Path(mkdtemp()) / "m"
    return load_model(
        str(write_llama(directory, 3) if family == "llama" else write_family(directory, family, 3))
    )


def machine(name: str, chips: int, vectors: int) -> System:
    return load_system(name).subset(chips).with_fact("mem_narrow_vectors", vectors)


@pytest.mark.parametrize("vectors", [1, 2, 3])
@pytest.mark.parametrize(("family", "on", "chips", "formats", "width"), CASES)
def test_programs_are_legal_and_true(
    family: str, on: str, chips: int, formats: tuple[str, str], width: int, vectors: int
) -> None:
    spec, weights, (fmt, kv), system = (
        model(family).spec,
        model(family).weights(),
        formats,
        machine(on, chips, vectors),
    )
    image = compile_image(spec, system, Options(fmt, 100, fmt == "f32", 2, 16, kv))
    kinds = [StepKind(width, 2, 2, "all", "chip"), StepKind(1, 1, 1, "last", "chip")]
    program = assemble(image, [compile_timetable(spec, system, image, kind) for kind in kinds])
    assert verify(program, system).violations == ()
    assert all(simulate(program, system, kind).clean for kind in kinds)
    assert check_dataflow(program, system) == ()
    s, sequences = Stepper(spec, weights, system, image), (tokens(spec.vocab, 21), tokens(spec.vocab, 9))
    found, _ = s.run_batch(sequences, 16)
    oracle = Oracle(spec, weights, fmt, fast_matmul, Cache("e4m3") if kv == "fp8" else None)
    for logits, sequence in zip(found, sequences, strict=True):
        assert same_bits(logits, oracle.forward(sequence).logits)


def tokens(vocab: int, count: int) -> list[int]:
    return np.random.default_rng(count).integers(0, vocab, count).tolist()


def test_narrow_ports_cost_cycles_and_wide_ones_none() -> None:
    """The same step on ports of 1, 2, 4 and 8 vectors: slower and slower; a beat has but 4."""
    spec, kind = model("llama").spec, StepKind(8, 1, 2, "all", "chip")
    durations = []
    for vectors in (1, 2, 4, 8):
        system = machine("groq3-lpx-tray", 2, vectors)
        image = compile_image(spec, system, Options("bf16", 100))
        durations.append(unproved_timetable(spec, system, image, kind).duration)
    assert durations[0] > durations[1] > durations[2] == durations[3]


def test_what_no_pace_makes_right_is_refused() -> None:
    """Experts are weighed by results that come every cycle; a port of one vector cannot bring y as fast."""
    spec, system = model("qwen3_moe").spec, machine("groq3-lpx-tray", 1, 1)
    image = compile_image(spec, system, Options("bf16", 100))
    with pytest.raises(Unschedulable, match=r"MUL hears results that come every cycle.*mix") as e:
        unproved_timetable(spec, system, image, StepKind(2, 1, 1, "all", "chip"))
    assert e.value.code == "T320"
