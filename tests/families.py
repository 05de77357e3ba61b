"""Test models of every runnable family but Llama: two layers, seeded, as Hugging Face directories (same bytes everywhere)."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tests.models import BOS, EOS, _add_value, _normal, _stored, gguf_name, tokenizer, write_safetensors

from ticktrue.model import ModelSpec, read_spec
from ticktrue.model.bf16 import from_bf16, to_bf16

Tensors = dict[str, npt.NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Preset:
    """A config.json, and how wide its q norms are (they set the spread of the scores)."""

    config: dict[str, object]
    q_norm: float = 1.4
    q_bias: float = 0.3


# Sizes that 6, 8 and 16 do not divide, each past one 160-value tile and ending inside another (as in tests/models.py).
_COMMON: dict[str, object] = {
    "num_hidden_layers": 2,
    "hidden_size": 202,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "intermediate_size": 338,
    "vocab_size": 499,
    "max_position_embeddings": 32_768,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "attention_bias": False,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "pad_token_id": None,
    "torch_dtype": "bfloat16",
}
_QWEN = _COMMON | {"rope_theta": 1_000_000.0, "use_sliding_window": False}
_TWO_KINDS = {
    "layer_types": ["sliding_attention", "full_attention"],
    "sliding_window": 100,
}  # 100: inside a block of 64
_GEMMA = (
    _COMMON
    | _TWO_KINDS
    | {
        "hidden_size": 212,  # a multiple of the heads, as `transformers` wants of a Gemma 3
        "hidden_activation": "gelu_pytorch_tanh",
        "tie_word_embeddings": True,
    }
)
_GEMMA4 = _GEMMA | {
    "architectures": ["Gemma4ForCausalLM"],
    "model_type": "gemma4_text",
    "attention_k_eq_v": True,
    "global_head_dim": 128,
    "num_global_key_value_heads": 1,
    "final_logit_softcapping": 30.0,
    "hidden_size_per_layer_input": 0,
    "num_kv_shared_layers": 0,
    "enable_moe_block": False,
    "use_double_wide_mlp": False,
    "rope_parameters": {
        "full_attention": {
            "rope_type": "proportional",
            "partial_rotary_factor": 0.25,
            "rope_theta": 1_000_000.0,
        },
        "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
    },
}

PRESETS = {
    "qwen2": Preset(_QWEN | {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}),
    "qwen3": Preset(
        _QWEN | {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 218}
    ),
    "qwen3_moe": Preset(
        _QWEN
        | {
            "architectures": ["Qwen3MoeForCausalLM"],
            "model_type": "qwen3_moe",
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 170,
            "norm_topk_prob": True,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
        }
    ),
    "mistral": Preset(
        _COMMON
        | {
            "architectures": ["MistralForCausalLM"],
            "model_type": "mistral",
            "rope_theta": 10_000.0,
            "sliding_window": 100,
        }
    ),
    "gemma3": Preset(
        _GEMMA
        | {
            "architectures": ["Gemma3ForCausalLM"],
            "model_type": "gemma3_text",
            "query_pre_attn_scalar": 48,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1_000_000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
            },
        }
    ),
    "gemma4": Preset(_GEMMA4, q_norm=0.18),
    # the head sizes of the 31B
    "gemma4_wide": Preset(
        _GEMMA4
        | {
            "hidden_size": 250,
            "num_attention_heads": 2,
            "head_dim": 256,
            "global_head_dim": 512,
            "intermediate_size": 330,
        },
        q_norm=0.09,
    ),
}
FAMILIES = tuple(PRESETS)


def write_family(
    directory: Path, family: str, seed: int = 0, *, fused: bool = False, **changes: object
) -> Path:
    """Writes config.json, model.safetensors and tokenizer.json of a random model; gives the directory.

    `transformers` 5.24 loads it as well.

    Args:
        directory: made where it does not exist.
        family: a key of PRESETS.
        seed: of the weights; same seed and preset, same bytes.
        fused: whether experts are stored as one tensor per layer (`gate_up_proj`, `down_proj`) instead of one each.
        changes: fields of config.json to replace; None removes one.
    """
    preset = PRESETS[family]
    config = {key: value for key, value in (preset.config | changes).items() if value is not None}
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True))
    spec = read_spec(directory / "config.json")
    tensors = family_tensors(preset, spec, seed)
    if fused:
        tensors = fuse_experts(tensors, spec)
    write_safetensors(
        directory / "model.safetensors", {name: _bf16(name, values) for name, values in tensors.items()}
    )
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer(spec.vocab), ensure_ascii=True))
    return directory


def family_tensors(preset: Preset, spec: ModelSpec, seed: int) -> Tensors:
    """float32 weights by Hugging Face name, spread so that every block moves the residual and logits differ."""
    bits = np.random.PCG64(seed)
    # a tied head favours the token that came in: its embedding is kept small beside what the blocks add
    head = 0.2 if spec.tied_embeddings else 3.0
    head_std = head * spec.hidden**-0.5
    tensors = {"model.embed_tokens.weight": _normal(bits, (spec.vocab, spec.hidden), head_std)}
    for layer in range(spec.layers):
        parts = _attention(bits, preset, spec, layer) | _norms(bits, spec) | _feed_forward(bits, spec)
        tensors |= {f"model.layers.{layer}.{name}": values for name, values in parts.items()}
        if spec.layer_scalar:
            tensors[f"model.layers.{layer}.layer_scalar"] = np.array([0.75 + 0.375 * layer], dtype=np.float32)
    tensors["model.norm.weight"] = _norm(bits, spec, spec.hidden, 3.0 / head)
    if not spec.tied_embeddings:
        tensors["lm_head.weight"] = _normal(bits, (spec.vocab, spec.hidden), head_std)
    return tensors


def _norm(bits: np.random.PCG64, spec: ModelSpec, size: int, scale: float = 1.0) -> npt.NDArray[np.float32]:
    """A norm weight near `scale`; Gemma 3 stores it minus 1."""
    weight = np.float32(scale) * (np.float32(1) + _normal(bits, (size,), 0.1))
    return weight - np.float32(1) if spec.family == "gemma3" else weight


def _norms(bits: np.random.PCG64, spec: ModelSpec) -> Tensors:
    names = ["input_layernorm", "post_attention_layernorm"]
    if spec.post_norms:
        names += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
    return {f"{name}.weight": _norm(bits, spec, spec.hidden) for name in names}


def _attention(bits: np.random.PCG64, preset: Preset, spec: ModelSpec, layer: int) -> Tensors:
    at = spec.attention(layer)
    std = spec.hidden**-0.5
    sizes = {"q": at.heads * at.head_dim, "k": at.kv_heads * at.head_dim, "v": at.kv_heads * at.head_dim}
    if at.k_is_v:
        del sizes["v"]
    found: Tensors = {}
    for part, size in sizes.items():
        wide = 1.0 if part == "v" or spec.qk_norm else 1.4
        found[f"self_attn.{part}_proj.weight"] = _normal(bits, (size, spec.hidden), wide * std)
        if spec.attention_bias:
            found[f"self_attn.{part}_proj.bias"] = _normal(bits, (size,), preset.q_bias)
    if spec.qk_norm:
        found["self_attn.q_norm.weight"] = _norm(bits, spec, at.head_dim, preset.q_norm)
        found["self_attn.k_norm.weight"] = _norm(bits, spec, at.head_dim, 1.2)
    found["self_attn.o_proj.weight"] = _normal(bits, (spec.hidden, sizes["q"]), sizes["q"] ** -0.5)
    return found


def _feed_forward(bits: np.random.PCG64, spec: ModelSpec) -> Tensors:
    std = spec.hidden**-0.5
    if spec.experts is None:
        homes, ffn = ["mlp."], spec.ffn
    else:
        homes, ffn = [f"mlp.experts.{i}." for i in range(spec.experts.count)], spec.experts.ffn
    found: Tensors = {}
    if spec.experts is not None:
        found["mlp.gate.weight"] = _normal(bits, (spec.experts.count, spec.hidden), 2.0 * std)
    for home in homes:
        found[f"{home}gate_proj.weight"] = _normal(bits, (ffn, spec.hidden), std)
        found[f"{home}up_proj.weight"] = _normal(bits, (ffn, spec.hidden), std)
        found[f"{home}down_proj.weight"] = _normal(bits, (spec.hidden, ffn), ffn**-0.5)
    return found


def fuse_experts(tensors: Tensors, spec: ModelSpec) -> Tensors:
    """The same weights with each layer's experts in two tensors: gate rows above up rows, and down."""
    assert spec.experts is not None
    found = {name: values for name, values in tensors.items() if ".experts." not in name}
    for layer in range(spec.layers):
        at = f"model.layers.{layer}.mlp.experts."
        each = [
            {part: tensors[f"{at}{i}.{part}_proj.weight"] for part in ("gate", "up", "down")}
            for i in range(spec.experts.count)
        ]
        found[at + "gate_up_proj"] = np.stack([np.concatenate([e["gate"], e["up"]]) for e in each])
        found[at + "down_proj"] = np.stack([e["down"] for e in each])
    return found


