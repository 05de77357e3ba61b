"""The complete set on the two-layer Llama: every number of chips, every chunk, every batch; each sequence as if alone.

Beside it every number of tokens that a step may have, and batches smaller than the image is made for.
"""

from dataclasses import replace

import numpy as np
import pytest
from tests.oracle.family_bits import Config, check, check_state, feed, model, reference, stepper, tokens_of
from tests.stepping import same_bits

from ticktrue.compile import TOKENS, compile_timetable, image_blocks
from ticktrue.execute import Machine
from ticktrue.program import Program, StepKind
from ticktrue.sim import simulate
from ticktrue.verify import verify
from ticktrue.verify.dataflow import check_dataflow

CHIPS = (1, 2, 3, 4, 6, 8, 16)
CHUNKS = (1, 7, 64, 0)
"""0: the whole context in one step."""
LENGTHS = {1: (130,), 3: (130, 65, 7), 8: (130, 129, 65, 64, 63, 33, 7, 1)}
WHOLE = {1: (61,), 3: (61, 64, 7), 8: (61, 64, 63, 40, 33, 7, 2, 1)}
"""Contexts that one step of 64 tokens takes at once."""


FAST = {(4, 7, 8), (6, 64, 8), (8, 0, 8), (16, 7, 3)}
"""Large ones that the fast tests make all the same."""


def test_every_two_of_chips_chunk_and_batch_meet_in_the_fast_tests() -> None:
    fast = [p.values for p in cases() if not p.marks]
    for i, j in ((0, 1), (0, 2), (1, 2)):
        factors = (CHIPS, CHUNKS, (1, 3, 8))
        every = {(a, b) for a in factors[i] for b in factors[j]}
        assert {(v[i], v[j]) for v in fast} == every - ({(16, 8)} if (i, j) == (0, 2) else set())


def cases() -> list:
    out = []
    for chips in CHIPS:
        for chunk in CHUNKS:
            for batch in (1, 3, 8):
                # large batches on many chips are left to the slow tests; every two factors but the largest meet in the fast ones
                slow = batch * chips > 24 and (chips, chunk, batch) not in FAST
                marks = [pytest.mark.slow] if slow else []
                out.append(pytest.param(chips, chunk, batch, marks=marks))
    return out


@pytest.mark.parametrize(("chips", "chunk", "batch"), cases())
def test_each_sequence_of_a_batch_is_as_if_alone(chips: int, chunk: int, batch: int) -> None:
    check("llama", Config(chips, chunk or 64, "bf16", (LENGTHS if chunk else WHOLE)[batch]))


@pytest.mark.long
@pytest.mark.parametrize("chips", CHIPS)
def test_a_long_batch_is_as_if_alone(chips: int) -> None:
    check("llama", Config(chips, 64, "bf16", (1300, 1025, 65)))


def test_other_sequences_of_a_batch_change_nothing() -> None:
    """The same sequence with two different neighbours: the same bits, also in its cache."""
    s = stepper("llama", 6, "bf16", 100, 3)
    tokens = tokens_of("llama", 70, 11)
    runs = [s.run_batch([tokens_of("llama", n, seed), tokens, tokens_of("llama", 70 - n, seed)], 7)
            for n, seed in ((69, 1), (3, 2))]  # fmt: skip
    assert same_bits(runs[0][0][1], runs[1][0][1])
    caches = [s.cache(machine, 70, 1) for _, machine in runs]
    for a, b in zip(caches[0][0] + caches[0][1], caches[1][0] + caches[1][1], strict=True):
        assert same_bits(a, b)


