"""A model that has windows, experts and a run of equal layers at once: no published family does, the compiler's graph does."""

from dataclasses import dataclass

import numpy as np

from ticktrue.model import Family, ModelSpec
from ticktrue.model.bf16 import to_bf16
from ticktrue.model.spec import Experts, LayerKind, SlidingAttention
from ticktrue.model.weights import CanonicalArray, canonical_shapes

SLIDING_LAYERS = 7
"""Equal layers that follow one layer of full attention: enough for a loop, whatever bodies are peeled."""

SPEC = ModelSpec(
    family=Family.QWEN3_MOE,
    name="everything",
    layers=1 + SLIDING_LAYERS,
    hidden=70,
    heads=4,
    kv_heads=2,
    head_dim=32,
    ffn=64,
    vocab=131,
    rope_theta=10_000.0,
    rms_eps=1e-6,
    max_positions=1024,
    qk_norm=True,
    sliding=SlidingAttention(window=70, kv_heads=2, head_dim=32, rope_theta=20_000.0),
    layer_kinds=(LayerKind.FULL, *[LayerKind.SLIDING] * SLIDING_LAYERS),
    experts=Experts(count=4, per_token=2, ffn=50),
)


@dataclass(frozen=True)
class RandomWeights:
    """Seeded weights made in memory, with the two things of `model.Weights` that a bf16 image asks for."""

    spec: ModelSpec
    arrays: dict[str, CanonicalArray]

    def tensor(self, name: str) -> CanonicalArray:
        return self.arrays[name]


def random_weights(spec: ModelSpec, seed: int) -> RandomWeights:
    """Matrices of about unit gain, norms near 1: every block moves the residual."""
    rng = np.random.default_rng(seed)
    arrays: dict[str, CanonicalArray] = {}
    for name, shape in canonical_shapes(spec).items():
        values = rng.standard_normal(shape).astype(np.float32)
        if len(shape) == 1:
            arrays[name] = np.float32(1) + np.float32(0.1) * values
        else:
            gain = 2.0 if name.endswith("router") else 1.4
            arrays[name] = to_bf16(np.float32(gain / np.sqrt(shape[1])) * values, name)
    return RandomWeights(spec, arrays)
