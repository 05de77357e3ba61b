"""Tokens drawn on the chips equal the oracle's, whatever the chips, the chunks, the kind of step or who proposed the context."""

from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest
from tests.models import TINY_KV3, write_llama
from tests.stepping import Stepper

from ticktrue.errors import InputError
from ticktrue.execute import Machine
from ticktrue.generate import Sampling, Session
from ticktrue.graph import oracle_sampling
from ticktrue.graph.oracle import Oracle
from ticktrue.graph.oracle_fast import fast_matmul
from ticktrue.isa import Draw
from ticktrue.model import Model, load_model
from ticktrue.program import StepKind

PROMPT = tuple(range(40, 53))
MORE = 6
DRAWS = (
    Draw(1.0, 0, 0),
    Draw(0.7, 1, 0),
    Draw(2.5, (1 << 64) - 1, 3),
    Draw(2.0**-10, 5, 0),
    Draw(2.0**10, 5, (1 << 32) - 1),
    Draw(0.0, 77, 1),
)


@cache
def model() -> Model:
    return load_model(str(write_llama(Path(mkdtemp()) / "m", 9, TINY_KV3)))


@cache
def stepper(chips: int) -> Stepper:
    return Stepper.make(model().spec, model().weights(), chips, "bf16", 200)


@cache
def expected(draw: Draw) -> tuple[int, ...]:
    """The oracle's continuation of the prompt."""
    oracle = Oracle(model().spec, model().weights(), "bf16", matmul=fast_matmul)
    result, out = oracle.forward(PROMPT, logits_at=[len(PROMPT) - 1]), []
    for n in range(MORE):
        pos = len(PROMPT) + n
        out.append(oracle_sampling.sampled(result.logits[-1], draw.temperature, draw.seed, draw.choice, pos))
        result = oracle.extend(result.state, out[-1:])
    return tuple(out)


def drawn(chips: int, chunk: int, draw: Draw, **more: object) -> tuple[int, ...]:
    s = stepper(chips)
    settings = Sampling(draw.temperature, draw.seed, draw.choice, **more)  # type: ignore[arg-type]
    session = Session(Machine(s.image, s.weights, s.system), s.timetable, chunk=chunk, sampling=settings)
    steps = session.generate(PROMPT, MORE, frozenset())
    return tuple(x.chosen for x in steps if x.pos + x.taken >= len(PROMPT))


def test_the_settings_draw_different_texts():
    assert len({expected(d) for d in DRAWS}) == len(DRAWS) - 1
    assert expected(DRAWS[3]) == expected(DRAWS[-1]), "a very low temperature is greedy but for ties"
    oracle = Oracle(model().spec, model().weights(), "bf16")
    assert list(expected(DRAWS[-1])) == oracle.generate(PROMPT, MORE)


@pytest.mark.parametrize("draw", DRAWS, ids=str)
@pytest.mark.parametrize(("chips", "chunk"), [(1, 64), (2, 7), (3, 3), (8, 1)])
def test_tokens_equal_the_oracles(chips: int, chunk: int, draw: Draw) -> None:
    assert drawn(chips, chunk, draw) == expected(draw)


@pytest.mark.parametrize("draw", DRAWS, ids=str)
def test_the_host_draws_what_the_chips_draw(draw: Draw) -> None:
    """Log-probabilities bring the logits to the host; nothing is cut, so the token is the same."""
    assert drawn(2, 7, draw, logprobs=1) == expected(draw)


@pytest.mark.parametrize("chips", [1, 3])
def test_a_verify_step_draws_what_single_steps_draw(chips: int) -> None:
    """Speculation: all rows of a chunk, some of it wrong; up to the first wrong token each row draws as a decode step does."""
    draw = DRAWS[2]
    s, truth = stepper(chips), expected(draw)
    for wrong_at in (1, 3, 4):
        machine = Machine(s.image, s.weights, s.system)
        machine.step(s.timetable(StepKind(64, 1, 1, "last", "chip")), PROMPT, 0)
        proposed = [t if i < wrong_at else (t + 1) % model().spec.vocab for i, t in enumerate(truth[:4])]
        result = machine.step(s.timetable(StepKind(4, 1, 1, "all", "chip")), proposed, len(PROMPT), draw)
        assert tuple(result.next_token[:wrong_at]) == truth[1 : wrong_at + 1]