# ---- tokens of a step ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["llama", "gemma3"])
@pytest.mark.parametrize(
    "tokens", [t if t < 128 else pytest.param(t, marks=pytest.mark.slow) for t in TOKENS]
)
def test_every_number_of_tokens(family: str, tokens: int) -> None:
    """Compiled, legal, in time, proved, and the bits of the oracle; a ring is as large as the step asks for."""
    m, slots = model(family), 2 if tokens <= 32 else 1
    s = stepper(family, 2, "bf16", 600, slots, t_max=max(tokens, 2))
    blocks = -(-(tokens + 70) // 64)
    kind = StepKind(tokens, slots, blocks, "all", "chip")
    timetable = compile_timetable(m.spec, s.system, s.image, kind)
    program = Program(s.image, (timetable,))
    verdict = verify(program, s.system)
    assert verdict.clean, verdict.violations[:3]
    assert simulate(program, s.system).clean
    assert check_dataflow(program, s.system) == ()
    assert check_dataflow(Program(s.image, (replace(timetable, dataflow="0"),)), s.system) != ()
    machine, count = Machine(s.image, s.weights, s.system), tokens + min(tokens, 64)
    expected = [reference(family, "bf16", count, 11 + i) for i in range(slots)]
    ids = [tokens_of(family, count, 11 + i) for i in range(slots)]
    for start, size in ((0, min(tokens, 64)), (min(tokens, 64), tokens)):
        result = machine.batch(timetable, [x[start : start + size] for x in ids], [start] * slots)
        for i in range(slots):
            rows = result.logits[i * tokens : i * tokens + size]
            assert same_bits(rows, expected[i].logits[start : start + size])
    check_state(s, machine, (count,) * slots, expected)


def test_a_ring_grows_with_the_tokens_of_a_step() -> None:
    """R = the least power of two >= max(cp, ceil((W + T_max) / 64) + 1), by hand for a window of 100."""
    rings = {t: stepper("gemma3", 2, "bf16", 600, 1, t_max=t).image.key.attention for t in (2, 64, 128, 256)}
    assert {t: max(a.ring for a in kinds) for t, kinds in rings.items()} == {2: 4, 64: 4, 128: 8, 256: 8}


# ---- fewer slots than the image, and slots that sit out ----------------------------------------------------------------------


@pytest.mark.parametrize("family", ["llama", "gemma3", "gemma4"])
def test_kinds_of_fewer_slots_than_the_image(family: str) -> None:
    """Steps of 3, then 2, then 1 sequences over an image of 4: the first slots go on, the others keep what they hold."""
    s = stepper(family, 2, "bf16", 300, 4)
    lengths = (150, 90, 70)
    ids = [tokens_of(family, n, 11 + i) for i, n in enumerate(lengths)]
    expected = [reference(family, "bf16", n, 11 + i) for i, n in enumerate(lengths)]
    machine, at = Machine(s.image, s.weights, s.system), [0, 0, 0]
    for stop, live in ((70, 3), (90, 2), (150, 1)):
        while at[0] < stop:
            parts = [x[a : min(a + 32, stop)] for x, a in zip(ids[:live], at[:live], strict=True)]
            for i, rows in enumerate(feed(s, machine, parts, at[:live])):
                assert same_bits(rows, expected[i].logits[at[i] : at[i] + len(rows)])
                at[i] += len(rows)
    assert {k.slots for k in s.timetables} >= {1, 2, 3}
    check_state(s, machine, lengths, expected)


@pytest.mark.parametrize("family", ["llama", "gemma3", "gemma4_wide"])
def test_slots_that_sit_steps_out_keep_their_cache(family: str) -> None:
    """valid = 0: what such a step computes for the slot means nothing, and what the slot reads later is as it was."""
    s = stepper(family, 4, "bf16", 300, 3)
    ids = [tokens_of(family, 140, 11 + i) for i in range(3)]
    expected = [reference(family, "bf16", 140, 11 + i) for i in range(3)]
    machine, at = Machine(s.image, s.weights, s.system), [0, 0, 0]
    turns = np.random.default_rng(3).integers(0, 2, (200, 3)).tolist()
    for turn in turns:
        parts = [x[a : a + 8] if go else [] for x, a, go in zip(ids, at, turn, strict=True)]
        if not any(parts):
            continue
        for i, rows in enumerate(feed(s, machine, parts, at)):
            assert same_bits(rows, expected[i].logits[at[i] : at[i] + len(rows)])
            at[i] += len(rows)
        if at == [140] * 3:
            break
    assert at == [140] * 3
    assert image_blocks(300) >= 4
    check_state(s, machine, (140,) * 3, expected)
