"""Speculation never changes a token: whatever a drafter says, tokens and logits at accepted positions are plain decoding's.

The drafters are synthetic: always right, always wrong, and mixtures of every length. What is refused leaves K and V beyond pos;
that nothing of it is ever seen, in a ring that wraps too, is shown by overwriting it after every step.
"""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest
from tests.families import write_family
from tests.models import TINY_KV3, write_llama
from tests.stepping import Stepper, same_bits

from ticktrue.errors import InputError, UsageError
from ticktrue.execute import Machine, StepResult
from ticktrue.generate import Drafter, Round, Sampling, Session, Speculation
from ticktrue.isa import Draw
from ticktrue.model import load_model
from ticktrue.program import Packing, StepKind, Timetable

T_MAX = 8
PLAIN = {"greedy": Sampling(), "drawn": Sampling(0.8, 0xFEDCBA9876543210, 2)}
WINDOW = 16


class Recorder(Machine):
    """Keeps what every step gave."""

    def __init__(self, s: Stepper) -> None:
        super().__init__(s.image, s.weights, s.system)
        self.seen: list[StepResult] = []

    def batch(
        self, timetable: Timetable, tokens: Sequence[Sequence[int]], pos: Sequence[int], draws: Sequence[Draw] = ()
    ) -> StepResult:  # fmt: skip
        self.seen.append(super().batch(timetable, tokens, pos, draws))
        return self.seen[-1]


@cache
def stepper(family: str, chips: int, slots: int = 1, context: int = 300) -> Stepper:
    directory = Path(mkdtemp()) / "m"
    if family == "llama":
        model = load_model(str(write_llama(directory, 9, TINY_KV3, layers=1)))
    else:
        model = load_model(str(write_family(directory, family, 9, sliding_window=WINDOW)))
    return Stepper.make(model.spec, model.weights(), chips, "bf16", context, slots=slots, t_max=T_MAX)


@cache
def plain(
    family: str, chips: int, how: str, prompt: tuple[int, ...], count: int
) -> tuple[tuple[int, ...], dict[int, np.ndarray]]:
    """Tokens of plain decoding, one a step, and the logits by the position that they are of."""
    s = stepper(family, chips)
    machine = Recorder(s)
    session = Session(machine, s.timetable, chunk=T_MAX, sampling=PLAIN[how])
    steps = list(session.generate(prompt, count, frozenset()))
    logits = {x.pos + x.taken - 1: r.logits[0] for x, r in zip(steps, machine.seen, strict=True)}
    return tuple(x.chosen for x in steps if x.pos + x.taken >= len(prompt)), logits


def right(prompt: tuple[int, ...], tokens: tuple[int, ...]) -> Drafter:
    """Everything that will come: more than any step takes."""
    return lambda seen: tokens[len(seen) - len(prompt) :]


def wrong(prompt: tuple[int, ...], tokens: tuple[int, ...]) -> Drafter:
    return lambda seen: [t + 1 if t < 100 else t - 1 for t in tokens[len(seen) - len(prompt) :]]


def mixed(seed: int) -> Callable[[tuple[int, ...], tuple[int, ...]], Drafter]:
    """0 to 7 tokens, of which each is right with odds of 3 to 1."""

    def made(prompt: tuple[int, ...], tokens: tuple[int, ...]) -> Drafter:
        rng = np.random.default_rng(seed)

        def draft(seen: Sequence[int]) -> list[int]:
            ahead = tokens[len(seen) - len(prompt) :][: int(rng.integers(8))]
            return [t if rng.random() < 0.75 else int(rng.integers(200)) for t in ahead]

        return draft

    return made


DRAFTERS = {"right": right, "wrong": wrong, "mixed": mixed(4)}


def run(
    s: Stepper, drafters: Sequence[Drafter], prompts: Sequence[tuple[int, ...]], how: str, count: int, widest: int = 8,
    after: Callable[[Recorder, Speculation], None] = lambda *_: None,
) -> tuple[Speculation, list[tuple[Round, StepResult]]]:  # fmt: skip
    machine = Recorder(s)
    made = Speculation(machine, s.timetable, drafters, widest=widest, samplings=[PLAIN[how]] * len(drafters))
    out = []
    for step in made.generate(prompts, count):
        out.append((step, machine.seen[-1]))
        after(machine, made)
    return made, out


