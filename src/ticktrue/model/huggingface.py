"""A Hugging Face directory: config.json to ModelSpec, and the names its safetensors use."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from ticktrue.errors import InputError, UnsupportedModel
from ticktrue.model.spec import LinearScaling, Llama3Scaling, ModelSpec, RopeScaling, family_of

S = TypeVar("S", bound=msgspec.Struct)

CONFIG = "config.json"
GENERATION_CONFIG = "generation_config.json"

_PARTS = {
    "attn_norm": "input_layernorm",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}
_WHOLE = {
    "embed": "model.embed_tokens.weight",
    "final_norm": "model.norm.weight",
    "lm_head": "lm_head.weight",
}


class _Rope(msgspec.Struct, frozen=True):
    rope_type: str | None = None
    type: str | None = None
    rope_theta: float | None = None
    factor: float | None = None
    low_freq_factor: float | None = None
    high_freq_factor: float | None = None
    original_max_position_embeddings: int | None = None
    partial_rotary_factor: float | None = None


class _Config(msgspec.Struct, frozen=True):
    """The fields of a Llama config.json that decide something; the many others are passed over."""

    model_type: str
    num_hidden_layers: int
    hidden_size: int
    num_attention_heads: int
    intermediate_size: int
    vocab_size: int
    rms_norm_eps: float
    max_position_embeddings: int
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    hidden_act: str = "silu"
    rope_theta: float | None = None
    rope_scaling: _Rope | None = None
    rope_parameters: _Rope | None = None
    partial_rotary_factor: float | None = None
    rope_interleaved: bool = False
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    sliding_window: int | None = None
    quantization_config: object = None
    bos_token_id: int | list[int] | None = None
    eos_token_id: int | list[int] | None = None


class _Kind(msgspec.Struct, frozen=True):
    model_type: str


class _Generation(msgspec.Struct, frozen=True):
    bos_token_id: int | list[int] | None = None
    eos_token_id: int | list[int] | None = None


class HuggingFaceNaming:
    """Names of `LlamaForCausalLM`; rows are in our order already."""

    __slots__ = ()

    def stored_name(self, canonical: str) -> str:
        """The name in the file."""
        if canonical in _WHOLE:
            return _WHOLE[canonical]
        _, layer, part = canonical.split(".")
        return f"model.layers.{layer}.{_PARTS[part]}.weight"

    def ignored(self, stored: str) -> bool:
        """Whether a tensor of the file is not needed: old exports store RoPE frequencies."""
        return stored.endswith("rotary_emb.inv_freq")

    def rows(self, canonical: str) -> Callable[[npt.NDArray[np.uint8]], npt.NDArray[np.uint8]] | None:
        """None: rows are in the Hugging Face order."""
        del canonical
        return None


def read_config(directory: Path) -> ModelSpec:
    """The ModelSpec that a directory's config.json (and generation_config.json) describes.

    Raises:
        InputError: T341 for a file that cannot be read or lacks a field, T342 for an absurd value.
        UnsupportedModel: T330 for a family, T333 for a feature, each by name.
    """
    path = directory / CONFIG
    data = _read(path)
    family = family_of(_decode(data, _Kind, path).model_type, str(path))
    config = _decode(data, _Config, path)
    rope = config.rope_parameters or config.rope_scaling or _Rope()
    _refuse_features(config, rope, path)
    generation = _Generation()
    if (directory / GENERATION_CONFIG).is_file():
        generation = _decode(_read(directory / GENERATION_CONFIG), _Generation, directory / GENERATION_CONFIG)
    heads = config.num_attention_heads
    return ModelSpec(
        family=family,
        name=directory.resolve().name,
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        heads=heads,
        kv_heads=heads if config.num_key_value_heads is None else config.num_key_value_heads,
        head_dim=config.hidden_size // max(heads, 1) if config.head_dim is None else config.head_dim,
        ffn=config.intermediate_size,
        vocab=config.vocab_size,
        rope_theta=_first(rope.rope_theta, config.rope_theta, 10_000.0),
        rms_eps=config.rms_norm_eps,
        max_positions=config.max_position_embeddings,
        rope_scaling=_scaling(rope, path),
        tied_embeddings=config.tie_word_embeddings,
        attention_bias=config.attention_bias,
        mlp_bias=config.mlp_bias,
        bos=_ids(config.bos_token_id),
        eos=_ids(config.eos_token_id if generation.eos_token_id is None else generation.eos_token_id),
    )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as problem:
        raise InputError(
            f"cannot read {path.name}: {problem.strerror}",
            code="T341",
            where=str(path),
            hint="a model directory holds config.json, *.safetensors and tokenizer.json",
        ) from None


def _decode(data: bytes, kind: type[S], path: Path) -> S:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
        raise InputError(f"{path.name} is not valid: {problem}", code="T341", where=str(path)) from None


def _first(*candidates: float | None) -> float:
    return next(value for value in candidates if value is not None)


def _ids(value: int | list[int] | None) -> tuple[int, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, int) else tuple(value)


def _refuse_features(config: _Config, rope: _Rope, path: Path) -> None:
    rotary = _first(rope.partial_rotary_factor, config.partial_rotary_factor, 1.0)
    found: Mapping[str, bool] = {
        f"hidden_act = {config.hidden_act!r}": config.hidden_act != "silu",
        "quantization_config": config.quantization_config is not None,
        f"sliding_window = {config.sliding_window}": bool(config.sliding_window),
        f"partial_rotary_factor = {rotary}": rotary != 1.0,
        "rope_interleaved": config.rope_interleaved,
    }
    for feature, present in found.items():
        if present:
            raise UnsupportedModel(f"{feature} is not supported in this family", code="T333", where=str(path))


def _scaling(rope: _Rope, path: Path) -> RopeScaling | None:
    kind = rope.rope_type or rope.type or "default"
    if kind == "default":
        return None
    if kind not in {"linear", "llama3"}:
        raise UnsupportedModel(
            f"RoPE scaling {kind!r} is not supported; supported: default, linear, llama3",
            code="T333",
            where=str(path),
        )
    if rope.factor is None:
        raise InputError("rope_scaling.factor is missing", code="T341", where=str(path))
    if kind == "linear":
        return LinearScaling(rope.factor)
    low, high, original = rope.low_freq_factor, rope.high_freq_factor, rope.original_max_position_embeddings
    if low is None or high is None or original is None:
        raise InputError(
            "rope_scaling llama3 needs low_freq_factor, high_freq_factor, original_max_position_embeddings",
            code="T341",
            where=str(path),
        )
    return Llama3Scaling(rope.factor, low, high, original)
