"""A session picks buckets, splits prompts, stops where it must, and gives the tokens of the oracle."""

from pathlib import Path

import pytest
from tests.models import TINY_KV3, write_llama
from tests.stepping import Stepper

from ticktrue.errors import InputError
from ticktrue.execute import Machine
from ticktrue.generate import Session
from ticktrue.graph.oracle import Oracle
from ticktrue.model import load_model


@pytest.fixture(scope="module")
def stepper(tmp_path_factory: pytest.TempPathFactory) -> Stepper:
    directory: Path = tmp_path_factory.mktemp("session")
    model = load_model(str(write_llama(directory / "m", 9, TINY_KV3)))
    return Stepper.make(model.spec, model.weights(), 3, "bf16", 140)


def session(s: Stepper, chunk: int = 64) -> Session:
    return Session(Machine(s.image, s.weights, s.system), s.timetable, chunk=chunk)


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_tokens_are_the_oracles_whatever_the_chunk(stepper: Stepper, chunk: int) -> None:
    prompt = list(range(40, 109))
    expected = Oracle(stepper.spec, stepper.weights, "bf16").generate(prompt, 6)
    steps = list(session(stepper, chunk).generate(prompt, 6, frozenset()))
    assert [x.chosen for x in steps if x.pos + x.taken >= len(prompt)] == list(expected)


def test_it_stops_at_a_stop_token_and_at_the_end_of_the_context(stepper: Stepper) -> None:
    prompt = list(range(10))
    free = [x.chosen for x in session(stepper).generate(prompt, 5, frozenset())]
    stopped = [x.chosen for x in session(stepper).generate(prompt, 5, frozenset({free[2]}))]
    assert stopped == free[: free.index(free[2]) + 1]
    full = session(stepper)
    assert len(list(full.generate(list(range(130)), 100, frozenset()))) == 3 + 10
    assert full.pos == full.limit == 140


@pytest.mark.parametrize("prompt", [[], list(range(141))])
def test_a_prompt_that_cannot_be_held_is_refused(stepper: Stepper, prompt: list[int]) -> None:
    with pytest.raises(InputError, match=r"^T365: expected a prompt of 1 to 140 tokens"):
        list(session(stepper).generate(prompt, 1, frozenset()))


def test_a_token_out_of_range_is_an_input_error(stepper: Stepper) -> None:
    with pytest.raises(InputError, match=r"^T363: expected token ids below"):
        list(session(stepper).generate([stepper.spec.vocab], 1, frozenset()))


def test_wrong_weights_are_refused(stepper: Stepper, tmp_path: Path) -> None:
    from dataclasses import replace

    key = replace(stepper.image.key, weights="0" * 64)
    with pytest.raises(InputError, match=r"^T362: the program was compiled for weights 000000000000"):
        Machine(replace(stepper.image, key=key), stepper.weights, stepper.system)
    assert list(tmp_path.iterdir()) == []
