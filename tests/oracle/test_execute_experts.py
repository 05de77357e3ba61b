"""A mixture of experts on chip against the independent oracle: bitwise, for chips, chunks, slots and formats."""

from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest
from tests.families import write_family
from tests.stepping import Stepper, same_bits

from ticktrue.graph.oracle import Oracle, OracleResult
from ticktrue.graph.oracle_experts import chosen
from ticktrue.graph.oracle_fast import fast_matmul
from ticktrue.model import Model, load_model
from ticktrue.program import class_regions

CONTEXT = 300
WIDE: dict[str, object] = {
    "num_experts": 331,
    "num_experts_per_tok": 7,
    "moe_intermediate_size": 24,
    "num_hidden_layers": 1,
}
"""More experts than a beat has lanes, and an odd number of them for each token."""
NARROW: dict[str, object] = {
    "hidden_size": 650,
    "moe_intermediate_size": 32,
    "num_experts": 5,
    "num_experts_per_tok": 3,
    "num_hidden_layers": 1,
}
"""On many chips an expert has two columns of each: so many pieces in a tile that their streams do not fit in one chain."""


@cache
def model(name: str = "moe") -> Model:
    changes = {"moe": {}, "wide": WIDE, "one": {"num_experts_per_tok": 1}, "narrow": NARROW}[name]
    return load_model(str(write_family(Path(mkdtemp()) / name, "qwen3_moe", 3, **changes)))


@cache
def stepper(name: str, chips: int, fmt: str, slots: int = 1) -> Stepper:
    return Stepper.make(model(name).spec, model(name).weights(), chips, fmt, CONTEXT, slots=slots)


def tokens_of(name: str, count: int, seed: int = 7) -> list[int]:
    return np.random.default_rng(seed).integers(0, model(name).spec.vocab, count).tolist()


def reference(name: str, fmt: str, tokens: list[int]) -> OracleResult:
    return Oracle(model(name).spec, model(name).weights(), fmt, matmul=fast_matmul).forward(tokens)


def check(s: Stepper, tokens: list[int], chunk: int, expected: OracleResult) -> None:
    """Logits, and K and V of every layer, after steps of `chunk` tokens."""
    logits, machine = s.run(tokens, chunk)
    assert same_bits(logits, expected.logits)
    k, v = s.cache(machine, len(tokens))
    for layer in range(s.spec.layers):
        assert same_bits(k[layer], expected.k[layer])
        assert same_bits(v[layer], expected.v[layer])


@pytest.mark.parametrize(
    ("name", "chips", "chunk", "fmt", "count"),
    [
        ("moe", 1, 64, "bf16", 300),
        ("moe", 2, 7, "bf16", 130),
        ("moe", 4, 1, "bf16", 66),
        ("moe", 8, 64, "bf16", 300),
        ("moe", 4, 7, "f32", 130),
        ("moe", 8, 1, "f32", 66),
        ("moe", 1, 64, "f32", 130),
        ("wide", 2, 7, "bf16", 20),
        ("wide", 4, 64, "f32", 20),
        ("one", 2, 4, "bf16", 20),
        ("narrow", 16, 4, "bf16", 21),
        ("narrow", 16, 64, "bf16", 70),
        ("narrow", 4, 8, "f32", 20),
        ("narrow", 8, 16, "f32", 20),
        ("moe", 1, 64, "int8", 130),
        ("moe", 8, 7, "int8", 130),
        ("moe", 2, 64, "fp8", 130),
        ("moe", 4, 1, "fp8", 66),
        ("wide", 4, 7, "int8", 20),
        ("wide", 2, 64, "fp8", 20),
        ("one", 4, 4, "fp8", 20),
        ("narrow", 8, 8, "int8", 20),
        ("narrow", 16, 16, "fp8", 20),
    ],
)
def test_logits_and_cache_equal_the_oracle(name: str, chips: int, chunk: int, fmt: str, count: int) -> None:
    check(
        stepper(name, chips, fmt), tokens_of(name, count), chunk, reference(name, fmt, tokens_of(name, count))
    )


