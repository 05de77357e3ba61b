"""int8, fp8 and a cache in e4m3: ragged batches on several chips against the oracle, bit for bit, and both proofs."""

from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest
from tests.families import write_family
from tests.models import TINY_KV2, write_llama
from tests.stepping import Stepper, same_bits

from ticktrue.compile import Options, compile_program
from ticktrue.execute import Machine
from ticktrue.execute.literal import Literal
from ticktrue.graph.oracle import Cache, Oracle, OracleResult
from ticktrue.graph.oracle_fast import fast_matmul
from ticktrue.hw import load_system
from ticktrue.model import Model, load_model
from ticktrue.program import StepKind
from ticktrue.verify import verify
from ticktrue.verify.dataflow import check_dataflow

FAMILIES = ("llama", "qwen2", "qwen3", "mistral", "gemma3", "gemma4", "gemma4_wide")
FORMATS = (("int8", "auto"), ("fp8", "auto"), ("fp8", "fp8"), ("bf16", "fp8"), ("int8", "fp8"))
CONTEXTS = (20, 140, 90)
CASES = [
    (family, fmt, kv, (1, 2, 4)[(i + j) % 3], (1, 7, 64)[(i + 2 * j) % 3])
    for i, family in enumerate(FAMILIES) for j, (fmt, kv) in enumerate(FORMATS)
]  # fmt: skip


@cache
def model(family: str) -> Model:
    directory = Path(mkdtemp()) / "m"
    if family == "llama":
        return load_model(str(write_llama(directory, 0, TINY_KV2)))
    return load_model(str(write_family(directory, family)))


def tokens(family: str, count: int) -> list[int]:
    return np.random.default_rng(3).integers(0, model(family).spec.vocab, count).tolist()


@cache
def reference(family: str, fmt: str, kv: str) -> OracleResult:
    cached = Cache("e4m3") if kv == "fp8" else None
    oracle = Oracle(model(family).spec, model(family).weights(), fmt, fast_matmul, cached)
    return oracle.forward(tokens(family, max(CONTEXTS)))


@pytest.mark.parametrize(("family", "fmt", "kv", "chips", "chunk"), CASES)
def test_a_batch_is_the_oracle(family: str, fmt: str, kv: str, chips: int, chunk: int) -> None:
    expected = reference(family, fmt, kv).logits
    chips = min(chips, 2) if family.startswith("gemma4") and chips == 4 else chips
    s = Stepper.make(model(family).spec, model(family).weights(), chips, fmt, 200, slots=3, kv=kv)
    found, _ = s.run_batch([tokens(family, n) for n in CONTEXTS], chunk)
    for logits, n in zip(found, CONTEXTS, strict=True):
        assert same_bits(logits, expected[:n])


def test_formats_differ() -> None:
    """The comparison can fail: no two formats give the same logits."""
    seen = [reference("llama", fmt, kv).logits.tobytes() for fmt, kv in (*FORMATS, ("bf16", "auto"))]
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize(("fmt", "kv"), FORMATS)
@pytest.mark.parametrize("family", ["llama", "gemma3", "gemma4_wide"])
def test_both_proofs(family: str, fmt: str, kv: str) -> None:
    system = load_system("groq3-lpx-tray").subset(2)
    kinds = [StepKind(1, 1, 2, "last", "chip"), StepKind(4, 2, 7, "all", "chip")]
    program = compile_program(model(family).spec, system, Options(fmt, 400, slots=2, kv=kv), kinds)
    assert verify(program, system).violations == ()
    assert check_dataflow(program, system) == ()


@pytest.mark.parametrize(("fmt", "kv"), FORMATS)
@pytest.mark.parametrize("family", ["llama", "gemma4_wide"])
def test_every_byte_of_memory_is_that_of_the_plain_path(family: str, fmt: str, kv: str) -> None:
    s = Stepper.make(model(family).spec, model(family).weights(), 2, fmt, 300, slots=2, kv=kv)
    timetable = s.timetable(StepKind(2, 2, 3, "all", "chip"))
    fast, plain = (Machine(s.image, s.weights, s.system) for _ in range(2))
    literal = Literal(s.image, timetable, s.system, plain.memory)
    for at, pos in enumerate(([0, 0], [2, 63], [65, 120])):
        parts = [tokens(family, 8)[at : at + 2], tokens(family, 8)[at + 3 : at + 4]]
        fast.batch(timetable, parts, pos)
        literal.run(parts, pos)
        assert (fast.memory.words == plain.memory.words).all()
