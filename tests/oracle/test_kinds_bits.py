"""Kinds of attention on grids of their own: proved, timed exactly, and equal to the oracle bit for bit, on every choice.

Two-layer Gemma 3 and Gemma 4 models; the first layer slides. A grid is head groups x context lanes; the first is that of full
attention. Beyond one tray the two kinds need gathers of different steps.
"""

from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest
from tests.families import write_family
from tests.oracle.family_bits import check_state, feed
from tests.stepping import Stepper, same_bits

from ticktrue.compile import Options, assemble, compile_image, compile_timetable
from ticktrue.execute import Machine
from ticktrue.graph.oracle import Oracle, OracleResult
from ticktrue.graph.oracle_fast import fast_matmul
from ticktrue.hw import load_system
from ticktrue.model import LayerKind, Model, load_model
from ticktrue.program import Grid, StepKind
from ticktrue.sim import simulate
from ticktrue.verify import verify
from ticktrue.verify.dataflow import rows_digest

CHANGES: dict[str, tuple[str, dict[str, object]]] = {
    "gemma3": ("gemma3", {}),  # 2 KV heads of 64 in both
    "gemma4": ("gemma4", {}),  # 1 of 128 and 2 of 64
    "gemma4_wide": ("gemma4_wide", {}),  # 1 of 512 and 2 of 256: the head sizes of the 31B
    # 2 of 64 and 8 of 32: four times as many in windows, as in the 31B
    "gemma4_many": ("gemma4", {"num_attention_heads": 8, "num_key_value_heads": 8, "num_global_key_value_heads": 2,
                               "head_dim": 32, "global_head_dim": 64}),
}  # fmt: skip
CASES = [
    ("gemma3", "groq3-lpx-tray", 4, (1, 2), (Grid(1, 4), Grid(2, 2))),
    ("gemma3", "groq3-lpx-tray", 4, (2, 1), (Grid(2, 2), Grid(1, 4))),
    ("gemma3", "groq3-lpx-tray", 16, (1, 2), (Grid(1, 16), Grid(2, 8))),
    ("gemma4", "groq3-lpx-tray", 2, (), (Grid(1, 2), Grid(2, 1))),
    ("gemma4", "groq3-lpx-tray", 8, (), (Grid(1, 8), Grid(2, 4))),
    ("gemma4_wide", "groq3-lpx-tray", 4, (), (Grid(1, 4), Grid(2, 2))),
    ("gemma4_many", "groq3-lpx-tray", 8, (), (Grid(2, 4), Grid(8, 1))),
    ("gemma4_many", "groq3-lpx-tray", 8, (2, 4), (Grid(2, 4), Grid(4, 2))),
    ("gemma4_many", "groq3-lpx-tray", 8, (1, 2), (Grid(1, 8), Grid(2, 4))),
    ("gemma4_many", "groq3-lpx-tray", 8, (2,), (Grid(2, 4), Grid(2, 4))),
    # trays of 4: full attention in context groups of two trays, head groups of sliding attention in several trays
    ("gemma4_many", "tiny-rack", 16, (), (Grid(2, 8), Grid(8, 2))),
    ("gemma4_many", "tiny-rack", 8, (1, 4), (Grid(1, 8), Grid(4, 2))),
    ("gemma4_many", "groq3-lpx", 32, (), (Grid(2, 16), Grid(8, 4))),
]  # fmt: skip
CONTEXT = 460
COUNT = 330
"""Positions: the ring of four blocks has gone round."""


@cache
def model(name: str) -> Model:
    family, changes = CHANGES[name]
    return load_model(str(write_family(Path(mkdtemp()) / name, family, **changes)))


@cache
def tokens_of(name: str, seed: int = 11) -> list[int]:
    return np.random.default_rng(seed).integers(0, model(name).spec.vocab, COUNT).tolist()


@cache
def reference(name: str, fmt: str, count: int = COUNT, seed: int = 11) -> OracleResult:
    oracle = Oracle(model(name).spec, model(name).weights(), fmt, matmul=fast_matmul)
    return oracle.forward(tokens_of(name, seed)[:count])


def stepper(
    name: str, on: str, chips: int, heads: tuple[int, ...], fmt: str = "bf16", slots: int = 1
) -> Stepper:
    made, system = model(name), load_system(on).subset(chips)
    if on == "tiny-rack":  # inboxes for 64 tokens from every chip
        system = system.with_fact("sram_bytes", 64_000_000)
    options = Options(fmt, CONTEXT, hypothetical=fmt == "f32", slots=slots, heads=heads)
    return Stepper(made.spec, made.weights(), system, compile_image(made.spec, system, options))


@pytest.mark.parametrize(("name", "on", "chips", "heads", "grids"), CASES)
def test_a_choice_of_grids_is_proved_and_equal_to_the_oracle(
    name: str, on: str, chips: int, heads: tuple[int, ...], grids: tuple[Grid, ...]
) -> None:
    s = stepper(name, on, chips, heads)
    assert s.spec.kinds == (LayerKind.FULL, LayerKind.SLIDING)
    assert s.image.key.plan.grids == grids
    for kind in (StepKind(1, 1, 2, "last", "chip"), StepKind(4, 1, 7, "all", "chip")):
        timetable = compile_timetable(s.spec, s.system, s.image, kind)
        program = assemble(s.image, [timetable])
        assert verify(program, s.system).violations == ()
        assert rows_digest(program, timetable, s.system) == timetable.dataflow
        assert simulate(program, s.system).mismatches == ()
    expected = reference(name, "bf16")
    logits, machine = s.run(tokens_of(name), 64)
    assert same_bits(logits, expected.logits)
    check_state(s, machine, (COUNT,), [expected])


@pytest.mark.parametrize("fmt", ["bf16", "f32"])
def test_ragged_sequences_in_small_chunks(fmt: str) -> None:
    """Three sequences, chunks of 7 that straddle blocks: each as if alone."""
    counts, seeds = (130, 65, 3), (11, 12, 13)
    s = stepper("gemma4_many", "groq3-lpx-tray", 8, (2, 8), fmt, slots=3)
    expected = [reference("gemma4_many", fmt, n, seed) for n, seed in zip(counts, seeds, strict=True)]
    tokens = [tokens_of("gemma4_many", seed)[:n] for n, seed in zip(counts, seeds, strict=True)]
    machine, at = Machine(s.image, s.weights, s.system), [0, 0, 0]
    while any(a < n for a, n in zip(at, counts, strict=True)):
        parts = [t[a : a + 7] for t, a in zip(tokens, at, strict=True)]
        for i, rows in enumerate(feed(s, machine, parts, at)):
            assert same_bits(rows, expected[i].logits[at[i] : at[i] + len(rows)]), (i, at[i])
        at = [a + len(part) for a, part in zip(at, parts, strict=True)]
    check_state(s, machine, counts, expected)


def test_the_digest_does_not_depend_on_grids() -> None:
    """The model's expression is one, however chips share it."""
    kind = StepKind(1, 1, 2, "last", "chip")
    stated = {
        compile_timetable(s.spec, s.system, s.image, kind).dataflow
        for s in (stepper("gemma3", "groq3-lpx-tray", 4, heads) for heads in ((1,), (2,), (1, 2), (2, 1)))
    }
    assert len(stated) == 1
