"""The oracle on long contexts and on the real model: numpy and numba, chunks and wholes agree to the bit."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

from ticktrue.graph.oracle import Oracle
from ticktrue.graph.oracle_fast import fast_matmul
from ticktrue.model import Family, LayerKind, SlidingAttention

pytestmark = pytest.mark.slow

CONFTEST = Path(__file__).with_name("conftest.py")
DIGEST_OF_LOGITS = """
import hashlib, runpy, sys
from ticktrue.graph.oracle import Oracle
from ticktrue.graph.oracle_fast import fast_matmul
from ticktrue.graph.oracle_matmul import ordered_matmul
made = runpy.run_path(sys.argv[1])
spec = made["make_spec"](vocab=64, rope_theta=100_000.0)
weights = made["make_weights"](spec, 0)
for fmt in ("bf16", "f32", "int8", "fp8"):
    for matmul in (ordered_matmul, fast_matmul):
        logits = Oracle(spec, weights, fmt, matmul).forward([i * i % 64 for i in range(150)]).logits
        print(fmt, hashlib.sha256(logits.tobytes()).hexdigest())
"""

FORMATS = ["bf16", "f32"]


def test_17000_positions_of_two_layers(random_model, tokens, equal_bits):
    """266 blocks: lanes wrap at 256. A single step and a chunk at the end give the bits of the whole."""
    spec, weights = random_model(2)
    fast, ids = Oracle(spec, weights, "bf16", fast_matmul), tokens(17_000, spec.vocab)
    whole = fast.forward(ids, logits_at=[16_990, 16_998, 16_999])
    before = fast.forward(ids[:16_990], logits_at=[0])
    chunk = fast.extend(before.state, ids[16_990:16_999], logits_at=[16_990, 16_998])
    last = Oracle(spec, weights, "bf16").extend(chunk.state, ids[16_999:])
    assert equal_bits(np.concatenate([chunk.logits, last.logits]), whole.logits)
    for layer in range(spec.layers):
        assert equal_bits(last.k[layer], whole.k[layer])
        assert equal_bits(last.v[layer], whole.v[layer])


def test_a_window_over_17000_positions(random_model, tokens, equal_bits):
    """Blocks 250 to 265 of a window of 1,000: lanes wrap inside it, and a state carries what the window needs."""
    window = SlidingAttention(window=1_000, kv_heads=3, head_dim=64, rope_theta=10_000.0)
    kinds = (LayerKind.SLIDING, LayerKind.SLIDING)
    spec, weights = random_model(2, family=Family.GEMMA3, sliding=window, layer_kinds=kinds)
    fast, ids = Oracle(spec, weights, "int8", fast_matmul), tokens(17_000, spec.vocab)
    whole = fast.forward(ids, logits_at=[16_999])
    before = fast.forward(ids[:16_400], logits_at=[0])
    last = fast.extend(before.state, ids[16_400:], logits_at=[16_999])
    assert equal_bits(last.logits, whole.logits)


def digests(**environment):
    """Digests of the logits in a fresh process with these variables added."""
    command = [sys.executable, "-c", DIGEST_OF_LOGITS, str(CONFTEST)]
    path = os.pathsep.join(entry for entry in sys.path if entry)
    variables = os.environ | {"PYTHONPATH": path} | environment
    return subprocess.run(command, env=variables, check=True, capture_output=True, text=True).stdout.split()


def test_two_processor_levels_give_the_same_bits():
    """Numpy without its wide vector units and numba for a generic processor, against both as they are."""
    wide = " ".join(name for name in __cpu_dispatch__ if __cpu_features__.get(name))
    found = digests()
    narrow = digests(NPY_DISABLE_CPU_FEATURES=wide, NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="")
    assert found == narrow
    of_format = {fmt: set() for fmt in found[::2]}
    for fmt, digest in zip(found[::2], found[1::2], strict=True):
        of_format[fmt].add(digest)
    assert [len(of_both_products) for of_both_products in of_format.values()] == [1, 1, 1, 1]
    assert len(set(found)) == 8


@pytest.mark.parametrize("fmt", FORMATS)
def test_smollm2_at_65_and_1300_positions(fmt, smollm2, tokens, equal_bits):
    """Plain numpy gives every logit of 65 positions as numba does, and of one step at 1,300."""
    spec, weights = smollm2.spec, smollm2.weights()
    ids = tokens(1300, spec.vocab)
    plain, fast = Oracle(spec, weights, fmt), Oracle(spec, weights, fmt, fast_matmul)
    whole = fast.forward(ids, logits_at=[*range(65), 1298, 1299])
    assert equal_bits(plain.forward(ids[:65]).logits, whole.logits[:65])
    before = fast.forward(ids[:1299], logits_at=[1298])
    assert equal_bits(before.logits, whole.logits[-2:-1])
    assert equal_bits(plain.extend(before.state, ids[1299:]).logits, whole.logits[-1:])