def _bf16(name: str, values: npt.NDArray[np.float32]) -> tuple[str, npt.NDArray[np.generic]]:
    """Matrices, stacked ones too, as bfloat16; vectors as float32."""
    if values.ndim == 3:
        kind, flat = _stored(name, values.reshape(-1, values.shape[2]), "bf16")
        return kind, flat.reshape(values.shape)
    return _stored(name, values, "bf16")


def write_family_gguf(path: Path, family: str, seed: int = 0, **metadata: object) -> Path:
    """Writes the random model of `write_family` as a float32 GGUF, by the `gguf` package's writer; gives the path.

    Rows stand as in the Hugging Face files (llama.cpp permutes only the Llama family), Gemma 3's norms hold their +1,
    experts stand in one tensor per layer and part. Metadata to add or replace, dots written as two underscores.
    """
    import gguf

    config = path.with_suffix(".json")
    config.write_text(json.dumps(PRESETS[family].config))
    spec = read_spec(config)
    writer = gguf.GGUFWriter(path, ARCHITECTURES[family])
    values = family_metadata(family, spec) | {k.replace("__", "."): v for k, v in metadata.items()}
    for key, value in values.items():
        if value is not None:
            _add_value(writer, key, value)
    tensors = family_tensors(PRESETS[family], spec, seed)
    for name, array in (fuse_gguf(tensors, spec) if spec.experts else tensors).items():
        rounded = from_bf16(to_bf16(array, name)) if array.ndim > 1 else array
        if spec.family == "gemma3" and name.endswith("norm.weight"):
            rounded = np.float32(1) + array
        writer.add_tensor(family_gguf_name(name, spec), rounded)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


