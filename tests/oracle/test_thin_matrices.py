"""Matrices of one row or one column: what a tensor is used for decides how it lies in SRAM, not its shape."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.families import write_family
from tests.models import write_llama
from tests.stepping import Stepper, same_bits

from ticktrue.compile import assemble, compile_timetable
from ticktrue.graph.oracle import Oracle
from ticktrue.graph.oracle_fast import fast_matmul
from ticktrue.model import Model, load_model
from ticktrue.program import StepKind
from ticktrue.verify import verify
from ticktrue.verify.dataflow import check_dataflow

COUNT = 9


def check(m: Model, chips: int, fmt: str) -> None:
    s = Stepper.make(m.spec, m.weights(), chips, fmt, 70)
    tokens = np.random.default_rng(0).integers(0, m.spec.vocab, COUNT).tolist()
    logits, _ = s.run(tokens, 8)
    assert same_bits(logits, Oracle(m.spec, m.weights(), fmt, fast_matmul).forward(tokens).logits)
    program = assemble(
        s.image, [compile_timetable(m.spec, s.system, s.image, StepKind(2, 1, 1, "all", "chip"))]
    )
    assert verify(program, s.system).violations == ()
    assert check_dataflow(program, s.system) == ()


@pytest.mark.parametrize(("chips", "fmt"), [(1, "bf16"), (3, "f32"), (4, "int8"), (2, "fp8")])
@pytest.mark.parametrize("ffn", [1, 2])
def test_a_feed_forward_of_few_columns(tmp_path: Path, ffn: int, chips: int, fmt: str) -> None:
    check(load_model(str(write_llama(tmp_path / "m", 3, ffn=ffn, hidden=64, vocab=20))), chips, fmt)


@pytest.mark.parametrize("family", ["qwen2", "gemma4"])
def test_a_feed_forward_of_one_column_beside_biases_and_scalars(tmp_path: Path, family: str) -> None:
    directory = write_family(tmp_path / "m", family, 3, intermediate_size=1, vocab_size=20)
    check(load_model(str(directory)), 1, "bf16")


@pytest.mark.parametrize("chips", [1, 2])
def test_experts_of_one_column(tmp_path: Path, chips: int) -> None:
    directory = write_family(
        tmp_path / "m", "qwen3_moe", 3, num_experts=2, num_experts_per_tok=1, moe_intermediate_size=1
    )
    check(load_model(str(directory)), chips, "bf16")


@pytest.mark.parametrize("fmt", ["bf16", "int8"])
def test_a_vocabulary_of_one_token(tmp_path: Path, fmt: str) -> None:
    directory = write_llama(tmp_path / "m", 3, hidden=64, vocab=1)
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(
        json.dumps({k: v for k, v in config.items() if not k.endswith("_id")} | {"bos_token_id": 0})
    )
    check(load_model(str(directory)), 2, fmt)