@pytest.mark.parametrize(
    ("chips", "chunk", "fmt"),
    [(1, 7, "bf16"), (2, 64, "f32"), (4, 1, "bf16"), (8, 7, "bf16"), (2, 7, "int8"), (4, 64, "fp8")],
)
def test_three_slots_of_unequal_length_equal_the_oracle(chips: int, chunk: int, fmt: str) -> None:
    s = stepper("moe", chips, fmt, 3)
    sequences = [tokens_of("moe", count, seed) for seed, count in enumerate((70, 33, 1))]
    logits, machine = s.run_batch(sequences, chunk)
    for slot, (tokens, found) in enumerate(zip(sequences, logits, strict=True)):
        expected = reference("moe", fmt, tokens)
        assert same_bits(found, expected.logits)
        k, v = s.cache(machine, len(tokens), slot)
        assert all(same_bits(a, b) for a, b in zip((*k, *v), (*expected.k, *expected.v), strict=True))


def test_every_chip_takes_the_experts_that_the_oracle_takes() -> None:
    """The last layer's choice is still in scratch after the step: its weights and its ids, rank by rank, on every chip."""
    s, tokens = Stepper.make(model().spec, model().weights(), 4, "bf16", CONTEXT), tokens_of("moe", 8)
    _, machine = s.run(tokens, 8)
    (timetable,) = s.timetables.values()
    (region,) = [r for r in class_regions(s.image, timetable) if r.name == "route"]
    logits = []

    def spy(h: np.ndarray, w: np.ndarray, tile: int) -> np.ndarray:
        y = fast_matmul(h, w, tile)
        if w.shape[1] == s.spec.experts.count:
            logits.append(y)
        return y

    Oracle(s.spec, s.weights, "bf16", matmul=spy).forward(tokens)
    ids, weights = chosen(logits[-1], 2)
    assert len({tuple(row) for row in ids.tolist()}) > 2  # tokens differ in their experts
    for chip in range(4):
        at = machine.memory.vector(chip, region) * 80
        found = machine.memory.floats[at : at + 8 * region.vectors // 8 * 80].reshape(8, -1)
        assert same_bits(found[:, :2].copy(), weights)
        assert (found[:, 2:4].copy().view(np.int32) == ids).all()


def test_another_expert_would_be_seen() -> None:
    """The comparison can fail: with the weights of two experts exchanged, bits differ."""
    s, tokens = stepper("moe", 2, "bf16"), tokens_of("moe", 10)

    class Exchanged:
        spec = s.spec

        def tensor(self, name: str) -> np.ndarray:
            whole = s.weights.tensor(name)
            if not name.endswith("experts.up"):
                return whole
            parts = whole.reshape(s.spec.experts.count, -1, whole.shape[1])[[1, 0, *range(2, 8)]]
            return parts.reshape(whole.shape)

        def values(self, name: str) -> np.ndarray:
            return s.weights.values(name)

    wrong = Oracle(s.spec, Exchanged(), "bf16", matmul=fast_matmul).forward(tokens)
    logits, _ = s.run(tokens, 7)
    assert same_bits(logits, reference("moe", "bf16", tokens).logits)
    assert not same_bits(logits, wrong.logits)


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


def test_equal_layers_of_experts_are_one_loop() -> None:
    """Registers are written anew in every iteration; the loop's bits are the oracle's."""
    eight = load_model(str(write_family(Path(mkdtemp()) / "eight", "qwen3_moe", 4, num_hidden_layers=8)))
    s = Stepper.make(eight.spec, eight.weights(), 4, "bf16", CONTEXT)
    tokens = list(range(100, 130))
    logits, _ = s.run(tokens, 4)
    assert {loop.count for t in s.timetables.values() for loop in t.loops} == {8}
    assert same_bits(
        logits, Oracle(eight.spec, eight.weights(), "bf16", matmul=fast_matmul).forward(tokens).logits
    )


def test_two_trays_of_a_rack_equal_the_oracle() -> None:
    """Every gather goes in two hops, that of both ranks of each row too."""
    s = Stepper.make(model().spec, model().weights(), 16, "bf16", CONTEXT, "groq3-lpx-32x8")
    assert s.image.key.plan.tray == 8
    tokens = tokens_of("moe", 20)
    logits, _ = s.run(tokens, 4)
    assert same_bits(logits, reference("moe", "bf16", tokens).logits)