def bits_differ(
    rounds: list[tuple[Round, StepResult]], slot: int, logits: dict[int, np.ndarray]
) -> list[int]:
    """Positions whose logits, at the rows that were kept, are not bit for bit those of plain decoding."""
    found = []
    for step, result in rounds:
        of, kind = step.slots[slot], step.timetable.kind
        many = kind.logits == "all"
        for i in range(len(of.drawn)):
            position = of.pos + i if many else of.pos + of.taken - 1
            row = result.logits[slot * (kind.tokens if many else 1) + i]
            found += [] if same_bits(row, logits[position]) else [position]
    return found


# ---- one sequence ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("how", PLAIN)
@pytest.mark.parametrize(("chips", "widest"), [(1, 8), (3, 2), (3, 4), (3, 8)])
def test_tokens_and_bits_are_those_of_plain_decoding(chips: int, widest: int, how: str, drafter: str) -> None:
    prompt, count = tuple(range(40, 95)), 24  # over the edge of a block
    tokens, logits = plain("llama", chips, how, prompt, count)
    made, rounds = run(
        stepper("llama", chips), [DRAFTERS[drafter](prompt, tokens)], [prompt], how, count, widest
    )
    assert made.output() == tokens
    assert bits_differ(rounds, 0, logits) == []
    accepted = [r.slots[0].accepted for r, _ in rounds if r.slots[0].drafted]
    assert all(r.slots[0].taken <= widest for r, _ in rounds if r.slots[0].drafted)
    if drafter == "right":
        assert accepted[:-1] == [widest - 1] * (len(accepted) - 1)
        assert sum(r.slots[0].taken for r, _ in rounds) == len(prompt) + count - 1
    elif drafter == "wrong":
        assert set(accepted) == {0}
        assert len(rounds) == -(-len(prompt) // T_MAX) + count - 1
    else:
        assert 0 < sum(accepted) < sum(r.slots[0].drafted for r, _ in rounds)
        assert widest < 8 or len(set(accepted)) > 2


def test_a_draft_ends_with_the_context() -> None:
    s, prompt = stepper("llama", 3, context=70), tuple(range(60))
    tokens, _ = plain("llama", 3, "greedy", prompt, 11)  # as many as 70 positions allow
    for drafter in DRAFTERS.values():
        made, rounds = run(s, [drafter(prompt, (*tokens, *tokens))], [prompt], "greedy", 99)
        assert made.output() == tokens
        assert made.pos() == made.limit == 70
        assert all(r.slots[0].pos + r.slots[0].taken <= 70 for r, _ in rounds)


def test_it_stops_at_a_stop_token_inside_a_draft() -> None:
    s, prompt = stepper("llama", 3), tuple(range(10))
    tokens, _ = plain("llama", 3, "greedy", prompt, 9)
    assert len(set(tokens)) == len(tokens)
    made = Speculation(Recorder(s), s.timetable, [right(prompt, tokens)])
    list(made.generate([prompt], 9, frozenset({tokens[4]})))
    assert made.output() == tokens[:5]
    assert made.pos() == len(prompt) + 4  # of a stop token there is no K and V


def test_the_hosts_sampler_speculates_too() -> None:
    s, prompt, count = stepper("llama", 3), tuple(range(30, 50)), 12
    settings = Sampling(0.8, 77, 1, top_k=40, repetition_penalty=1.3, frequency_penalty=0.2)
    steps = Session(Recorder(s), s.timetable, chunk=T_MAX, sampling=settings).generate(
        prompt, count, frozenset()
    )
    tokens = tuple(x.chosen for x in steps if x.pos + x.taken >= len(prompt))
    for name, drafter in DRAFTERS.items():
        made = Speculation(Recorder(s), s.timetable, [drafter(prompt, tokens)], samplings=[settings])
        rounds = list(made.generate([prompt], count))
        assert made.output() == tokens
        assert (sum(r.slots[0].accepted for r in rounds) > 0) == (name != "wrong")


# ---- K and V of refused tokens -----------------------------------------------------------------------------------------------


def overwrite(s: Stepper, machine: Machine, positions: Sequence[int]) -> None:
    """50.0 in every lane of K and V of the positions, in every layer, on the chips that own them."""
    key = s.image.key
    for region in s.image.regions:
        if region.packing != Packing.KV:
            continue
        ring, grid = key.of_layer(region.p0 // 2).ring, key.grid_of(region.p0 // 2)
        for p in positions:
            block = p // 64 % ring if ring else p // 64
            for hg in range(grid.h):
                at = machine.memory.vector(hg * grid.cp + block % grid.cp, region)
                at += (block // grid.cp * 64 + p % 64) * region.stride
                machine.memory.words[at * 160 : (at + region.stride) * 160] = 0x4248


@pytest.mark.parametrize("how", PLAIN)
@pytest.mark.parametrize("chips", [1, 4])
def test_nothing_refused_is_ever_seen_where_a_ring_wraps(chips: int, how: str) -> None:
    s = stepper("gemma3", chips)
    (ring,) = {of.ring for of in s.image.key.attention if of.window}
    around, count = 64 * ring, 24
    prompt = tuple(int(x) for x in np.random.default_rng(3).integers(2, 400, around - 12))
    tokens, logits = plain("gemma3", chips, how, prompt, count)
    assert len(prompt) + count > around + 8  # the end of the ring lies amid what is chosen
    for drafter in (wrong, mixed(6), mixed(7)):

        def after(machine: Recorder, made: Speculation) -> None:
            overwrite(s, machine, range(made.pos(), made.pos() + T_MAX - 1))

        for then in (after, lambda *_: None):
            made, rounds = run(s, [drafter(prompt, tokens)], [prompt], how, count, 8, then)
            assert made.output() == tokens
            assert bits_differ(rounds, 0, logits) == []


def test_one_position_less_would_be_seen() -> None:
    """The overwriting is strong enough: at the last accepted position it changes the logits of the next step."""
    s = stepper("gemma3", 4)
    prompt = tuple(int(x) for x in np.random.default_rng(3).integers(2, 400, 120))
    tokens, logits = plain("gemma3", 4, "greedy", prompt, 9)

    def after(machine: Recorder, made: Speculation) -> None:
        overwrite(s, machine, [made.pos() - 1])

    _, rounds = run(s, [wrong(prompt, tokens)], [prompt], "greedy", 2, 8, after)
    assert bits_differ(rounds[-1:], 0, logits) == [len(prompt)]


# ---- slots -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", PLAIN)
@pytest.mark.parametrize("chips", [1, 3])
def test_slots_accept_each_their_own(chips: int, how: str) -> None:
    s, count = stepper("llama", chips, 3), 20
    prompts = [tuple(range(40, 95)), tuple(range(7)), tuple(range(200, 222))]
    plains = [plain("llama", chips, how, p, count) for p in prompts]
    drafters = [
        d(p, tokens) for d, p, (tokens, _) in zip((mixed(1), wrong, right), prompts, plains, strict=True)
    ]
    made, rounds = run(s, drafters, prompts, how, count)
    for slot, (tokens, logits) in enumerate(plains):
        assert made.output(slot) == tokens
        assert bits_differ(rounds, slot, logits) == []
    verified = [[x.accepted for x in r.slots] for r, _ in rounds if r.timetable.kind.logits == "all"]
    assert any(len(set(x)) == 3 for x in verified)
    assert any(x.taken == 0 for r, _ in rounds for x in r.slots)


def test_accept_counts_valid_tokens_only() -> None:
    """The register itself: by slot, up to valid, 0 where a slot sits out, and on where no token is wrong."""
    s, prompt = stepper("llama", 3, 3), tuple(range(20))
    tokens, _ = plain("llama", 3, "greedy", prompt, 12)
    machine = Recorder(s)
    chain = [*prompt, *tokens]
    list(Speculation(machine, s.timetable, [right(prompt, tokens)] * 3).generate([prompt] * 3, 1))
    kind = _all(8, 3)
    bad = [*chain[20:24], chain[24] ^ 1, *chain[25:28]]
    for parts, expected in (
        ([chain[20:28], chain[20:22], []], [7, 1, 0]),
        ([bad, chain[20:21], chain[20:27]], [3, 0, 6]),
        ([[], bad[:4], bad[:5]], [0, 3, 3]),
    ):
        result = machine.batch(s.timetable(kind), parts, [20] * 3)
        assert result.accept.tolist() == expected
    assert machine.batch(s.timetable(_all(1, 3)), [[5]] * 3, [20] * 3).accept.tolist() == [0] * 3


def _all(tokens: int, slots: int) -> StepKind:
    return StepKind(tokens, slots, 1, "all", "chip")


@pytest.mark.parametrize(("drafters", "widest"), [(0, 8), (2, 8), (1, 0), (1, 9)])
def test_more_than_the_image_takes_is_refused(drafters: int, widest: int) -> None:
    s = stepper("llama", 3)
    with pytest.raises(UsageError, match=r"^T124: expected 1 to"):
        Speculation(Recorder(s), s.timetable, [lambda _: []] * drafters, widest=widest)


def test_a_draft_of_a_token_that_does_not_exist_is_an_input_error() -> None:
    s = stepper("llama", 3)
    made = Speculation(Recorder(s), s.timetable, [lambda _: [s.spec.vocab]])
    with pytest.raises(InputError, match=r"^T363: expected token ids below"):
        list(made.generate([(1, 2)], 4))
