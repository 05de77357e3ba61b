"""What is to be run: ModelSpec, canonical weights, tokenizer, chat template, registry.

Error codes: T330 family, T331 tensor type, T332 tokenizer kind, T333 feature, T334 not runnable yet;
T340 no such model, T341 config or metadata, T342 absurd value, T343 GGUF, T344 safetensors,
T345 tensor missing or misshapen, T346 weight not finite, T347 tokenizer or text, T348 chat template;
T410 network, T411 no pip, T412 wrong digest, T413 disk full, T414 hub, T415 cache directory.
"""

from ticktrue.model.chat import ChatTemplate
from ticktrue.model.family import Family
from ticktrue.model.fetch import cached, fetch
from ticktrue.model.huggingface import read_spec
from ticktrue.model.load import Model, load_model, load_weights, resolve
from ticktrue.model.registry import (
    DEFAULT_MODEL,
    RegistryModel,
    default_cache_dir,
    list_models,
    registry_model,
)
from ticktrue.model.rope import rope_inv_freq
from ticktrue.model.spec import (
    Activation,
    Attention,
    Experts,
    FactorScaling,
    LatentAttention,
    LayerKind,
    LinearScaling,
    Llama3Scaling,
    ModelSpec,
    RopeScaling,
    SlidingAttention,
    YarnScaling,
)
from ticktrue.model.tensor_file import Progress
from ticktrue.model.tokenizer import TextStream, Tokenizer
from ticktrue.model.weights import Weights, canonical_shapes, in_eight_bits

__all__ = [
    "DEFAULT_MODEL",
    "Activation",
    "Attention",
    "ChatTemplate",
    "Experts",
    "FactorScaling",
    "Family",
    "LatentAttention",
    "LayerKind",
    "LinearScaling",
    "Llama3Scaling",
    "Model",
    "ModelSpec",
    "Progress",
    "RegistryModel",
    "RopeScaling",
    "SlidingAttention",
    "TextStream",
    "Tokenizer",
    "Weights",
    "YarnScaling",
    "cached",
    "canonical_shapes",
    "default_cache_dir",
    "fetch",
    "in_eight_bits",
    "list_models",
    "load_model",
    "load_weights",
    "read_spec",
    "registry_model",
    "resolve",
    "rope_inv_freq",
]
