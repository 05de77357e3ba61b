"""SmolLM2-135M as a Program: bitwise equal to the oracle on a covering array, tokens as transformers gives them (slow)."""

import json
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from tests.models import smollm2
from tests.stepping import Stepper, same_bits

from ticktrue.compile import bucket, image_blocks, tokens_kind
from ticktrue.execute import Machine
from ticktrue.generate import Session
from ticktrue.graph.oracle import Oracle
from ticktrue.graph.oracle_fast import fast_matmul
from ticktrue.model import Model, load_model
from ticktrue.program import StepKind

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parents[1] / "golden"
LENGTH = 1_300
CHIPS = (1, 2, 3, 4, 6, 8, 16)
CHUNKS = (1, 7, 64)
# where the chunk under test begins, and how many positions it runs: before that the prompt goes in by 64
WINDOWS = ((0, 66), (1_020, 24), (1_270, 30))


def covering_array() -> list[tuple[int, int, tuple[int, int]]]:
    """21 configurations in which every pair of (chips, chunk), (chips, window) and (chunk, window) appears."""
    return [
        (chips, chunk, WINDOWS[(i + j) % 3])
        for i, chips in enumerate(CHIPS)
        for j, chunk in enumerate(CHUNKS)
    ]


def test_the_array_covers_every_pair() -> None:
    rows = covering_array()
    assert len(rows) <= 24
    for a, b in ((0, 1), (0, 2), (1, 2)):
        domains = (CHIPS, CHUNKS, WINDOWS)
        assert {(r[a], r[b]) for r in rows} == set(product(domains[a], domains[b]))


@cache
def model() -> Model:
    return load_model(str(smollm2()))


@cache
def tokens() -> list[int]:
    return np.random.default_rng(11).integers(0, model().spec.vocab, LENGTH).tolist()


@cache
def reference() -> np.ndarray:
    oracle = Oracle(model().spec, model().weights(), "bf16", matmul=fast_matmul)
    wanted = sorted(
        {p for start, count in WINDOWS for p in range(start, start + count)} | {63, 64, 1_024, 1_299}
    )
    full = np.zeros((LENGTH, model().spec.vocab), dtype=np.float32)
    full[wanted] = oracle.forward(tokens(), logits_at=wanted).logits
    return full


@cache
def stepper(chips: int) -> Stepper:
    return Stepper.make(model().spec, model().weights(), chips, "bf16", 2_048)


def prefill(s: Stepper, machine: Machine, first: int, end: int) -> None:
    """The prompt's positions first .. end - 1, 64 a step, logits of the last only."""
    for pos in range(first, end, 64):
        part = tokens()[pos : min(pos + 64, end)]
        width = tokens_kind(len(part))
        blocks = bucket(pos + width, image_blocks(s.image.key.max_context, s.image.key.t_max))
        machine.step(s.timetable(StepKind(width, 1, blocks, "last", "chip")), part, pos)


@pytest.mark.parametrize("chips", CHIPS)
def test_logits_equal_the_oracle(chips: int) -> None:
    """The rows of the array for one number of chips, on one machine: between two windows the prompt goes in by 64."""
    s = stepper(chips)
    machine, at = Machine(s.image, s.weights, s.system), 0
    rows = sorted((window, chunk) for of, chunk, window in covering_array() if of == chips)
    assert [window for window, _ in rows] == list(WINDOWS)
    for (start, count), chunk in rows:
        prefill(s, machine, at, start)
        logits = s.continue_run(machine, tokens()[: start + count], start, chunk)
        assert same_bits(logits, reference()[start : start + count]), (chunk, start)
        at = start + count


def test_all_positions_of_a_long_prompt_equal_the_oracle() -> None:
    logits, _ = stepper(8).run(tokens(), 64, [0, 63, 64, 1_024, 1_299])
    assert same_bits(logits, reference()[[0, 63, 64, 1_024, 1_299]])


@cache
def golden() -> dict[str, np.ndarray]:
    with np.load(GOLDEN / "transformers_smollm2.npz") as data:
        return dict(data)


def prompts() -> list[list[int]]:
    data = golden()
    return [p.tolist() for p in np.split(data["prompt_ids"], np.cumsum(data["prompt_lengths"])[:-1])]


def answer(fmt: str, chips: int, prompt: list[int], count: int, stop: frozenset[int]) -> list[int]:
    s = stepper(chips) if fmt == "bf16" else f32_stepper(chips)
    session = Session(Machine(s.image, s.weights, s.system), s.timetable)
    steps = list(session.generate(prompt, count, stop))
    return [x.chosen for x in steps if x.pos + x.taken >= len(prompt)]


@cache
def f32_stepper(chips: int) -> Stepper:
    return Stepper.make(model().spec, model().weights(), chips, "f32", 512)


def chosen_after(s: Stepper, ids: list[int]) -> list[int]:
    """The token that the program chooses after each of `ids`, 64 a step."""
    machine, out = Machine(s.image, s.weights, s.system), []
    for pos in range(0, len(ids), 64):
        part = ids[pos : pos + 64]
        kind = StepKind(64, 1, bucket(pos + 64, image_blocks(512)), "all", "chip")
        out += machine.step(s.timetable(kind), part, pos).next_token[: len(part)].tolist()
    return out


def test_f32_program_gives_the_greedy_tokens_of_transformers() -> None:
    """20 prompts x 64 tokens, all equal: token by token for two prompts.

    For the others after each golden prefix, many positions a step: where that is so for every prefix it is so token by token.
    """
    for i, prompt in enumerate(prompts()):
        tokens = golden()["tokens"][i].tolist()
        assert len(tokens) == 64
        if i < 2:
            assert answer("f32", 8, prompt, 64, frozenset()) == tokens, f"prompt {i}"
        chosen = chosen_after(f32_stepper(8), prompt + tokens[:-1])
        assert chosen[len(prompt) - 1 :] == tokens, f"prompt {i}"


def test_default_prompt_answers_as_transformers_does() -> None:
    """The answer of `ticktrue run` without arguments: golden, and equal to transformers through the end token."""
    spec = model().spec
    text = json.loads((GOLDEN / "prompts.json").read_text())["prompts"][0]["messages"]
    template = model().chat_template()
    assert template is not None
    prompt = model().tokenizer().encode(template.render(text), add_special=False)
    assert prompt == prompts()[0]
    ids = answer("bf16", 8, prompt, 128, frozenset(spec.eos))
    expected = golden()["tokens"][0].tolist()
    end = next(i for i, t in enumerate(expected) if t in spec.eos)
    assert ids == expected[: end + 1]
