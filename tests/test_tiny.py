"""The whole pipeline on a seeded model of two layers: compile, verify, dataflow, time, execute, against the oracle.

One prefill step of three tokens (T = 4, one row unused) and two decode steps on four chips (h = 1, cp = 4).
"""

import time

import numpy as np
import pytest
from tests.models import TINY_KV2, write_llama

from ticktrue.compile import (
    Options,
    assemble,
    bucket,
    compile_image,
    compile_timetable,
    image_blocks,
    tokens_kind,
)
from ticktrue.execute import Machine
from ticktrue.generate import Session
from ticktrue.graph.oracle import Oracle
from ticktrue.hw import load_system
from ticktrue.model import load_model, load_weights
from ticktrue.program import StepKind, decode, encode
from ticktrue.sim import simulate
from ticktrue.verify import verify
from ticktrue.verify.dataflow import rows_digest

PROMPT = (7, 300, 41)
TOKENS = 3
LONGEST = 192
LIMIT_SECONDS = 10


def all_the_way(directory, fmt):
    """Compiles, checks both proofs and the replay, runs, and compares every logit with the oracle."""
    model, system = load_model(directory), load_system("tiny-4")
    spec, weights = model.spec, load_weights(model)
    image = compile_image(spec, system, Options(fmt, LONGEST), weights.digest())
    blocks = image_blocks(LONGEST)
    kinds = [StepKind(t, 1, bucket(64, blocks), "last", "chip") for t in (1, tokens_kind(len(PROMPT)))]
    program = assemble(image, [compile_timetable(spec, system, image, kind) for kind in kinds])

    read = decode(encode(program))
    assert read.intact
    program = read.program
    verdict = verify(program, system)
    assert verdict.clean, [str(v) for v in verdict.violations[:5]]
    for timetable in program.timetables:
        assert rows_digest(program, timetable, system) == timetable.dataflow
        timing = simulate(program, system, timetable.kind)
        assert timing.mismatches == ()
        assert timing.recomputed_cycles == timetable.duration

    session = Session(Machine(program.image, weights, system), program.timetable)
    chosen = [step.chosen for step in session.generate(PROMPT, TOKENS, frozenset())]
    oracle = Oracle(spec, weights, fmt)
    assert chosen == oracle.generate(PROMPT, TOKENS)

    machine = Machine(program.image, weights, system)
    logits = [machine.step(program.timetable(kinds[1]), PROMPT, 0).logits]
    logits += [
        machine.step(program.timetable(kinds[0]), [token], len(PROMPT) + i).logits
        for i, token in enumerate(chosen[:-1])
    ]
    expected = oracle.forward([*PROMPT, *chosen[:-1]]).logits[len(PROMPT) - 1 :]
    assert np.array_equal(np.concatenate(logits).view(np.uint32), expected.view(np.uint32))


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return write_llama(tmp_path_factory.mktemp("tiny") / "model", shape=TINY_KV2)


@pytest.mark.parametrize("fmt", ["bf16", "f32"])
def test_a_tiny_model_goes_all_the_way_within_its_time(directory, fmt):
    all_the_way(
        directory, fmt
    )  # compiles kernels where the cache does not hold them, which takes a minute or two
    started = time.monotonic()
    all_the_way(directory, fmt)
    assert time.monotonic() - started < LIMIT_SECONDS
