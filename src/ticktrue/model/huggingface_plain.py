"""Llama, Mistral, Qwen2, Qwen3 and Qwen3-MoE: one RoPE, SiLU gate; defaults are those of `transformers` 5.24."""

from pathlib import Path
from typing import Any

import msgspec

from ticktrue.errors import UnsupportedModel
from ticktrue.model.family import Family
from ticktrue.model.huggingface_fields import (
    Plain,
    decode,
    ids,
    layer_kinds,
    refuse,
    refuse_plain,
    scaling,
)
from ticktrue.model.spec import Experts, LayerKind, ModelSpec, SlidingAttention


class _Llama(Plain, frozen=True):
    sliding_window: int | None = None


class _Mistral(Plain, frozen=True):
    # what `transformers` assumes where the file does not say; null means none
    sliding_window: int | None = 4_096
    layer_types: list[str] | None = None


class _Qwen(Plain, frozen=True):
    use_sliding_window: bool = False
    sliding_window: int | None = 4_096
    max_window_layers: int = 28
    layer_types: list[str] | None = None


class _QwenMoe(_Qwen, frozen=True, kw_only=True):
    num_experts: int = 128
    num_experts_per_tok: int = 8
    moe_intermediate_size: int = 768
    norm_topk_prob: bool = False
    decoder_sparse_step: int = 1
    mlp_only_layers: list[int] | None = None


def read_llama(data: bytes | msgspec.Raw, path: Path) -> ModelSpec:
    """ModelSpec of a `LlamaForCausalLM`.

    Raises:
        InputError: T341, T342.
        UnsupportedModel: T333, naming the feature.
    """
    config = decode(data, _Llama, path)
    refuse({f"sliding_window = {config.sliding_window}": bool(config.sliding_window)}, path)
    return _spec(Family.LLAMA, config, path)


def read_mistral(data: bytes | msgspec.Raw, path: Path) -> ModelSpec:
    """ModelSpec of a `MistralForCausalLM`: a Llama whose layers may all slide.

    Raises:
        InputError: T341, T342.
        UnsupportedModel: T333, naming the feature.
    """
    config = decode(data, _Mistral, path)
    refuse({"layer_types": config.layer_types is not None}, path)
    return _spec(Family.MISTRAL, config, path, **_sliding(config, config.sliding_window, None, path))


def read_qwen(data: bytes | msgspec.Raw, path: Path, family: Family) -> ModelSpec:
    """ModelSpec of a `Qwen2ForCausalLM` (biases of q, k, v) or `Qwen3ForCausalLM` (norms of q and k).

    Raises:
        InputError: T341, T342.
        UnsupportedModel: T333, naming the feature.
    """
    config = decode(data, _Qwen, path)
    window = config.sliding_window if config.use_sliding_window else None
    kinds = _qwen_kinds(config, window, path)
    if family == Family.QWEN3 and config.head_dim is None:
        config = msgspec.structs.replace(config, head_dim=128)
    return _spec(
        family,
        config,
        path,
        attention_bias=family == Family.QWEN2,
        qk_norm=family == Family.QWEN3,
        **_sliding(config, window, kinds, path),
    )


def read_qwen_moe(data: bytes | msgspec.Raw, path: Path) -> ModelSpec:
    """ModelSpec of a `Qwen3MoeForCausalLM`.

    Raises:
        InputError: T341, T342.
        UnsupportedModel: T333, naming the feature.
    """
    config = decode(data, _QwenMoe, path)
    refuse({"norm_topk_prob = false": not config.norm_topk_prob}, path)
    window = config.sliding_window if config.use_sliding_window else None
    experts = Experts(
        count=config.num_experts,
        per_token=config.num_experts_per_tok,
        ffn=config.moe_intermediate_size,
        dense_layers=_dense_layers(config, path),
    )
    return _spec(
        Family.QWEN3_MOE, config, path, qk_norm=True, experts=experts, **_sliding(config, window, None, path)
    )


def _dense_layers(config: _QwenMoe, path: Path) -> int:
    """How many layers, from the first, have no experts."""
    dense = set(config.mlp_only_layers or ())
    refuse({f"decoder_sparse_step = {config.decoder_sparse_step}": config.decoder_sparse_step != 1}, path)
    if dense != set(range(len(dense))):
        raise UnsupportedModel(
            f"mlp_only_layers = {sorted(dense)} are not the first layers", code="T333", where=str(path)
        )
    return len(dense)


def _qwen_kinds(config: _Qwen, window: int | None, path: Path) -> tuple[LayerKind, ...]:
    if config.layer_types is not None:
        return layer_kinds(config.layer_types, path)
    return tuple(
        LayerKind.SLIDING if window is not None and layer >= config.max_window_layers else LayerKind.FULL
        for layer in range(max(0, config.num_hidden_layers))
    )


def _sliding(
    config: Plain, window: int | None, kinds: tuple[LayerKind, ...] | None, path: Path
) -> dict[str, Any]:
    """`sliding` and `layer_kinds`: all layers slide where a window is given and no kinds are."""
    if kinds is None:
        kinds = (LayerKind.SLIDING,) * max(0, config.num_hidden_layers) if window is not None else ()
    if LayerKind.SLIDING not in kinds:
        return {"layer_kinds": kinds}
    refuse({"layer_types with sliding layers and no sliding_window": window is None}, path)
    sliding = SlidingAttention(
        window=window or 0,
        kv_heads=config.kv_heads,
        head_dim=config.size_of_head,
        rope_theta=config.theta,
        rope_scaling=scaling(config.rope, path),
    )
    return {"sliding": sliding, "layer_kinds": kinds}


def _spec(family: Family, config: Plain, path: Path, **more: Any) -> ModelSpec:  # noqa: ANN401  fields of ModelSpec
    refuse_plain(config, path)
    return ModelSpec(
        family=family,
        name=path.parent.resolve().name,
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        heads=config.num_attention_heads,
        kv_heads=config.kv_heads,
        head_dim=config.size_of_head,
        ffn=config.intermediate_size,
        vocab=config.vocab_size,
        rope_theta=config.theta,
        rms_eps=config.rms_norm_eps,
        max_positions=config.max_position_embeddings,
        rope_scaling=scaling(config.rope, path),
        tied_embeddings=config.tie_word_embeddings,
        bos=ids(config.bos_token_id),
        eos=ids(config.eos_token_id),
        **more,
    )
