"""Families whose shape is read for planning and which do not run: GPT-OSS, DeepSeek-V3 (and Kimi-K2)."""

from pathlib import Path

import msgspec

from ticktrue.model.family import Family
from ticktrue.model.huggingface_fields import Config, Rope, decode, first, ids, layer_kinds, refuse, yarn
from ticktrue.model.spec import Experts, LatentAttention, ModelSpec, SlidingAttention


class _GptOss(Config, frozen=True, kw_only=True):
    num_local_experts: int
    num_experts_per_tok: int
    layer_types: list[str]
    sliding_window: int
    rope_theta: float | None = None
    rope_scaling: Rope | None = None
    rope_parameters: Rope | None = None
    swiglu_limit: float = 7.0


class _Deepseek(Config, frozen=True, kw_only=True):
    q_lora_rank: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    n_routed_experts: int
    num_experts_per_tok: int
    moe_intermediate_size: int
    n_shared_experts: int = 0
    first_k_dense_replace: int = 0
    moe_layer_freq: int = 1
    scoring_func: str = "sigmoid"
    norm_topk_prob: bool = True
    rope_theta: float | None = None
    rope_scaling: Rope | None = None
    rope_parameters: Rope | None = None


def read_gpt_oss(data: bytes | msgspec.Raw, path: Path) -> ModelSpec:
    """ModelSpec of a `GptOssForCausalLM`, whatever the number format of its file.

    Raises:
        InputError: T341, T342.
        UnsupportedModel: T333, naming the feature.
    """
    config = decode(data, _GptOss, path)
    rope = config.rope_parameters or config.rope_scaling or Rope()
    theta = first(rope.rope_theta, config.rope_theta, 150_000.0)
    return ModelSpec(
        family=Family.GPT_OSS,
        name=path.parent.resolve().name,
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        heads=config.num_attention_heads,
        kv_heads=config.kv_heads,
        head_dim=config.size_of_head,
        ffn=config.intermediate_size,
        vocab=config.vocab_size,
        rope_theta=theta,
        rms_eps=config.rms_norm_eps,
        max_positions=config.max_position_embeddings,
        tied_embeddings=config.tie_word_embeddings,
        attention_bias=config.attention_bias,
        output_bias=config.attention_bias,
        mlp_bias=True,
        bos=ids(config.bos_token_id),
        eos=ids(config.eos_token_id),
        sinks=True,
        gate_limit=config.swiglu_limit,
        sliding=SlidingAttention(config.sliding_window, config.kv_heads, config.size_of_head, theta),
        layer_kinds=layer_kinds(config.layer_types, path),
        experts=Experts(config.num_local_experts, config.num_experts_per_tok, config.intermediate_size),
        yarn=yarn(rope, path),
    )


def read_deepseek(data: bytes | msgspec.Raw, path: Path) -> ModelSpec:
    """ModelSpec of a `DeepseekV3ForCausalLM`, without its extra layers of multi-token prediction.

    Raises:
        InputError: T341, T342.
        UnsupportedModel: T333, naming the feature.
    """
    config = decode(data, _Deepseek, path)
    refuse(
        {
            f"moe_layer_freq = {config.moe_layer_freq}": config.moe_layer_freq != 1,
            f"scoring_func = {config.scoring_func!r}": config.scoring_func != "sigmoid",
            "attention_bias": config.attention_bias,
        },
        path,
    )
    rope = config.rope_parameters or config.rope_scaling or Rope()
    return ModelSpec(
        family=Family.DEEPSEEK_V3,
        name=path.parent.resolve().name,
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        heads=config.num_attention_heads,
        kv_heads=config.kv_heads,
        head_dim=config.qk_nope_head_dim + config.qk_rope_head_dim,
        ffn=config.intermediate_size,
        vocab=config.vocab_size,
        rope_theta=first(rope.rope_theta, config.rope_theta, 10_000.0),
        rms_eps=config.rms_norm_eps,
        max_positions=config.max_position_embeddings,
        tied_embeddings=config.tie_word_embeddings,
        bos=ids(config.bos_token_id),
        eos=ids(config.eos_token_id),
        experts=Experts(
            count=config.n_routed_experts,
            per_token=config.num_experts_per_tok,
            ffn=config.moe_intermediate_size,
            shared=config.n_shared_experts,
            router=config.scoring_func,
            normalise=config.norm_topk_prob,
            dense_layers=config.first_k_dense_replace,
        ),
        latent=LatentAttention(
            q_rank=config.q_lora_rank,
            kv_rank=config.kv_lora_rank,
            nope_dim=config.qk_nope_head_dim,
            rope_dim=config.qk_rope_head_dim,
            v_dim=config.v_head_dim,
        ),
        yarn=yarn(rope, path),
    )