ARCHITECTURES = {"qwen2": "qwen2", "qwen3": "qwen3", "qwen3_moe": "qwen3moe", "gemma3": "gemma3"}


def family_metadata(family: str, spec: ModelSpec) -> dict[str, object]:
    """Metadata as llama.cpp's converter writes it, with what it leaves out left out."""
    kind = ARCHITECTURES[family]
    model = tokenizer(spec.vocab)["model"]
    tokens = list(model["vocab"])  # type: ignore[index]
    found: dict[str, object] = {
        f"{kind}.block_count": spec.layers,
        f"{kind}.context_length": spec.max_positions,
        f"{kind}.embedding_length": spec.hidden,
        f"{kind}.feed_forward_length": spec.ffn,
        f"{kind}.attention.head_count": spec.heads,
        f"{kind}.attention.head_count_kv": spec.kv_heads,
        f"{kind}.attention.key_length": spec.head_dim,
        f"{kind}.attention.value_length": spec.head_dim,
        f"{kind}.attention.layer_norm_rms_epsilon": spec.rms_eps,
        f"{kind}.rope.freq_base": spec.rope_theta,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3, 3] + [1] * (len(tokens) - 2),
        "tokenizer.ggml.merges": [" ".join(pair) for pair in model["merges"]],  # type: ignore[index]
        "tokenizer.ggml.bos_token_id": BOS,
        "tokenizer.ggml.eos_token_id": EOS,
    }
    if spec.experts is not None:
        found |= {
            f"{kind}.expert_count": spec.experts.count,
            f"{kind}.expert_used_count": spec.experts.per_token,
            f"{kind}.expert_feed_forward_length": spec.experts.ffn,
        }
    if spec.sliding is not None:
        found |= {
            f"{kind}.attention.sliding_window": spec.sliding.window,
            f"{kind}.attention.sliding_window_pattern": 2,
            f"{kind}.rope.scaling.type": "linear",
            f"{kind}.rope.scaling.factor": 8.0,
        }
    return found


def fuse_gguf(tensors: Tensors, spec: ModelSpec) -> Tensors:
    """The same weights with each layer's experts in three tensors."""
    assert spec.experts is not None
    found = {name: values for name, values in tensors.items() if ".experts." not in name}
    for layer in range(spec.layers):
        at = f"model.layers.{layer}.mlp.experts."
        for part in ("gate", "up", "down"):
            each = [tensors[f"{at}{i}.{part}_proj.weight"] for i in range(spec.experts.count)]
            found[f"model.layers.{layer}.mlp.{part}_exps.weight"] = np.stack(each)
    return found


def family_gguf_name(name: str, spec: ModelSpec) -> str:
    """The GGUF name of a tensor with a Hugging Face name."""
    parts = {"mlp.gate_exps": "ffn_gate_exps", "mlp.up_exps": "ffn_up_exps", "mlp.down_exps": "ffn_down_exps",
             "mlp.gate.": "ffn_gate_inp.", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}  # fmt: skip
    if spec.post_norms:
        parts |= {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
                  "post_feedforward_layernorm": "post_ffw_norm"}  # fmt: skip
    for old, new in parts.items():
        name = name.replace(old, new)
    return gguf_name(name)
