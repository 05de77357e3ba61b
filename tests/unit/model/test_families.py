"""Every runnable family from a Hugging Face directory: shape, constants, names, defaults, and each refusal by name."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.families import FAMILIES, PRESETS, family_tensors, write_family
from tests.models import write_safetensors

from ticktrue.errors import InputError, UnsupportedModel
from ticktrue.model import (
    Activation,
    Experts,
    LayerKind,
    LinearScaling,
    ModelSpec,
    load_model,
    load_weights,
    read_spec,
)
from ticktrue.model.bf16 import to_bf16

GEMMA4_FULL_ROPE = {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6}


def read(tmp_path: Path, family: str, **changes: object) -> ModelSpec:
    """The spec of a preset with fields of its config.json replaced; `...` removes one."""
    fields = {k: v for k, v in (PRESETS[family].config | changes).items() if v is not ...}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    return read_spec(tmp_path / "config.json")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_tensor_is_that_of_the_file(tmp_path: Path, family: str) -> None:
    model = load_model(write_family(tmp_path, family, seed=3))
    weights = load_weights(model)
    tensors = family_tensors(PRESETS[family], model.spec, 3)
    stacked = 3 * 2 * 7 if model.spec.experts else 0  # of 8 experts, 7 lie in the tensor of the first
    assert len(weights.names()) == len(tensors) - stacked
    q = tensors["model.layers.1.self_attn.q_proj.weight"]
    assert np.array_equal(weights.tensor("layers.1.q"), to_bf16(q, "q"))
    norm = tensors["model.layers.0.input_layernorm.weight"]
    expected = np.float32(1) + norm if family == "gemma3" else norm
    assert np.array_equal(weights.tensor("layers.0.attn_norm"), expected)
    before_ffn = "pre_feedforward_layernorm" if family.startswith("gemma") else "post_attention_layernorm"
    norm = tensors[f"model.layers.1.{before_ffn}.weight"]
    expected = np.float32(1) + norm if family == "gemma3" else norm
    assert np.array_equal(weights.tensor("layers.1.ffn_norm"), expected)


def test_qwen2(tmp_path: Path) -> None:
    spec = load_model(write_family(tmp_path, "qwen2")).spec
    assert (spec.attention_bias, spec.output_bias, spec.qk_norm) == (True, False, False)
    assert (spec.rope_theta, spec.kinds) == (1e6, (LayerKind.FULL,))
    weights = load_model(tmp_path).weights()
    tensors = family_tensors(PRESETS["qwen2"], spec, 0)
    for part in "qkv":
        bias = weights.tensor(f"layers.1.{part}_bias")
        assert bias.dtype == np.float32
        assert np.array_equal(bias, tensors[f"model.layers.1.self_attn.{part}_proj.bias"])


def test_qwen2_that_slides(tmp_path: Path) -> None:
    spec = read(tmp_path, "qwen2", use_sliding_window=True, sliding_window=70, max_window_layers=1)
    assert spec.layer_kinds == (LayerKind.FULL, LayerKind.SLIDING)
    assert spec.attention(1).window == 70
    assert spec.attention(1).rope_theta == 1e6
    unused = read(tmp_path, "qwen2", use_sliding_window=False, sliding_window=70, max_window_layers=1)
    assert unused.layer_kinds == ()


def test_qwen3(tmp_path: Path) -> None:
    spec = load_model(write_family(tmp_path, "qwen3")).spec
    assert (spec.attention_bias, spec.qk_norm, spec.v_norm) == (False, True, False)
    assert read(tmp_path, "qwen3", head_dim=...).head_dim == 128


def test_qwen3_moe_reads_both_layouts_alike(tmp_path: Path) -> None:
    each = load_model(write_family(tmp_path / "each", "qwen3_moe", 5))
    fused = load_model(write_family(tmp_path / "fused", "qwen3_moe", 5, fused=True))
    assert each.spec.experts == Experts(count=8, per_token=2, ffn=170)
    assert each.spec.digest() == fused.spec.digest()
    assert each.weights().digest() == fused.weights().digest()
    tensors = family_tensors(PRESETS["qwen3_moe"], each.spec, 5)
    for part, rows in (("gate", 170), ("up", 170), ("down", 202)):
        third = to_bf16(tensors[f"model.layers.1.mlp.experts.3.{part}_proj.weight"], part)
        for model in (each, fused):
            stacked = model.weights().tensor(f"layers.1.experts.{part}")
            assert np.array_equal(stacked[3 * rows : 4 * rows], third)


def test_qwen3_moe_first_layers_may_be_dense(tmp_path: Path) -> None:
    spec = read(tmp_path, "qwen3_moe", mlp_only_layers=[0])
    assert spec.experts is not None
    assert spec.experts.dense_layers == 1


def test_mistral(tmp_path: Path) -> None:
    spec = load_model(write_family(tmp_path, "mistral")).spec
    assert (spec.kinds, spec.attention(1).window) == ((LayerKind.SLIDING,), 100)
    assert read(tmp_path, "mistral", sliding_window=...).attention(0).window == 4_096
    assert read(tmp_path, "mistral", sliding_window=None).kinds == (LayerKind.FULL,)


def test_gemma3(tmp_path: Path) -> None:
    spec = load_model(write_family(tmp_path, "gemma3")).spec
    assert (spec.activation, spec.qk_norm, spec.post_norms) == (Activation.GELU_TANH, True, True)
    assert spec.layer_kinds == (LayerKind.SLIDING, LayerKind.FULL)
    local, full = spec.attention(0), spec.attention(1)
    assert (local.window, local.rope_theta, local.rope_scaling) == (100, 1e4, None)
    assert (full.window, full.rope_theta, full.rope_scaling) == (0, 1e6, LinearScaling(8.0))
    assert local.scale == full.scale == float(np.float32(48**-0.5))
    assert spec.embed_scale == float(np.float32(212**0.5))
    assert (spec.final_softcap, spec.score_softcap, spec.layer_scalar) == (0.0, 0.0, False)


def test_gemma3_old_spelling_says_the_same(tmp_path: Path) -> None:
    new = read(tmp_path, "gemma3")
    old = read(
        tmp_path,
        "gemma3",
        rope_parameters=...,
        layer_types=...,
        sliding_window_pattern=2,
        rope_theta=1e6,
        rope_local_base_freq=1e4,
        rope_scaling={"rope_type": "linear", "factor": 8.0},
    )
    assert old == new


def test_gemma3_defaults(tmp_path: Path) -> None:
    """What google/gemma-3-4b-it leaves out of its `text_config`."""
    text = {
        "hidden_size": 2_560,
        "intermediate_size": 10_240,
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1_024,
    }
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gemma3", "text_config": text}))
    spec = read_spec(tmp_path / "config.json")
    assert (spec.heads, spec.kv_heads, spec.head_dim, spec.vocab) == (8, 4, 256, 262_208)
    assert spec.layer_kinds.count(LayerKind.FULL) == 5
    assert (spec.rope_theta, spec.rope_scaling, spec.tied_embeddings) == (1e6, LinearScaling(8.0), True)


@pytest.mark.parametrize(("preset", "head"), [("gemma4", 128), ("gemma4_wide", 512)])
def test_gemma4(tmp_path: Path, preset: str, head: int) -> None:
    spec = load_model(write_family(tmp_path, preset)).spec
    local, full = spec.attention(0), spec.attention(1)
    assert (local.head_dim, local.kv_heads, local.k_is_v, local.rotary_fraction) == (head // 2, 2, False, 1.0)
    assert (full.head_dim, full.kv_heads, full.k_is_v, full.rotary_fraction) == (head, 1, True, 0.25)
    assert (spec.v_norm, spec.layer_scalar, spec.final_softcap) == (True, True, 30.0)
    assert local.scale == full.scale == 1.0
    weights = load_model(tmp_path).weights()
    assert "layers.1.v" not in weights.names()
    assert [weights.tensor(f"layers.{i}.layer_scalar").tolist() for i in (0, 1)] == [[0.75], [1.125]]


def test_gemma4_kv_heads_of_full_layers_are_their_own_only_with_k_is_v(tmp_path: Path) -> None:
    spec = read(tmp_path, "gemma4", attention_k_eq_v=False)
    assert (spec.kv_heads, spec.k_is_v) == (2, False)


@pytest.mark.parametrize("root", ["model.language_model.", "language_model.model."])
def test_multimodal_file_gives_the_same_text_model(tmp_path: Path, root: str) -> None:
    plain = load_model(write_family(tmp_path / "plain", "gemma3", 2))
    wrapped = tmp_path / "wrapped"
    wrapped.mkdir()
    config = json.loads((tmp_path / "plain" / "config.json").read_text())
    (wrapped / "config.json").write_text(json.dumps({"model_type": "gemma3", "text_config": config}))
    tensors = family_tensors(PRESETS["gemma3"], plain.spec, 2)
    renamed = {name.replace("model.", root, 1): ("F32", values) for name, values in tensors.items()}
    tower = "vision_tower.a.weight" if root.startswith("language") else "model.vision_tower.a.weight"
    renamed[tower] = ("F32", np.ones(3, dtype=np.float32))
    write_safetensors(wrapped / "model.safetensors", renamed)
    assert load_model(wrapped).weights().digest() == plain.weights().digest()


@pytest.mark.parametrize(
    ("family", "changes", "named"),
    [
        ("qwen2", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "yarn"),
        ("qwen2", {"hidden_act": "gelu"}, "gelu"),
        ("qwen2", {"layer_types": ["full_attention", "linear_attention"]}, "linear_attention"),
        ("qwen2", {"layer_types": ["full_attention", "sliding_attention"]}, "no sliding_window"),
        ("qwen2", {"quantization_config": {"quant_method": "awq"}}, "quantization_config"),
        ("qwen3", {"attention_bias": True}, "attention_bias"),
        ("qwen3_moe", {"norm_topk_prob": False}, "norm_topk_prob"),
        ("qwen3_moe", {"norm_topk_prob": ...}, "norm_topk_prob"),
        ("qwen3_moe", {"decoder_sparse_step": 2}, "decoder_sparse_step"),
        ("qwen3_moe", {"mlp_only_layers": [1]}, "mlp_only_layers"),
        ("mistral", {"layer_types": ["full_attention"] * 2}, "layer_types"),
        ("gemma3", {"hidden_activation": "gelu"}, "hidden_activation"),
        ("gemma3", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ("gemma3", {"attention_bias": True}, "attention_bias"),
        ("gemma3", {"rope_parameters": {"full_attention": {"rope_type": "dynamic"}}}, "dynamic"),
        ("gemma3", {"rope_parameters": {"full_attention": {"partial_rotary_factor": 0.5}}}, "partial_rotary"),
        ("gemma4", {"hidden_size_per_layer_input": 256}, "per-layer embeddings"),
        ("gemma4", {"hidden_size_per_layer_input": ...}, "per-layer embeddings"),
        ("gemma4", {"num_kv_shared_layers": 1}, "share a KV cache"),
        ("gemma4", {"enable_moe_block": True}, "enable_moe_block"),
        ("gemma4", {"use_double_wide_mlp": True}, "use_double_wide_mlp"),
        ("gemma4", {"use_bidirectional_attention": "all"}, "use_bidirectional_attention"),
        ("gemma4", {"layer_types": ["full_attention", "sliding_attention"]}, "last layer"),
        (
            "gemma4",
            {"rope_parameters": {"full_attention": {"rope_type": "default", "partial_rotary_factor": 0.25}}},
            "partial_rotary_factor",
        ),
    ],
)
def test_unsupported_feature_is_named(
    tmp_path: Path, family: str, changes: dict[str, object], named: str
) -> None:
    with pytest.raises(UnsupportedModel, match=named) as refusal:
        read(tmp_path, family, **changes)
    assert refusal.value.code == "T333"


def test_gemma4_rope_defaults(tmp_path: Path) -> None:
    assert read(tmp_path, "gemma4", rope_parameters=...) == read(tmp_path, "gemma4")
    rope = {"full_attention": GEMMA4_FULL_ROPE | {"factor": 4.0}, "sliding_attention": {"rope_theta": 1e4}}
    assert read(tmp_path, "gemma4", rope_parameters=rope).rope_scaling == LinearScaling(4.0)


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [("query_pre_attn_scalar", 0, "query_pre_attn_scalar"), ("sliding_window", 0, r"sliding\.window")],
)
def test_absurd_gemma3_value(tmp_path: Path, field: str, value: int, named: str) -> None:
    with pytest.raises(InputError, match=named) as refusal:
        read(tmp_path, "gemma3", **{field: value})
    assert refusal.value.code == "T342"


def test_missing_expert_is_named(tmp_path: Path) -> None:
    write_family(tmp_path, "qwen3_moe")
    config = json.loads((tmp_path / "config.json").read_text()) | {"num_experts": 9}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=r"mlp\.gate\.weight|experts\.8\.") as refusal:
        load_model(tmp_path).weights()
    assert refusal.value.code == "T345"
