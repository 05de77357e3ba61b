"""Canonical weights: names, shapes, number formats, read-only, tied head, digest."""

import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.models import TINY_D128, TINY_KV2, TINY_KV3, random_tensors, write_llama

from ticktrue.errors import InputError, UnsupportedModel
from ticktrue.model import canonical_shapes, load_model, load_weights
from ticktrue.model.bf16 import from_bf16, to_bf16
from ticktrue.model.safetensor import SafetensorsFile


def test_names_shapes_and_formats(tmp_path: Path) -> None:
    weights = load_weights(load_model(write_llama(tmp_path, shape=TINY_KV3)))
    assert weights.names()[:4] == ("embed", "layers.0.attn_norm", "layers.0.q", "layers.0.k")
    assert weights.names()[-2:] == ("final_norm", "lm_head")
    assert {name: weights.tensor(name).shape for name in weights.names()} == dict(
        canonical_shapes(weights.spec)
    )
    for name in weights.names():
        array = weights.tensor(name)
        assert array.dtype == (np.float32 if name.endswith("norm") else np.uint16)
        assert not array.flags.writeable
        assert weights.tensor(name) is array


def test_values_are_those_of_the_file_rounded_once(tmp_path: Path) -> None:
    tensors = random_tensors(TINY_KV2, 5)
    for dtype in ("f32", "bf16"):
        weights = load_model(write_llama(tmp_path / dtype, 5, TINY_KV2, dtype)).weights()
        down = tensors["model.layers.1.mlp.down_proj.weight"]
        assert np.array_equal(weights.tensor("layers.1.down"), to_bf16(down, "t"))
        assert np.array_equal(weights.tensor("final_norm"), tensors["model.norm.weight"])


def test_tied_head_is_the_embedding(tmp_path: Path) -> None:
    weights = load_model(write_llama(tmp_path, shape=TINY_D128)).weights()
    assert "lm_head" not in weights.names()
    assert weights.tensor("lm_head") is weights.tensor("embed")


def test_digest_is_of_the_values_not_of_the_file(tmp_path: Path) -> None:
    digests = {
        load_model(write_llama(tmp_path / dtype, dtype=dtype)).weights().digest() for dtype in ("bf16", "f32")
    }
    assert len(digests) == 1
    assert load_model(write_llama(tmp_path / "other", seed=1)).weights().digest() not in digests


@pytest.mark.parametrize("seed", ["0", "1"])
def test_same_bytes_and_digest_in_every_process(tmp_path: Path, seed: str) -> None:
    code = (
        "import sys, hashlib, pathlib; from tests.models import *; from ticktrue.model import *; "
        "d = write_llama(pathlib.Path(sys.argv[1]), 3, TINY_KV2); w = load_model(d).weights(); "
        "print(hashlib.sha256((d/'model.safetensors').read_bytes()).hexdigest()[:16], w.digest()[:16])"
    )
    env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["4269f6de73701d1b", "e18b625764459277"]


def test_progress_counts_every_tensor(tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    model = load_model(write_llama(tmp_path))
    load_weights(model, progress=lambda *step: seen.append(step))
    total = len(model.weights().names())
    assert seen == [("weights", i + 1, total) for i in range(total)]


def test_logits_scale_is_sensible() -> None:
    """Weights keep activations near one, so that argmax is neither a tie nor always the same token."""
    for name, values in random_tensors(TINY_KV3, 0).items():
        if values.ndim == 2 and "embed" not in name and "lm_head" not in name:
            assert 0.9 < values.std() * values.shape[1] ** 0.5 < 1.5, name
            assert abs(float(values.mean())) < 0.01


def test_unknown_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"layers\.9\.q") as refusal:
        load_model(write_llama(tmp_path)).weights().tensor("layers.9.q")
    assert refusal.value.code == "T345"


def test_nan_is_found_when_the_tensor_is_used(tmp_path: Path) -> None:
    path = write_llama(tmp_path) / "model.safetensors"
    at = SafetensorsFile(path).tensors["model.layers.1.self_attn.v_proj.weight"]
    data = bytearray(path.read_bytes())
    struct.pack_into("<H", data, at.offset + 2 * 7, 0x7FC0)
    path.with_suffix(".new").write_bytes(data)
    path.with_suffix(".new").replace(path)
    weights = load_model(tmp_path).weights()
    assert from_bf16(weights.tensor("layers.0.v")).any()
    for use in (lambda: weights.tensor("layers.1.v"), weights.load, weights.digest):
        with pytest.raises(InputError) as refusal:
            use()
        assert (refusal.value.code, refusal.value.where) == ("T346", "layers.1.v[7]")


def test_unexpected_tensor_is_refused(tmp_path: Path) -> None:
    path = write_llama(tmp_path) / "model.safetensors"
    data = path.read_bytes()
    extra = data.replace(b'"model.layers.1.mlp.up_proj.weight"', b'"model.layers.1.mlp.up_proj.biases"')
    path.with_suffix(".new").write_bytes(extra)
    path.with_suffix(".new").replace(path)
    with pytest.raises(InputError, match=r"up_proj\.weight") as missing:
        load_model(tmp_path).weights()
    assert missing.value.code == "T345"
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace('"num_hidden_layers": 2', '"num_hidden_layers": 1'))
    with pytest.raises(UnsupportedModel, match=r"layers\.1\.") as refusal:
        load_model(tmp_path).weights()
    assert refusal.value.code == "T333"
