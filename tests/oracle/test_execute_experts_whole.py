"""Whole experts on chips, in reserved slots, against the independent oracle: the bits of the cut form, whatever holds what."""

from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest
from tests.families import write_family
from tests.oracle.test_execute_experts import CONTEXT, check, model, reference, tokens_of
from tests.stepping import Stepper, same_bits

from ticktrue.graph.oracle import Oracle
from ticktrue.graph.oracle_fast import fast_matmul
from ticktrue.model import load_model


@cache
def stepper(name: str, chips: int, fmt: str, slots: int = 1, on: str = "groq3-lpx-tray") -> Stepper:
    of = model(name)
    return Stepper.make(of.spec, of.weights(), chips, fmt, CONTEXT, on, slots=slots, experts="parallel")


@pytest.mark.parametrize(
    ("name", "chips", "chunk", "fmt", "count"),
    [
        ("moe", 1, 64, "bf16", 130),  # 8 experts on a chip, 2 ranks
        ("moe", 2, 7, "bf16", 130),
        ("moe", 4, 1, "bf16", 66),  # 2 experts, each run for every row
        ("moe", 8, 64, "bf16", 300),
        ("moe", 16, 4, "bf16", 30),  # chips that hold none
        ("moe", 4, 7, "f32", 130),
        ("moe", 2, 64, "int8", 130),
        ("moe", 8, 7, "int8", 66),
        ("moe", 2, 7, "fp8", 66),
        ("moe", 4, 64, "fp8", 130),
        ("wide", 4, 7, "bf16", 20),
        ("one", 2, 4, "bf16", 20),
        ("narrow", 2, 16, "bf16", 20),  # more columns than a beat has lanes
        ("narrow", 4, 8, "int8", 20),
        ("narrow", 16, 4, "f32", 20),
    ],
)
def test_logits_and_cache_equal_the_oracle(name: str, chips: int, chunk: int, fmt: str, count: int) -> None:
    check(
        stepper(name, chips, fmt), tokens_of(name, count), chunk, reference(name, fmt, tokens_of(name, count))
    )


@pytest.mark.parametrize(("chips", "chunk", "fmt"), [(2, 7, "bf16"), (4, 64, "int8"), (8, 1, "f32")])
def test_three_slots_of_unequal_length_equal_the_oracle(chips: int, chunk: int, fmt: str) -> None:
    s = stepper("moe", chips, fmt, 3)
    sequences = [tokens_of("moe", count, seed) for seed, count in enumerate((70, 33, 1))]
    logits, _ = s.run_batch(sequences, chunk)
    for tokens, found in zip(sequences, logits, strict=True):
        assert same_bits(found, reference("moe", fmt, tokens).logits)


def test_every_token_on_one_expert_drops_none() -> None:
    """The worst case of a chip: a router of equal logits sends every row to experts 0 and 1, which lie on one chip."""
    of = model()

    class Even:
        spec = of.spec

        def __getattr__(self, name: str) -> object:
            return getattr(of.weights(), name)

        def tensor(self, name: str) -> object:
            found = of.weights().tensor(name)
            return found * 0 if name.endswith("router") else found

    s = Stepper.make(of.spec, Even(), 4, "bf16", CONTEXT, experts="parallel")
    tokens = tokens_of("moe", 64)
    logits, _ = s.run(tokens, 64)
    assert same_bits(logits, Oracle(of.spec, Even(), "bf16", matmul=fast_matmul).forward(tokens).logits)


def test_two_trays_of_a_rack_equal_the_oracle() -> None:
    s = stepper("moe", 16, "bf16", 1, "groq3-lpx-32x8")
    assert s.image.key.plan.tray == 8
    tokens = tokens_of("moe", 20)
    logits, _ = s.run(tokens, 4)
    assert same_bits(logits, reference("moe", "bf16", tokens).logits)


def test_equal_layers_are_one_loop() -> None:
    eight = load_model(str(write_family(Path(mkdtemp()) / "eight", "qwen3_moe", 4, num_hidden_layers=8)))
    for chips in (2, 4):
        s = Stepper.make(eight.spec, eight.weights(), chips, "bf16", CONTEXT, experts="parallel")
        tokens = list(range(100, 130))
        logits, _ = s.run(tokens, 4)
        assert {loop.count for t in s.timetables.values() for loop in t.loops} == {8}
        oracle = Oracle(eight.spec, eight.weights(), "bf16", matmul=fast_matmul)
        assert same_bits(logits, oracle.forward(tokens).logits)


@pytest.mark.slow
@pytest.mark.parametrize("fmt", ["bf16", "f32", "int8", "fp8"])
@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("chunk", [1, 7, 64])
@pytest.mark.parametrize("chips", [1, 2, 4, 8, 16])
def test_every_chip_count_chunk_and_batch(chips: int, chunk: int, slots: int, fmt: str) -> None:
    s = stepper("moe", chips, fmt, slots)
    sequences = [tokens_of("moe", 300 - 117 * i, i) for i in range(slots)]
    logits, _ = s.run_batch(sequences, chunk)
    for tokens, found in zip(sequences, logits, strict=True):
        assert same_bits(found, reference("moe", fmt, tokens).logits)
