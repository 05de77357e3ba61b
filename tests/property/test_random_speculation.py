"""Speculation against the oracle's own greedy decoding, everything drawn: models, slots, prompts, drafters, ends of the context.

A drafter says up to nine tokens that will come, then up to three that may not. Whatever it says, the tokens are those without it.
"""

import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest
from tests.families import write_family
from tests.models import LlamaShape, write_llama
from tests.stepping import Stepper

from ticktrue.execute import Machine
from ticktrue.generate import Drafter
from ticktrue.generate.speculate import Speculation
from ticktrue.graph.oracle import Oracle
from ticktrue.graph.oracle_fast import fast_matmul
from ticktrue.model import Model, load_model

VOCAB = 23
SMALL = {
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 64,
}
EXTRA: dict[str, dict[str, object]] = {
    "gemma3": {"sliding_window": 65},
    "mistral": {"sliding_window": 2},
    "qwen3_moe": {},
}
FAMILIES = ("llama", *EXTRA)


@cache
def model(family: str) -> Model:
    directory = Path(mkdtemp()) / "m"
    if family == "llama":
        shape = LlamaShape(layers=1, hidden=64, ffn=64, vocab=VOCAB, heads=2, kv_heads=1)
        return load_model(str(write_llama(directory, 3, shape)))
    return load_model(str(write_family(directory, family, 3, vocab_size=VOCAB, **SMALL, **EXTRA[family])))


@cache
def stepper(family: str, chips: int, slots: int, context: int, t_max: int) -> Stepper:
    m = model(family)
    return Stepper.make(m.spec, m.weights(), chips, "bf16", context, slots=slots, t_max=t_max)


def decoded(oracle: Oracle, prompt: Sequence[int], count: int, context: int) -> list[int]:
    """What greedy decoding chooses: `count` tokens, or fewer where the context ends."""
    result = oracle.forward(prompt, logits_at=[len(prompt) - 1])
    out = [int(result.logits[-1].argmax())]
    while len(out) < count and len(prompt) + len(out) - 1 < context:
        result = oracle.extend(result.state, out[-1:])
        out.append(int(result.logits[-1].argmax()))
    return out


def drafter(prompt: Sequence[int], wanted: Sequence[int], r: random.Random) -> Drafter:
    def propose(seen: Sequence[int]) -> list[int]:
        at = len(seen) - len(prompt)
        return [*wanted[at : at + r.randint(0, 9)], *(r.randrange(VOCAB) for _ in range(r.randint(0, 3)))]

    return propose


def check(seed: int) -> None:
    r = random.Random(seed)
    family, slots, chips = r.choice(FAMILIES), r.randint(1, 3), r.choice([1, 2, 4])
    context, t_max, count = r.choice([5, 63, 64, 65, 130]), r.choice([1, 2, 8, 16]), r.choice([1, 2, 9, 30])
    s, m = stepper(family, chips, slots, context, t_max), model(family)
    oracle = Oracle(m.spec, m.weights(), "bf16", fast_matmul)
    sizes = [r.choice([1, r.randint(1, context), max(1, context - 3), context]) for _ in range(slots)]
    prompts = [[r.randrange(VOCAB) for _ in range(n)] for n in sizes]
    wanted = [decoded(oracle, p, count, context) for p in prompts]
    drafters = [drafter(p, w, random.Random(i)) for i, (p, w) in enumerate(zip(prompts, wanted, strict=True))]
    speculation = Speculation(Machine(s.image, s.weights, s.system), s.timetable, drafters)
    list(speculation.generate(prompts, count))
    for slot, tokens in enumerate(wanted):
        assert list(speculation.output(slot)) == tokens, (
            seed,
            family,
            chips,
            context,
            t_max,
            slot,
            sizes,
            count,
        )


@pytest.mark.parametrize("seed", range(6))
def test_tokens_are_those_of_plain_decoding(seed: int) -> None:
    check(seed)


@pytest.mark.slow
def test_many_are() -> None:
    for seed in range(12, 60):
        check(seed)


@pytest.mark.long
def test_very_many_are() -> None:
    for seed in range(60, 1_500):
        check(seed)