def test_padding_rows_and_what_ran_before_do_not_matter() -> None:
    s, draw = stepper(2), DRAWS[1]
    found = set()
    for kind in (
        StepKind(1, 1, 1, "last", "chip"),
        StepKind(4, 1, 3, "last", "chip"),
        StepKind(2, 1, 1, "all", "chip"),
    ):
        machine = Machine(s.image, s.weights, s.system)
        machine.step(s.timetable(StepKind(64, 1, 1, "last", "chip")), PROMPT, 0, DRAWS[2])
        found.add(int(machine.step(s.timetable(kind), [expected(draw)[0]], len(PROMPT), draw).next_token[0]))
    assert found == {expected(draw)[1]}


def test_a_host_kind_gives_logits_and_no_token() -> None:
    s = stepper(2)
    machine = Machine(s.image, s.weights, s.system)
    here, there = (s.timetable(StepKind(4, 1, 1, "last", sampler)) for sampler in ("chip", "host"))
    assert [o.name for o in there.outputs] == ["logits"]
    assert there.duration < here.duration
    on_chip, on_host = (machine.step(t, PROMPT[:3], 0) for t in (here, there))
    assert (on_chip.logits.view(np.uint32) == on_host.logits.view(np.uint32)).all()
    assert (on_chip.next_token.shape, on_host.next_token.shape) == ((1,), (0,))


@pytest.mark.parametrize(
    ("values", "where"),
    [
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": 2.0**-11}, "temperature"),
        ({"temperature": 2_000.0}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"seed": -1}, "seed"),
        ({"seed": 1 << 64}, "seed"),
        ({"choice": 1 << 32}, "choice"),
    ],
    ids=str,
)
def test_registers_out_of_range_are_input_errors(values: dict, where: str) -> None:
    with pytest.raises(InputError, match=r"^T363: expected ") as no:
        Draw(**values)
    assert no.value.where == where


CELLS, TIMES = 12, 20_000


def test_frequencies_are_those_of_softmax() -> None:
    """Chi-square over a small vocabulary: 11 degrees of freedom, below the 0.9999 quantile 36.4 (and not too good to be true)."""
    from ticktrue.kernels import philox

    logits = (np.arange(CELLS, dtype=np.float32) - 5) / np.float32(3)
    t = np.float32(0.9)
    p = np.exp(logits.astype(float) / float(t))
    p /= p.sum()
    pool = np.zeros(640, np.float32)
    for vary in ("position", "seed", "choice"):
        counts = np.zeros(CELLS)
        for i in range(TIMES):
            words = {"position": 3, "choice": 0, "seed": 11} | {vary: i}
            pool[:CELLS] = logits
            key = (
                np.uint32(words["position"]),
                np.uint32(words["choice"]),
                np.uint32(words["seed"]),
                np.uint32(0),
            )
            philox.noise(pool, 0, 320, 320, 320, 1, CELLS, 0, CELLS, 0, t, *key)
            counts[pool[320 : 320 + CELLS].argmax()] += 1
        chi = (((counts - TIMES * p) ** 2) / (TIMES * p)).sum()
        assert 1 < chi < 36.4, (vary, chi)
    flat = ((counts - TIMES / CELLS) ** 2 / (TIMES / CELLS)).sum()
    assert flat > 100, "the test can fail: these are not the frequencies of equal tokens"


def test_the_mean_surprise_of_a_large_vocabulary_is_its_entropy() -> None:
    """49,152 tokens, most of the probability in tokens rarer than 0.001: within 4.5 standard errors, and so is their share."""
    from ticktrue.kernels import philox

    vocab, times = 49_152, 800
    logits = (np.random.default_rng(0).standard_normal(vocab) * 2.2).astype(np.float32)
    logits[:20] += 8
    p = np.exp(logits.astype(float))
    p /= p.sum()
    columns, g, drawn = np.arange(vocab), np.empty(vocab, np.float32), []
    for seed in range(times):
        philox.draws(columns, np.uint32(35), np.uint32(0), np.uint32(seed), np.uint32(0), g)
        drawn.append(p[(logits + g).argmax()])
    surprise, entropy = -np.log(drawn), -(p * np.log(p)).sum()
    error = np.sqrt(((p * np.log(p) ** 2).sum() - entropy**2) / times)
    assert abs(surprise.mean() - entropy) < 4.5 * error
    rare = p[p < 1e-3].sum()
    assert 0.4 < rare < 0.8
    assert abs((np.array(drawn) < 1e-3).mean() - rare) < 4.5 * np.sqrt(rare * (1 - rare) / times)
