"""Gemma 3 and Gemma 4 (text): two kinds of layers; defaults are those of `transformers` 5.24.

Source: `Gemma3TextConfig` and `Gemma4TextConfig` in transformers 5.24 (`configuration_gemma3.py`, `configuration_gemma4.py`).
"""

import math
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ticktrue.errors import InputError
from ticktrue.model.family import Family
from ticktrue.model.huggingface_fields import (
    Config,
    Rope,
    decode,
    first,
    ids,
    layer_kinds,
    refuse,
    scaling,
)
from ticktrue.model.spec import Activation, LayerKind, ModelSpec, SlidingAttention

_PATTERN = 6  # every sixth layer is full
_GELU = "gelu_pytorch_tanh"


class _Gemma(Config, frozen=True, kw_only=True):
    """Fields of both; the sizes that published files leave to the defaults have them here too."""

    hidden_size: int = 2_304
    intermediate_size: int = 9_216
    max_position_embeddings: int = 131_072
    rms_norm_eps: float = 1e-6
    num_attention_heads: int = 8
    num_key_value_heads: int = 4
    head_dim: int = 256
    hidden_activation: str = _GELU
    tie_word_embeddings: bool = True
    bos_token_id: int | list[int] | None = 2
    eos_token_id: int | list[int] | None = 1
    layer_types: list[str] | None = None
    final_logit_softcapping: float | None = None
    rope_parameters: dict[str, Rope] | None = None


class _Gemma3(_Gemma, frozen=True, kw_only=True):
    vocab_size: int = 262_208
    query_pre_attn_scalar: float = 256
    sliding_window: int = 4_096
    sliding_window_pattern: int = _PATTERN
    attn_logit_softcapping: float | None = None
    use_bidirectional_attention: bool | None = False
    rope_theta: float | None = None
    rope_local_base_freq: float | None = None
    rope_scaling: Rope | None = None


class _Gemma4(_Gemma, frozen=True, kw_only=True):
    vocab_size: int = 262_144
    sliding_window: int = 512
    global_head_dim: int = 512
    num_global_key_value_heads: int | None = None
    attention_k_eq_v: bool = False
    num_kv_shared_layers: int = 0
    hidden_size_per_layer_input: int = 256
    enable_moe_block: bool = False
    use_double_wide_mlp: bool = False
    use_bidirectional_attention: str | None = None
    per_layer_config: object = None


def read_gemma3(data: bytes | msgspec.Raw, path: Path) -> ModelSpec:
    """ModelSpec of a `Gemma3ForCausalLM`.

    Raises:
        InputError: T341, T342.
        UnsupportedModel: T333, naming the feature.
    """
    config = decode(data, _Gemma3, path)
    refuse({"use_bidirectional_attention": bool(config.use_bidirectional_attention)}, path)
    ropes = config.rope_parameters or {}
    full, local = (ropes.get(f"{kind}_attention") or Rope() for kind in ("full", "sliding"))
    if config.rope_scaling is not None:  # the old spelling, of the full layers only
        full = config.rope_scaling
    sliding = SlidingAttention(
        window=config.sliding_window,
        kv_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        rope_theta=first(local.rope_theta, config.rope_local_base_freq, 10_000.0),
        rope_scaling=scaling(local, path),
    )
    rotary = {
        f"partial_rotary_factor = {rope.partial_rotary_factor}": rope.partial_rotary_factor not in {None, 1.0}
        for rope in (full, local)
    }
    refuse(rotary, path)
    return _spec(
        Family.GEMMA3,
        config,
        path,
        {
            "kinds": _kinds(config, config.sliding_window_pattern, path),
            "sliding": sliding,
            "kv_heads": config.num_key_value_heads,
            "head_dim": config.head_dim,
            "rope_theta": first(full.rope_theta, config.rope_theta, 1_000_000.0),
            "rope_scaling": scaling(full, path),
            "query_scale": _query_scale(config, path),
            "score_softcap": config.attn_logit_softcapping or 0.0,
        },
    )


