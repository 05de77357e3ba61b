"""Heads that fill a beat or are wider: bits, K and V against the oracle, both proofs; wider than two beats is refused."""

from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest
from tests.families import write_family
from tests.models import write_llama
from tests.stepping import Stepper, same_bits

from ticktrue.compile import Options, assemble, compile_timetable
from ticktrue.errors import InputError
from ticktrue.graph.oracle import Cache, Oracle
from ticktrue.graph.oracle_fast import fast_matmul
from ticktrue.model import Model, load_model
from ticktrue.program import StepKind
from ticktrue.verify import verify
from ticktrue.verify.dataflow import check_dataflow

COUNT = 70
FULL = ((64, 4), (64, 5), (64, 8), (80, 4), (160, 2), (160, 3), (32, 10), (40, 8), (106, 3))
"""(Head size, KV heads) of which some lie side by side in a record of 320 elements."""


@cache
def model(head_dim: int, kv_heads: int) -> Model:
    shape = {"layers": 1, "hidden": 64, "heads": kv_heads, "kv_heads": kv_heads, "head_dim": head_dim}
    return load_model(str(write_llama(Path(mkdtemp()) / "m", 3, ffn=64, vocab=20, **shape)))


def check(m: Model, options: Options, chips: int = 1) -> None:
    """Logits and cache of a prompt are the oracle's; a step of the same image is legal and computes the graph's expression."""
    s = Stepper.make(m.spec, m.weights(), chips, options.fmt, options.max_context, kv=options.kv)
    tokens = np.random.default_rng(0).integers(0, m.spec.vocab, COUNT).tolist()
    form = Cache("e4m3") if options.kv == "fp8" else None
    expected = Oracle(m.spec, m.weights(), options.fmt, fast_matmul, form).forward(tokens)
    logits, machine = s.run(tokens, 64)
    assert same_bits(logits, expected.logits)
    for found, wanted in zip(s.cache(machine, COUNT), (expected.k, expected.v), strict=True):
        assert all(same_bits(x, y) for x, y in zip(found, wanted, strict=True))
    kind = StepKind(2, 1, 2, "all", "chip")
    program = assemble(s.image, [compile_timetable(m.spec, s.system, s.image, kind)])
    assert verify(program, s.system).violations == ()
    assert check_dataflow(program, s.system) == ()


@pytest.mark.parametrize(("head_dim", "kv_heads"), FULL)
def test_heads_side_by_side_in_e4m3_leave_a_lane_for_the_ones(head_dim: int, kv_heads: int) -> None:
    check(model(head_dim, kv_heads), Options("bf16", COUNT, kv="fp8"))


@pytest.mark.parametrize(("head_dim", "kv_heads", "chips"), [(64, 10, 2), (160, 4, 2), (80, 4, 4)])
def test_they_do_on_several_chips(head_dim: int, kv_heads: int, chips: int) -> None:
    check(model(head_dim, kv_heads), Options("fp8", COUNT, kv="fp8"), chips)


@pytest.mark.parametrize("head_dim", [318, 320, 322, 384, 512, 576, 640])
@pytest.mark.parametrize(("kv", "kv_heads", "chips"), [("auto", 1, 1), ("fp8", 2, 2)])
def test_heads_of_up_to_two_beats(head_dim: int, kv: str, kv_heads: int, chips: int) -> None:
    check(model(head_dim, kv_heads), Options("bf16", COUNT, kv=kv), chips)


@pytest.mark.parametrize("head_dim", [320, 512, 514, 640])
def test_normed_heads_of_two_beats(head_dim: int) -> None:
    directory = write_family(
        Path(mkdtemp()) / "m", "qwen3", 3, num_hidden_layers=1, head_dim=head_dim, vocab_size=20
    )
    check(load_model(str(directory)), Options("bf16", COUNT), 2)


@pytest.mark.parametrize(
    ("head_dim", "kv_heads", "chips"), [(640, 2, 1), (578, 4, 2), (514, 3, 3), (638, 2, 4)]
)
def test_unequal_parts_of_several_heads(head_dim: int, kv_heads: int, chips: int) -> None:
    """The last part of each head is shorter than the others, so that heads do not follow from parts at one distance."""
    check(model(head_dim, kv_heads), Options("bf16", COUNT), chips)


@pytest.mark.parametrize(("head_dim", "code"), [(641, "T342"), (642, "T333"), (768, "T333")])
def test_wider_heads_are_refused(head_dim: int, code: str) -> None:
    with pytest.raises(InputError) as e:
        check(model(head_dim, 1), Options("bf16", COUNT))
    assert e.value.code == code
