"""`execute` on a Program against the independent oracle: bitwise, for chips, chunks, contexts and formats."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest
from tests.models import TINY_D128, TINY_KV2, TINY_KV3, LlamaShape, write_llama
from tests.stepping import Stepper, same_bits

from ticktrue.graph.oracle import Oracle
from ticktrue.graph.oracle_fast import fast_matmul
from ticktrue.model import Model, load_model

SHAPES = {"kv3": TINY_KV3, "d128": TINY_D128, "kv2": TINY_KV2}
CHIPS = (1, 2, 3, 4, 6, 8, 16)
CHUNKS = (1, 7, 64)


@cache
def model(name: str) -> Model:
    shape: LlamaShape = SHAPES[name]
    return load_model(str(write_llama(Path(mkdtemp()) / name, 5, shape)))


def tokens_of(name: str, count: int) -> list[int]:
    return np.random.default_rng(7).integers(0, model(name).spec.vocab, count).tolist()


@cache
def reference(name: str, fmt: str, count: int):
    return Oracle(model(name).spec, model(name).weights(), fmt, matmul=fast_matmul).forward(
        tokens_of(name, count)
    )


@cache
def stepper(name: str, chips: int, fmt: str = "bf16", max_context: int = 1300) -> Stepper:
    return Stepper.make(model(name).spec, model(name).weights(), chips, fmt, max_context)


@pytest.mark.parametrize(
    ("name", "chips", "chunk", "fmt", "count"),
    [
        ("kv3", 1, 64, "bf16", 130),
        ("kv3", 6, 7, "bf16", 130),
        ("kv3", 16, 64, "bf16", 130),
        ("kv3", 2, 1, "bf16", 66),
        ("kv3", 3, 3, "f32", 70),
        ("d128", 4, 7, "bf16", 70),
        ("d128", 2, 64, "f32", 130),
        ("kv2", 8, 4, "bf16", 70),
    ],
)
def test_logits_and_cache_equal_the_oracle(name: str, chips: int, chunk: int, fmt: str, count: int) -> None:
    s, expected = stepper(name, chips, fmt), reference(name, fmt, count)
    logits, machine = s.run(tokens_of(name, count), chunk)
    assert same_bits(logits, expected.logits)
    k, v = s.cache(machine, count)
    for layer in range(s.spec.layers):
        assert same_bits(k[layer], expected.k[layer])
        assert same_bits(v[layer], expected.v[layer])


def test_context_1300_equals_the_oracle_at_six_chips() -> None:
    logits, _ = stepper("kv3", 6).run(tokens_of("kv3", 1300), 64)
    assert same_bits(logits, reference("kv3", "bf16", 1300).logits)


def test_a_chunk_of_three_runs_as_four_rows_at_two_chips() -> None:
    s = stepper("kv3", 2)
    logits, _ = s.run(tokens_of("kv3", 65), 3)
    assert {k.tokens for k in s.timetables} >= {4}
    assert same_bits(logits, reference("kv3", "bf16", 65).logits)


def test_a_changed_weight_changes_bits() -> None:
    """The comparison can fail: another seed gives other logits."""
    other = load_model(str(write_llama(Path(mkdtemp()) / "other", 6, TINY_KV3)))
    s = Stepper.make(other.spec, other.weights(), 2)
    logits, _ = s.run(tokens_of("kv3", 10), 7)
    assert not same_bits(logits, reference("kv3", "bf16", 10).logits)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("chips", CHIPS)
def test_every_position_to_1300_on_every_chip_count_and_chunk(chips: int, chunk: int) -> None:
    logits, _ = stepper("kv3", chips).run(tokens_of("kv3", 1300), chunk)
    assert same_bits(logits, reference("kv3", "bf16", 1300).logits)


LONG = 17_000
KEPT = [0, 63, 64, 65, 1_025, 1_300, 16_383, 16_384, 16_385, 16_447, 16_448, 16_999]


@cache
def long_reference() -> np.ndarray:
    oracle = Oracle(model("kv3").spec, model("kv3").weights(), "bf16", matmul=fast_matmul)
    return oracle.forward(tokens_of("kv3", LONG), logits_at=KEPT).logits


# head groups and context lanes at once are a slow test; one chip, and context lanes alone, are run by hand
@pytest.mark.parametrize(
    "chips", [pytest.param(n, marks=pytest.mark.slow if n == 6 else pytest.mark.long) for n in (1, 6, 16)]
)
def test_seventeen_thousand_positions_wrap_the_lanes(chips: int) -> None:
    s = stepper("kv3", chips, "bf16", LONG)
    logits, _ = s.run(tokens_of("kv3", LONG), 64, KEPT)
    assert same_bits(logits, long_reference())


LEVELS = {
    "as it is": {},
    "plain x86-64": {
        "NUMBA_CPU_NAME": "generic",
        "NUMBA_CPU_FEATURES": "",
        "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR",
    },
}
BITS_SCRIPT = """
import hashlib, sys
from pathlib import Path
from tests.models import TINY_KV3, write_llama
from tests.stepping import Stepper
from ticktrue.model import load_model
model = load_model(str(write_llama(Path(sys.argv[1]) / "m", 5, TINY_KV3)))
logits, machine = Stepper.make(model.spec, model.weights(), 6).run(list(range(100, 230)), 7)
print(hashlib.sha256(logits.tobytes()).hexdigest())
"""


@pytest.mark.slow
def test_bits_are_equal_on_two_cpu_levels(tmp_path: Path) -> None:
    """AVX-512 or AVX2 code and plain SSE2 code give the same logits."""
    found = {}
    for name, level in LEVELS.items():
        (tmp_path / name).mkdir()
        root = Path(__file__).parents[2]
        environment = (
            os.environ
            | {"PYTHONPATH": f"{root}:{root / 'src'}", "NUMBA_CACHE_DIR": str(tmp_path / name)}
            | level
        )
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", BITS_SCRIPT, str(tmp_path / name)],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found[name] = done.stdout.strip()
    assert len(set(found.values())) == 1, found