def read_gemma4(data: bytes | msgspec.Raw, path: Path) -> ModelSpec:
    """ModelSpec of a `Gemma4ForCausalLM` of the dense kind (31B).

    Raises:
        InputError: T341, T342.
        UnsupportedModel: T333, naming the feature.
    """
    config = decode(data, _Gemma4, path)
    _refuse_gemma4(config, path)
    ropes = config.rope_parameters or {
        "full_attention": Rope(rope_type="proportional", partial_rotary_factor=0.25, rope_theta=1_000_000.0),
        "sliding_attention": Rope(rope_theta=10_000.0),
    }
    full, local = (ropes.get(f"{kind}_attention") or Rope() for kind in ("full", "sliding"))
    fraction = _fraction(full, local, path)
    sliding = SlidingAttention(
        window=config.sliding_window,
        kv_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        rope_theta=first(local.rope_theta, 10_000.0),
        rope_scaling=scaling(local, path),
    )
    kinds = _kinds(config, _PATTERN, path)
    refuse({"a last layer that slides": kinds[-1:] == (LayerKind.SLIDING,)}, path)
    # the count of the full layers is its own only together with k = v
    own = config.num_global_key_value_heads if config.attention_k_eq_v else None
    return _spec(
        Family.GEMMA4,
        config,
        path,
        {
            "kinds": kinds,
            "sliding": sliding,
            "kv_heads": config.num_key_value_heads if own is None else own,
            "head_dim": config.global_head_dim,
            "rope_theta": first(full.rope_theta, 1_000_000.0),
            "rope_scaling": scaling(full, path),
            "rotary_fraction": fraction,
            "query_scale": 1.0,
            "k_is_v": config.attention_k_eq_v,
            "v_norm": True,
            "layer_scalar": True,
        },
    )


def _query_scale(config: _Gemma3, path: Path) -> float:
    scalar = config.query_pre_attn_scalar
    if not (math.isfinite(scalar) and scalar > 0):
        raise InputError(
            f"query_pre_attn_scalar must be a finite number above 0, found {scalar!r}",
            code="T342",
            where=str(path),
        )
    return 1.0 / math.sqrt(scalar)


def _refuse_gemma4(config: _Gemma4, path: Path) -> None:
    """Refuse, by name, what the smaller models of the family have."""
    refuse(
        {
            f"hidden_size_per_layer_input = {config.hidden_size_per_layer_input} (per-layer embeddings)": bool(
                config.hidden_size_per_layer_input
            ),
            f"num_kv_shared_layers = {config.num_kv_shared_layers} (layers that share a KV cache)": bool(
                config.num_kv_shared_layers
            ),
            "enable_moe_block (experts beside the feed-forward block)": config.enable_moe_block,
            "use_double_wide_mlp": config.use_double_wide_mlp,
            "use_bidirectional_attention = 'all'": config.use_bidirectional_attention == "all",
            "per_layer_config": config.per_layer_config is not None,
        },
        path,
    )


def _fraction(full: Rope, local: Rope, path: Path) -> float:
    """The part of the pairs that turns in full layers."""
    fraction = first(full.partial_rotary_factor, 1.0)
    refuse(
        {
            f"partial_rotary_factor = {local.partial_rotary_factor} in sliding layers": local.partial_rotary_factor
            not in {None, 1.0},
            f"partial_rotary_factor = {fraction} with RoPE {full.kind!r}": fraction != 1.0
            and full.kind != "proportional",
        },
        path,
    )
    return fraction


def _kinds(config: _Gemma, pattern: int, path: Path) -> tuple[LayerKind, ...]:
    if config.layer_types is not None:
        return layer_kinds(config.layer_types, path)
    return tuple(
        LayerKind.SLIDING if (layer + 1) % max(pattern, 1) else LayerKind.FULL
        for layer in range(max(0, config.num_hidden_layers))
    )


def _spec(family: Family, config: _Gemma, path: Path, own: Mapping[str, object]) -> ModelSpec:
    """ModelSpec with the fields that both families share; `own` are those that differ."""
    refuse(
        {
            f"hidden_activation = {config.hidden_activation!r}": config.hidden_activation != _GELU,
            "quantization_config": config.quantization_config is not None,
            "attention_bias": config.attention_bias,
        },
        path,
    )
    more = dict(own)
    kinds, sliding = more.pop("kinds"), more.pop("sliding")
    more["layer_kinds"] = kinds
    more["sliding"] = sliding if isinstance(kinds, tuple) and LayerKind.SLIDING in kinds else None
    fields: dict[str, object] = {
        "family": family,
        "name": path.parent.resolve().name,
        "layers": config.num_hidden_layers,
        "hidden": config.hidden_size,
        "heads": config.num_attention_heads,
        "ffn": config.intermediate_size,
        "vocab": config.vocab_size,
        "rms_eps": config.rms_norm_eps,
        "max_positions": config.max_position_embeddings,
        "tied_embeddings": config.tie_word_embeddings,
        "bos": ids(config.bos_token_id),
        "eos": ids(config.eos_token_id),
        "activation": Activation.GELU_TANH,
        "qk_norm": True,
        "post_norms": True,
        "embed_scale": math.sqrt(max(config.hidden_size, 1)),
        "final_softcap": config.final_logit_softcapping or 0.0,
    }
    return ModelSpec(**(fields | more))  # type: ignore[arg-type]
