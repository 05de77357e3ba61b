"""The host's sampler: bit for bit the oracle's, its parts against cases worked by hand, its inputs refused where they must be."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from ticktrue.errors import InputError
from ticktrue.generate import Sampling
from ticktrue.generate.sampler import History, sample_token
from ticktrue.graph import oracle_sampling as oracle

NOTHING = History((), ())
CUTS = [
    (0, 1.0, 0.0),
    (1, 1.0, 0.0),
    (5, 1.0, 0.0),
    (0, 0.3, 0.0),
    (0, 0.95, 0.0),
    (0, 1.0, 0.1),
    (40, 0.8, 0.02),
    (3, 0.01, 1.0),
]
PENALTIES = [
    (1.0, 0.0, 0.0),
    (1.3, 0.0, 0.0),
    (0.5, 0.0, 0.0),
    (1.0, 0.7, 0.0),
    (1.0, 0.0, -0.4),
    (1.1, 0.5, 0.25),
]


def logits_of(seed: int, vocab: int = 509) -> np.ndarray:
    """Logits with ties, also at the top."""
    x = np.random.default_rng(seed).standard_normal(vocab) * 3
    return (np.round(x * 16) / 16).astype(np.float32)


@pytest.mark.parametrize("cut", CUTS, ids=str)
@pytest.mark.parametrize("penalties", PENALTIES, ids=str)
def test_tokens_equal_the_oracles(cut, penalties):
    tokens = set()
    for seed, temperature in product(range(12), (0.0, 0.6, 1.7)):
        logits = logits_of(seed)
        history = History((3, 5, 5, 200), tuple(np.argsort(-logits)[: seed % 7].tolist()) * 2)
        r, p, f = penalties
        settings = Sampling(temperature, (seed << 33) + 1, seed, *cut, r, p, f)
        want = oracle.host_sampled(
            oracle.penalized(logits, history.prompt, history.output, penalties), temperature, cut,
            (settings.seed, settings.choice, 40 + seed),
        )  # fmt: skip
        assert sample_token(logits, history, settings, 40 + seed).token == want
        tokens.add(want)
    assert len(tokens) > 3


def test_a_pure_function_of_its_arguments():
    logits, settings = logits_of(1), Sampling(1.0, 7, top_k=50)
    kept = logits.copy()
    first = sample_token(logits, NOTHING, settings, 9)
    assert first == sample_token(logits, NOTHING, settings, 9)
    assert (logits == kept).all()
    others = {sample_token(logits, NOTHING, settings, pos).token for pos in range(30)}
    others |= {sample_token(logits, NOTHING, replace(settings, seed=s), 9).token for s in range(30)}
    assert len(others) > 10


@pytest.mark.parametrize(
    ("cut", "kept"),
    [
        ((0, 1.0, 0.0), {0, 1, 2, 3}),
        ((2, 1.0, 0.0), {1, 3}),
        ((0, 0.4, 0.0), {1}),
        ((0, 0.41, 0.0), {1, 3}),
        ((0, 0.7, 0.0), {1, 3}),
        ((0, 0.71, 0.0), {0, 1, 3}),
        ((0, 1.0, 0.5), {0, 1, 3}),
        ((0, 1.0, 0.51), {1, 3}),
        ((0, 1.0, 1.0), {1}),
        ((3, 0.45, 0.0), {1, 3}),  # of the three, 4/9, 3/9 and 2/9: two are needed
        ((3, 0.44, 0.0), {1}),
    ],
)
def test_what_is_kept_of_probabilities_2_4_1_3_in_ten(cut, kept):
    """The sets are worked by hand; where a sum meets the limit up to rounding, the limit lies a little to its safe side."""
    logits = np.log(np.array([0.2, 0.4, 0.1, 0.3])).astype(np.float32)
    k, p, m = cut
    nudged = (k, p - 1e-4 if p < 1 else p, m - 1e-4 if 0 < m < 1 else m)
    settings = Sampling(1.0, 0, 0, *nudged)
    found = {sample_token(logits, NOTHING, settings, pos).token for pos in range(400)}
    assert found == kept


def test_penalties_by_hand():
    logits = np.array([2.0, -2.0, 1.0, 3.0, 0.5], np.float32)
    history = History((0, 1), (1, 3, 3))
    got = oracle.penalized(logits, history.prompt, history.output, (2.0, 0.25, 0.5))
    # prompt and output halved (or doubled where negative); then 0.5 for each time and 0.25 once, of the output alone
    assert got.tolist() == [1.0, -4.0 - 0.5 - 0.25, 1.0, 1.5 - 1.0 - 0.25, 0.5]
    settings = Sampling(repetition_penalty=2.0, presence_penalty=0.25, frequency_penalty=0.5)
    assert sample_token(logits, History((0, 1), ()), settings, 5).token == 3
    assert sample_token(logits, history, settings, 5).token == 0
    assert sample_token(logits, History((), (0, 3, 3)), settings, 5).token == 2


def test_log_probabilities_are_those_of_the_models_own_logits():
    logits = logits_of(4)
    settings = Sampling(1.3, 9, top_k=3, repetition_penalty=3.0, logprobs=20)
    found = sample_token(logits, History((int(logits.argmax()),), ()), settings, 12)
    exact = logits.astype(float) - logits.max()
    exact -= np.log(np.exp(exact).sum())
    want = oracle.log_probabilities(logits)
    assert found.logprob is not None
    assert found.logprob.token == found.token
    assert len(found.top) == 20
    for x in (found.logprob, *found.top):
        assert np.float32(x.value) == want[x.token]
        assert x.value == pytest.approx(exact[x.token], abs=2e-6)
    order = sorted(range(len(logits)), key=lambda v: (-logits[v], v))[:20]
    assert [x.token for x in found.top] == order
    assert sample_token(logits, NOTHING, replace(settings, logprobs=0), 12).top == ()
    assert sample_token(logits, NOTHING, replace(settings, logprobs=None), 12).logprob is None


@pytest.mark.parametrize(
    ("settings", "host"),
    [
        (Sampling(), False),
        (Sampling(0.7, 3, 1), False),
        (Sampling(logprobs=0), True),
        (Sampling(0.7, top_k=1), True),
        (Sampling(0.7, top_p=0.9), True),
        (Sampling(0.7, min_p=0.1), True),
        (Sampling(repetition_penalty=1.1), True),
        (Sampling(presence_penalty=0.1), True),
        (Sampling(frequency_penalty=-0.1), True),
    ],
)
def test_who_chooses(settings, host):
    assert settings.on_host is host


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("top_k", (-1,)),
        ("top_p", (0.0, -0.1, 1.01, float("nan"))),
        ("min_p", (-0.1, 1.1, float("nan"))),
        ("repetition_penalty", (0.0, -1.0, 2_000.0, float("inf"))),
        ("presence_penalty", (-101.0, 101.0, float("nan"))),
        ("frequency_penalty", (-101.0, 101.0)),
        ("logprobs", (-1, 21)),
    ],
)
def test_settings_out_of_range_are_input_errors(field, values):
    for value in values:
        with pytest.raises(InputError, match=r"^T380: expected .*found") as no:
            Sampling(**{field: value})
        assert no.value.where == field
