"""Gemma 3 270M and Qwen2.5-Coder 0.5B as programs against the oracle, bit for bit, on a pairwise array.

Those on four chips are slow tests, the others are run by hand. The first model has 15 sliding layers of a window of 512 and 3 full
ones, one KV head of 256; the second has biases and two KV heads.
"""

from functools import cache
from itertools import combinations, product

import numpy as np
import pytest
from tests.models import registry_file
from tests.stepping import Stepper, same_bits

from ticktrue.compile import bucket, image_blocks, tokens_kind
from ticktrue.execute import Machine
from ticktrue.graph.oracle import Oracle
from ticktrue.graph.oracle_fast import fast_matmul
from ticktrue.model import Model, load_model
from ticktrue.program import StepKind

MODELS = ("gemma-3-270m", "qwen2.5-coder-0.5b")
CHIPS, CHUNKS, BATCHES = (4, 8, 16), (1, 7, 64), ((70,), (66, 1, 64))
TAIL = 12
"""Last positions of each sequence whose logits are compared; what is before them goes in by 64."""
LONG = 1_100
"""Positions past the ring of Gemma's window: 16 blocks of 64."""
ROWS = [(chips, chunk, (i + j) % 2) for i, chips in enumerate(CHIPS) for j, chunk in enumerate(CHUNKS)]
CASES = [
    pytest.param(*row, marks=pytest.mark.slow if row[0] == 4 and row[1] > 1 else pytest.mark.long)
    for row in ROWS
]


def test_the_array_covers_every_pair() -> None:
    domains = (CHIPS, CHUNKS, (0, 1))
    for a, b in combinations(range(3), 2):
        assert {(r[a], r[b]) for r in ROWS} == set(product(domains[a], domains[b]))


@cache
def model(name: str) -> Model:
    return load_model(str(registry_file(name)))


@cache
def oracle(name: str) -> Oracle:
    return Oracle(model(name).spec, model(name).weights(), "bf16", matmul=fast_matmul)


def tokens_of(name: str, count: int, seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, model(name).spec.vocab, count).tolist()


@cache
def reference(name: str, count: int, seed: int) -> np.ndarray:
    """Logits of the last TAIL positions, or of fewer if there are not so many."""
    wanted = list(range(max(0, count - TAIL), count))
    return oracle(name).forward(tokens_of(name, count, seed), logits_at=wanted).logits


def step(
    s: Stepper, machine: Machine, what: tuple[list[list[int]], list[int]], logits: str
) -> list[np.ndarray]:
    """One step of parts at positions; logits of its tokens, or of the last token of each sequence."""
    (parts, at), key = what, s.image.key
    width = tokens_kind(max(map(len, parts)))
    blocks = bucket(max(at) + width, image_blocks(key.max_context, key.t_max))
    result = machine.batch(s.timetable(StepKind(width, len(parts), blocks, logits, "chip")), parts, at)
    each = width if logits == "all" else 1
    return [
        result.logits[i * each : i * each + (len(p) if logits == "all" else 1)].copy()
        for i, p in enumerate(parts)
    ]


def compare(name: str, chips: int, chunk: int, contexts: tuple[int, ...]) -> None:
    weights = model(name).weights()
    s = Stepper.make(model(name).spec, weights, chips, "bf16", max(contexts), slots=len(contexts))
    ids = [tokens_of(name, n, 11 + i) for i, n in enumerate(contexts)]
    machine, at = Machine(s.image, weights, s.system), [0] * len(contexts)
    early = [max(0, n - TAIL) for n in contexts]
    while at != list(contexts):
        first = any(a < e for a, e in zip(at, early, strict=True))
        ends = [
            min(a + 64, e) if first else min(a + chunk, n)
            for a, e, n in zip(at, early, contexts, strict=True)
        ]
        parts = [x[a:e] for x, a, e in zip(ids, at, ends, strict=True)]
        rows = step(s, machine, (parts, at), "last" if first else "all")
        for i, (part, start) in enumerate(zip(parts, at, strict=True)):
            if part and not first:
                expected = reference(name, contexts[i], 11 + i)[start - early[i] :]
                assert same_bits(rows[i], expected[: len(part)]), (i, start)
        at = [max(a, e) for a, e in zip(at, ends, strict=True)]


@pytest.mark.parametrize(("chips", "chunk", "batch"), CASES)
@pytest.mark.parametrize("name", MODELS)
def test_real_weights_are_the_oracle(name: str, chips: int, chunk: int, batch: int) -> None:
    compare(name, chips, chunk, BATCHES[batch])


@pytest.mark.long
def test_round_the_ring_of_a_real_window() -> None:
    """Gemma 3 270M past 1,024 positions: the oldest block of the ring is written over."""
    name = "gemma-3-270m"
    compare(name, 4, 7, (LONG,))


@pytest.mark.slow
def test_other_tokens_are_other_bits() -> None:
    """The comparison can fail."""
    name = MODELS[0]
    assert not same_bits(reference(name, 70, 11), reference(name, 70, 12))
