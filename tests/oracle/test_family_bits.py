"""Every family as a program against the oracle, bit for bit: chips, chunks, ragged batches, formats and contexts, pairwise.

A window of 100 starts inside a block of 64; chunks of 7 straddle blocks; 1,025 and 1,300 positions go several times round a ring.
"""

from itertools import combinations, product

import pytest
from tests.families import FAMILIES
from tests.oracle.family_bits import Config, check, feed, model, reference, stepper, tokens_of
from tests.stepping import same_bits

from ticktrue.execute import Machine

DENSE = tuple(f for f in FAMILIES if f != "qwen3_moe")
CHIPS = (1, 2, 4, 8, 16)
"""All legal degrees of up to 16 chips: these families have 1 or 2 KV heads, which 3 and 6 chips do not share out."""
CHUNKS = (1, 7, 64, 0)
"""Tokens of a step; 0: the whole context at once, as far as a step goes (64 tokens), but not aligned to blocks."""
FORMATS = ("bf16", "f32")
BATCHES = (
    (1,), (63,), (64,), (65,), (1025,), (1300,), (65, 1, 64), (1300, 63, 1025), (63, 1300, 1),
    (1, 63, 64, 65, 1025, 1300, 2, 70), (130, 65, 64, 63, 1, 7, 129, 128),
)  # fmt: skip
LIMIT = 24


def array(rows: int) -> list[tuple]:
    """A pairwise covering array, greedily: each pair of values of two factors but (chips, batch) is in some row.

    Batches take turns, so that every batch meets small and large numbers of chips.
    """
    factors = (CHIPS, CHUNKS, FORMATS)
    open_pairs = {
        (i, a, j, b) for i, j in combinations(range(3), 2) for a, b in product(factors[i], factors[j])
    }
    open_pairs |= {(i, a, 3, b) for i in (1, 2) for a, b in product(factors[i], BATCHES)}
    everything = list(product(*factors))
    out: list[tuple] = []
    while open_pairs and len(out) < rows:
        batch = BATCHES[len(out) % len(BATCHES)]

        def new(row: tuple, batch: tuple = batch, left: set = open_pairs) -> set:
            full = (*row, batch)
            return {(i, full[i], j, full[j]) for i, j in combinations(range(4), 2)} & left

        best = max(everything, key=lambda row: len(new(row)))
        open_pairs -= new(best)
        out.append((*best, batch))
    assert not {p for p in open_pairs if p[2] < 3}, open_pairs
    return out


def cases() -> list:
    """Every family with every row. Each row is fast for half of the families, in turn: all rows are met in the fast tests."""
    out = []
    for turn, (chips, chunk, fmt, batch) in enumerate(array(LIMIT)):
        long = max(batch) > 130
        # a long context is filled in chunks of 64 and its last positions, unaligned, are compared in chunks of `chunk`
        config = Config(
            chips, chunk or 64, fmt, batch, tail=(2 * (chunk or 64) + 3) if long or chunk == 0 else 0
        )
        large = (long and len(batch) > 1) or chips * len(batch) > 48
        for number, family in enumerate(DENSE):
            slow = large or (turn + number) % 2
            marks = [pytest.mark.slow] if slow else []
            out.append(pytest.param(family, config, id=f"{family}-{config.label}", marks=marks))
    return out


def test_the_array_covers_every_batch_and_every_pair_of_the_rest() -> None:
    rows = array(LIMIT)
    assert len(rows) <= LIMIT
    assert {r[3] for r in rows} == set(BATCHES)
    for i, j in combinations(range(3), 2):
        assert len({(r[i], r[j]) for r in rows}) == len({r[i] for r in rows}) * len({r[j] for r in rows})


@pytest.mark.parametrize(("family", "config"), cases())
def test_a_family_is_the_oracle(family: str, config: Config) -> None:
    check(family, config)


@pytest.mark.parametrize("family", ["gemma3", "mistral"])
def test_chunks_of_every_width_around_a_block_and_a_window(family: str) -> None:
    """Steps of 1 to 13 tokens in turn: each starts somewhere else in a block and in the window, twice round the ring."""
    ring = stepper(family, 2, "bf16", 700, 1).image.key.attention
    assert 64 * max(a.ring for a in ring) * 2 <= 640
    count, s = 640, stepper(family, 2, "bf16", 700, 1)
    expected, tokens = reference(family, "bf16", count, 11), tokens_of(family, count, 11)
    machine, at, width = Machine(s.image, s.weights, s.system), 0, 0
    while at < count:
        width = width % 13 + 1
        (rows,) = feed(s, machine, [tokens[at : at + width]], [at])
        assert same_bits(rows, expected.logits[at : at + len(rows)]), at
        at += len(rows)


def test_a_changed_weight_changes_bits() -> None:
    """The comparison can fail: another family's weights, other logits."""
    s = stepper("qwen3", 2, "bf16", 64, 1)
    logits, _ = s.run(tokens_of("qwen3", 5, 11), 7)
    assert not same_bits(logits, reference("qwen3", "bf16", 5, 12).logits)


LONG = 17_000
KEPT = [0, 63, 64, 65, 1_025, 1_300, 16_383, 16_384, 16_385, 16_447, 16_448, 16_999]


@pytest.mark.long
@pytest.mark.parametrize(("family", "chips"), [("mistral", 4), ("gemma3", 8), ("qwen2", 2)])
def test_seventeen_thousand_positions(family: str, chips: int) -> None:
    """A ring alone, a ring and full attention beside it, full attention alone: past the wrap of the lanes."""
    from ticktrue.graph.oracle import Oracle
    from ticktrue.graph.oracle_fast import fast_matmul

    tokens = tokens_of(family, LONG, 11)
    oracle = Oracle(model(family).spec, model(family).weights(), "bf16", matmul=fast_matmul)
    expected = oracle.forward(tokens, logits_at=KEPT).logits
    logits, _ = stepper(family, chips, "bf16", LONG, 1).run(tokens, 64, KEPT)
    assert same_bits(logits, expected)
