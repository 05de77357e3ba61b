"""config.json to ModelSpec: defaults, both spellings of RoPE scaling, and each refusal by name."""

import json
from pathlib import Path

import pytest
from tests.models import TINY_D128, TINY_KV3, config, write_llama

from ticktrue.errors import InputError, UnsupportedModel
from ticktrue.model import LinearScaling, Llama3Scaling, ModelSpec, load_model
from ticktrue.model.huggingface import read_config

LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8_192,
}


def read(
    tmp_path: Path, changes: dict[str, object], generation: dict[str, object] | None = None
) -> ModelSpec:
    fields = {k: v for k, v in (config(TINY_KV3) | changes).items() if v is not ...}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    if generation is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    return read_config(tmp_path)


def test_reads_a_written_model(tmp_path: Path) -> None:
    spec = load_model(write_llama(tmp_path / "tiny", shape=TINY_D128)).spec
    assert (spec.name, spec.layers, spec.hidden, spec.ffn, spec.vocab) == ("tiny", 2, 250, 330, 487)
    assert (spec.heads, spec.kv_heads, spec.head_dim) == (4, 2, 128)
    assert (spec.bos, spec.eos, spec.tied_embeddings) == ((0,), (1,), True)


def test_defaults(tmp_path: Path) -> None:
    spec = read(
        tmp_path,
        {
            "num_key_value_heads": ...,
            "head_dim": ...,
            "hidden_size": 576,
            "rope_theta": ...,
            "bos_token_id": None,
        },
    )
    assert (spec.kv_heads, spec.head_dim, spec.rope_theta, spec.bos) == (9, 64, 10_000.0, ())


def test_generation_config_names_the_ends(tmp_path: Path) -> None:
    assert read(tmp_path, {}, {"eos_token_id": [1, 7]}).eos == (1, 7)
    assert read(tmp_path, {}, {"do_sample": True}).eos == (1,)


@pytest.mark.parametrize(
    ("changes", "scaling"),
    [
        ({"rope_scaling": None}, None),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, LinearScaling(2.0)),
        ({"rope_scaling": {"rope_type": "llama3", **LLAMA3}}, Llama3Scaling(8.0, 1.0, 4.0, 8_192)),
        (
            {"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, **LLAMA3}},
            Llama3Scaling(8.0, 1.0, 4.0, 8_192),
        ),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}, None),
    ],
)
def test_rope_scaling(tmp_path: Path, changes: dict[str, object], scaling: object) -> None:
    spec = read(tmp_path, changes)
    assert spec.rope_scaling == scaling
    assert spec.rope_theta == (5e5 if "rope_parameters" in changes else 1e4)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "yarn"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "dynamic"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config"),
        ({"sliding_window": 4_096}, "sliding_window"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.25}}, "partial_rotary_factor"),
        ({"rope_interleaved": True}, "rope_interleaved"),
        ({"attention_bias": True}, "attention_bias"),
        ({"mlp_bias": True}, "mlp_bias"),
    ],
)
def test_unsupported_feature_is_named(tmp_path: Path, changes: dict[str, object], named: str) -> None:
    with pytest.raises(UnsupportedModel, match=named) as refusal:
        read(tmp_path, changes)
    assert refusal.value.code == "T333"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"hidden_size": ...}, "hidden_size"),
        ({"hidden_size": "big"}, "hidden_size"),
        ({"num_hidden_layers": 2.5}, "num_hidden_layers"),
        ({"model_type": ...}, "model_type"),
        ({"rope_scaling": {"type": "linear"}}, "factor"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "low_freq_factor"),
    ],
)
def test_missing_or_mistyped_field_is_named(tmp_path: Path, changes: dict[str, object], named: str) -> None:
    with pytest.raises(InputError, match=named) as refusal:
        read(tmp_path, changes)
    assert refusal.value.code == "T341"


def test_other_family_is_refused_whatever_else_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "phi3"}')
    with pytest.raises(UnsupportedModel, match="phi3"):
        read_config(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"model_type": "llama"}', "\xff"])
def test_broken_config_is_one_clear_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError) as refusal:
        read_config(tmp_path)
    assert (refusal.value.code, refusal.value.where) == ("T341", str(tmp_path / "config.json"))


def test_directory_without_config(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"config\.json") as refusal:
        load_model(tmp_path)
    assert refusal.value.code == "T341"


@pytest.mark.parametrize("heads", [0, -3])
def test_no_heads_is_an_absurd_value_not_a_division(tmp_path: Path, heads: int) -> None:
    with pytest.raises(InputError) as refusal:
        read(tmp_path, {"num_attention_heads": heads, "head_dim": ..., "num_key_value_heads": ...})
    assert refusal.value.code == "T342"
