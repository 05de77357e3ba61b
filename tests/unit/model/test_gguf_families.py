"""GGUF files of Qwen2, Qwen3, Qwen3-MoE and Gemma 3: the same spec and weights as the Hugging Face directory."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.families import ARCHITECTURES, PRESETS, write_family, write_family_gguf

from ticktrue.errors import InputError, UnsupportedModel
from ticktrue.model import LayerKind, LinearScaling, load_model


@pytest.mark.parametrize("family", ARCHITECTURES)
def test_file_and_directory_are_the_same_model(tmp_path: Path, family: str) -> None:
    theirs = load_model(write_family(tmp_path / "hf", family, 4))
    ours = load_model(write_family_gguf(tmp_path / "m.gguf", family, 4))
    # a GGUF of a Gemma 3 has no query_pre_attn_scalar: llama.cpp takes the head size
    expected = replace(theirs.spec, query_scale=64**-0.5) if family == "gemma3" else theirs.spec
    assert replace(ours.spec, name="m") == replace(expected, name="m")
    for fmt in ("bf16", "int8"):
        assert ours.weights().digest(fmt) == theirs.weights().digest(fmt)


def test_gemma3_as_llama_cpp_assumes_it(tmp_path: Path) -> None:
    spec = load_model(write_family_gguf(tmp_path / "m.gguf", "gemma3")).spec
    local, full = spec.attention(0), spec.attention(1)
    assert (local.window, local.rope_theta, local.rope_scaling) == (100, 1e4, None)
    assert (full.window, full.rope_theta, full.rope_scaling) == (0, 1e6, LinearScaling(8.0))
    assert spec.embed_scale == float(np.float32(212**0.5))
    assert spec.query_scale == 0.125


def test_gemma3_of_27b_scales_by_hidden_over_heads(tmp_path: Path) -> None:
    path = write_family_gguf(tmp_path / "m.gguf", "gemma3", gemma3__block_count=62)
    spec = load_model(path).spec
    assert spec.query_scale == float(np.float32((212 // 4) ** -0.5))


def test_gemma3_slides_in_five_of_six_layers_unless_told(tmp_path: Path) -> None:
    path = write_family_gguf(
        tmp_path / "m.gguf", "gemma3", gemma3__block_count=18, gemma3__attention__sliding_window_pattern=None
    )
    kinds = load_model(path).spec.layer_kinds
    assert [i for i, kind in enumerate(kinds) if kind == LayerKind.FULL] == [5, 11, 17]


@pytest.mark.parametrize(
    ("family", "metadata", "error", "code", "named"),
    [
        ("qwen2", {"qwen2__attention__sliding_window": 64}, UnsupportedModel, "T333", "sliding_window"),
        ("qwen3", {"qwen3__expert_count": 8}, UnsupportedModel, "T333", "expert_count"),
        ("qwen3_moe", {"qwen3moe__expert_shared_count": 1}, UnsupportedModel, "T333", "expert_shared_count"),
        ("qwen3_moe", {"qwen3moe__expert_used_count": 9}, InputError, "T342", "per_token"),
        ("gemma3", {"gemma3__attention__sliding_window": None}, InputError, "T341", "sliding_window"),
        ("gemma3", {"gemma3__attention__sliding_window_pattern": 0}, InputError, "T342", "pattern"),
        ("gemma3", {"gemma3__rope__scaling__type": "yarn"}, UnsupportedModel, "T333", "yarn"),
    ],
)
def test_unsupported_or_absurd_is_named(
    tmp_path: Path, family: str, metadata: dict[str, object], error: type[Exception], code: str, named: str
) -> None:
    path = write_family_gguf(tmp_path / "m.gguf", family, **metadata)
    with pytest.raises(error, match=named) as refusal:
        load_model(path)
    assert refusal.value.code == code  # type: ignore[attr-defined]


def test_presets_of_a_gguf_are_those_of_a_directory() -> None:
    assert set(ARCHITECTURES) < set(PRESETS)
