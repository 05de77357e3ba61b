"""Models for the tests of the oracle: small random ones made in memory, and the default model."""

import os

import numpy as np
import pytest

from ticktrue.model import DEFAULT_MODEL, Family, ModelSpec, default_cache_dir, load_model
from ticktrue.model.bf16 import to_bf16
from ticktrue.model.weights import canonical_shapes


class Table:
    """Tensors by canonical name, and the values of the matrices before they are rounded to bf16."""

    def __init__(self, tensors, values=None):
        self.tensors, self.unrounded = tensors, values or {}

    def tensor(self, name):
        return self.tensors[self.stored(name)]

    def values(self, name):
        return self.unrounded[self.stored(name)]

    def stored(self, name):
        """`lm_head` is `embed` where it is not stored."""
        return "embed" if name == "lm_head" and name not in self.tensors else name


def make_spec(**changes):
    shape = {"layers": 2, "hidden": 218, "heads": 9, "kv_heads": 3, "head_dim": 64, "ffn": 346, "vocab": 509}
    fixed = {"family": Family.LLAMA, "name": "random", "rope_theta": 10_000.0, "rms_eps": 1e-5}
    return ModelSpec(**(shape | fixed | {"max_positions": 32_768} | changes))


GAINS = {"embed": 16.0, "lm_head": 3.0, "q": 1.5, "k": 1.5, "router": 2.0}


def make_weights(spec, seed):
    """Random matrices of about unit gain, norms near 1, the other vectors near 0."""
    rng = np.random.default_rng(seed)
    tensors, values = {}, {}
    for name, shape in canonical_shapes(spec).items():
        part = name.rpartition(".")[2]
        if len(shape) == 1:
            centre = 1 if "norm" in part or part == "layer_scalar" else 0
            tensors[name] = (centre + 0.1 * rng.standard_normal(shape)).astype(np.float32)
            continue
        gain = GAINS.get(part, 1.0)
        values[name] = (gain * rng.standard_normal(shape) / np.sqrt(shape[1])).astype(np.float32)
        tensors[name] = to_bf16(values[name], name)
    return Table(tensors, values)


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
