"""What is to be run: ModelSpec, canonical weights, tokenizer, chat template, registry."""

from ticktrue.model.load import Model, load_model, load_weights
from ticktrue.model.rope import rope_inv_freq
from ticktrue.model.spec import (
    FactorScaling,
    Family,
    LinearScaling,
    Llama3Scaling,
    ModelSpec,
    RopeScaling,
)
from ticktrue.model.weights import Weights, canonical_shapes

__all__ = [
    "FactorScaling",
    "Family",
    "LinearScaling",
    "Llama3Scaling",
    "Model",
    "ModelSpec",
    "RopeScaling",
    "Weights",
    "canonical_shapes",
    "load_model",
    "load_weights",
    "rope_inv_freq",
]
