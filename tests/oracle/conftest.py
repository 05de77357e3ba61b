"""Models for the tests of the oracle: small random ones made in memory, and the default model."""

import os

import numpy as np
import pytest

from ticktrue.model import DEFAULT_MODEL, Family, ModelSpec, default_cache_dir, load_model


class Table:
    """Tensors by canonical name."""

    def __init__(self, tensors):
        self.tensors = tensors

    def tensor(self, name):
        return self.tensors[name]


def make_spec(**changes):
    shape = {"layers": 2, "hidden": 218, "heads": 9, "kv_heads": 3, "head_dim": 64, "ffn": 346, "vocab": 509}
    fixed = {"family": Family.LLAMA, "name": "random", "rope_theta": 10_000.0, "rms_eps": 1e-5}
    return ModelSpec(**(shape | fixed | {"max_positions": 32_768} | changes))


def make_weights(spec, seed):
    """Random bf16 matrices of unit gain and norms near 1."""
    rng = np.random.default_rng(seed)

    def matrix(outs, ins, gain=1.0):
        values = (gain * rng.standard_normal((outs, ins)) / np.sqrt(ins)).astype(np.float32)
        return (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16)

    def norm():
        return (1 + 0.1 * rng.standard_normal(spec.hidden)).astype(np.float32)

    queries, keys = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
    tensors = {"embed": matrix(spec.vocab, spec.hidden, 16.0), "final_norm": norm()}
    tensors["lm_head"] = matrix(spec.vocab, spec.hidden, 3.0)
    for layer in range(spec.layers):
        at = f"layers.{layer}."
        tensors |= {
            at + "attn_norm": norm(),
            at + "q": matrix(queries, spec.hidden, 1.5),
            at + "k": matrix(keys, spec.hidden, 1.5),
            at + "v": matrix(keys, spec.hidden),
            at + "o": matrix(spec.hidden, queries),
            at + "ffn_norm": norm(),
            at + "gate": matrix(spec.ffn, spec.hidden),
            at + "up": matrix(spec.ffn, spec.hidden),
            at + "down": matrix(spec.hidden, spec.ffn),
        }
    return Table(tensors)


@pytest.fixture(scope="session")
def random_model():
    """`random_model(seed, **shape)` gives (spec, weights); by default two layers with three KV heads."""

    def make(seed=0, **changes):
        spec = make_spec(**changes)
        return spec, make_weights(spec, seed)

    return make


@pytest.fixture(scope="session")
def tokens():
    """`tokens(n, vocab)` gives n fixed random token ids."""

    def make(n, vocab, seed=5):
        return np.random.default_rng(seed).integers(0, vocab, n).tolist()

    return make


@pytest.fixture(scope="session")
def equal_bits():
    """Whether two float32 arrays hold the same bits."""

    def compare(a, b):
        a, b = (np.ascontiguousarray(x, np.float32).view(np.uint32) for x in (a, b))
        return a.shape == b.shape and bool((a == b).all())

    return compare


@pytest.fixture(scope="session")
def smollm2():
    """The default model, fetched where the cache does not have it."""
    return load_model(DEFAULT_MODEL, cache=default_cache_dir(os.environ))
