"""Programs with a loop, executed: bits of the oracle and of the same layers written out, logits and cache of every layer."""

from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest
from tests.models import write_llama
from tests.stepping import Stepper, same_bits

from ticktrue.compile import unproved_timetable
from ticktrue.graph.oracle import Oracle
from ticktrue.graph.oracle_fast import fast_matmul
from ticktrue.model import Model, load_model

LAYERS, COUNT = 8, 70


@cache
def model() -> Model:
    return load_model(str(write_llama(Path(mkdtemp()) / "deep", 5, layers=LAYERS)))


@pytest.mark.parametrize(
    ("chips", "chunk", "fmt"), [(1, 7, "bf16"), (6, 4, "bf16"), (3, 64, "f32"), (16, 1, "bf16")]
)
def test_a_loop_gives_the_bits_of_the_oracle_and_of_layers_written_out(
    chips: int, chunk: int, fmt: str
) -> None:
    spec, weights = model().spec, model().weights()
    tokens = np.random.default_rng(7).integers(0, spec.vocab, COUNT).tolist()
    looped = Stepper.make(spec, weights, chips, fmt, 300)
    logits, machine = looped.run(tokens, chunk)
    assert {loop.count for t in looped.timetables.values() for loop in t.loops} == {LAYERS}
    assert all(len(t.loops) == 1 for t in looped.timetables.values())
    plain = Stepper.make(spec, weights, chips, fmt, 300)
    plain.timetables = {
        kind: unproved_timetable(spec, plain.system, plain.image, kind, loops=False)
        for kind in looped.timetables
    }
    again, other = plain.run(tokens, chunk)
    assert not any(t.loops for t in plain.timetables.values())
    expected = Oracle(spec, weights, fmt, matmul=fast_matmul).forward(tokens)
    assert same_bits(logits, expected.logits)
    assert same_bits(again, expected.logits)
    for mine, theirs, oracle in zip(
        looped.cache(machine, COUNT), plain.cache(other, COUNT), (expected.k, expected.v), strict=True
    ):
        for layer in range(LAYERS):
            assert same_bits(mine[layer], oracle[layer])
            assert same_bits(theirs[layer], oracle[layer])
