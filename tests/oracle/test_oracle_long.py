"""The oracle on long contexts and on the real model: numpy and numba forms, chunks and wholes agree to the bit."""

import time

import numpy as np
import pytest

from ticktrue.graph.oracle import Oracle
from ticktrue.graph.oracle_fast import fast_matmul

pytestmark = pytest.mark.slow

FORMATS = ["bf16", "f32"]


def test_17000_positions_of_two_layers(random_model, tokens, equal_bits):
    """266 blocks: lanes wrap at 256. A single step and a chunk at the end give the bits of the whole."""
    spec, weights = random_model(2)
    fast, ids = Oracle(spec, weights, "bf16", fast_matmul), tokens(17_000, spec.vocab)
    started = time.perf_counter()
    whole = fast.forward(ids, logits_at=[16_990, 16_998, 16_999])
    assert time.perf_counter() - started < 180
    before = fast.forward(ids[:16_990], logits_at=[0])
    chunk = fast.extend(before.state, ids[16_990:16_999], logits_at=[16_990, 16_998])
    last = Oracle(spec, weights, "bf16").extend(chunk.state, ids[16_999:])
    assert equal_bits(np.concatenate([chunk.logits, last.logits]), whole.logits)
    for layer in range(spec.layers):
        assert equal_bits(last.k[layer], whole.k[layer])
        assert equal_bits(last.v[layer], whole.v[layer])


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
