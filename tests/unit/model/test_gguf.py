"""GGUF: metadata, Llama's permuted rows, and every damage as one clear error with a code."""

import contextlib
import json
import random
import struct
from pathlib import Path

import numpy as np
import pytest
from tests.models import TINY_KV2, TINY_KV3, gguf_metadata, permute, write_gguf, write_llama

from ticktrue.errors import InputError, UnsupportedModel
from ticktrue.model import FactorScaling, LinearScaling, load_model, load_weights
from ticktrue.model.gguf_file import GgufFile
from ticktrue.model.gguf_model import unpermute

SMALL = {"layers": 1, "hidden": 64, "ffn": 64, "vocab": 260, "heads": 4, "kv_heads": 2, "head_dim": 16}


def small(path: Path, **values: object) -> Path:
    return write_gguf(path / "m.gguf", shape=type(TINY_KV2)(**SMALL), **values)


@pytest.mark.parametrize("shape", [TINY_KV3, TINY_KV2], ids=["kv3", "kv2"])
def test_gguf_and_safetensors_of_one_model_are_equal(tmp_path: Path, shape: object) -> None:
    """Written by two writers; float32 in both, so that the row order alone is tested."""
    one = load_model(write_gguf(tmp_path / "m.gguf", shape=shape))
    other = load_model(write_llama(tmp_path / "hf", shape=shape, dtype="f32"))
    assert one.spec.digest() == other.spec.digest()
    for name in other.weights().names():
        assert np.array_equal(one.weights().tensor(name), other.weights().tensor(name)), name
    assert one.weights().digest() == other.weights().digest()


def test_permuted_rows_are_really_permuted(tmp_path: Path) -> None:
    """Guards the test above: without the un-permutation q and k would differ, and nothing else."""
    model = load_model(write_gguf(tmp_path / "m.gguf"))
    file = GgufFile(tmp_path / "m.gguf")
    weights = model.weights()
    differ = set()
    for part, stored in {"q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_output"}.items():
        values = file.raw(f"blk.0.{stored}.weight").view(np.float32)
        as_stored = ((values.view(np.uint32) + 0x8000) >> 16).astype(np.uint16)
        if (weights.tensor(f"layers.0.{part}").reshape(-1) != as_stored).mean() > 0.1:
            differ.add(part)
    assert differ == {"q", "k"}


def test_unpermute_inverts_the_converter() -> None:
    rows = np.arange(6 * 64, dtype=np.float32).reshape(-1, 4)
    assert np.array_equal(unpermute(permute(rows, 3).view(np.uint8), 3).view(np.float32), rows)


def test_optional_metadata_has_defaults(tmp_path: Path) -> None:
    spec = load_model(
        small(tmp_path, llama__rope__scaling__type="linear", llama__rope__scaling__factor=4.0)
    ).spec
    assert spec.rope_scaling == LinearScaling(4.0)
    assert (spec.name, spec.vocab, spec.tied_embeddings) == ("tiny", 260, False)


def test_ends_of_text(tmp_path: Path) -> None:
    assert load_model(small(tmp_path, tokenizer__ggml__eot_token_id=5)).spec.eos == (1, 5)


def test_rope_divisors_are_read(tmp_path: Path) -> None:
    import gguf

    shape = type(TINY_KV2)(**SMALL)
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_uint32("llama.block_count", 1)
    for key, value in gguf_metadata(shape).items():
        if key.startswith("llama.") and key != "llama.block_count":
            (writer.add_uint32 if isinstance(value, int) else writer.add_float32)(key, value)
    divisors = np.linspace(1, 8, 8, dtype=np.float32)
    writer.add_tensor("rope_freqs.weight", divisors)
    writer.add_tensor("token_embd.weight", np.zeros((260, 64), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert load_model(tmp_path / "m.gguf").spec.rope_scaling == FactorScaling(tuple(map(float, divisors)))


@pytest.mark.parametrize(
    ("values", "code", "named"),
    [
        ({"general__architecture": "gemma2"}, "T330", "gemma2"),
        ({"general__architecture": "gemma4"}, "T330", "gemma4"),
        ({"general__architecture": "rwkv7"}, "T330", "rwkv7"),
        ({"llama__expert_count": 8}, "T333", "expert_count"),
        ({"llama__attention__sliding_window": 4096}, "T333", "sliding_window"),
        ({"llama__rope__dimension_count": 8}, "T333", "dimension_count"),
        ({"llama__attention__value_length": 8}, "T333", "value_length"),
        ({"llama__rope__scaling__type": "yarn"}, "T333", "yarn"),
        ({"llama__attention__head_count": [4, 8]}, "T333", "layer to layer"),
    ],
)
def test_unsupported_is_named(tmp_path: Path, values: dict[str, object], code: str, named: str) -> None:
    path = small(tmp_path, **{k: v for k, v in values.items() if k != "general__architecture"})
    if "general__architecture" in values:
        name = str(values["general__architecture"]).encode()
        old = struct.pack("<Q", 20) + b"general.architecture" + struct.pack("<IQ", 8, 5) + b"llama"
        new = struct.pack("<Q", 20) + b"general.architecture" + struct.pack("<IQ", 8, len(name)) + name
        path.write_bytes(path.read_bytes().replace(old, new))
    with pytest.raises(UnsupportedModel, match=named) as refusal:
        load_model(path)
    assert refusal.value.code == code


@pytest.mark.parametrize(
    ("values", "code", "named"),
    [
        ({"llama__block_count": "two"}, "T341", "block_count"),
        ({"llama__rope__freq_base": 10_000}, "T341", "freq_base"),
        ({"llama__attention__head_count": ["4"]}, "T341", "head_count"),
        ({"llama__block_count": 0}, "T342", "layers"),
        ({"llama__attention__head_count": 0, "llama__attention__key_length": 16}, "T342", "heads"),
        ({"llama__attention__head_count": 3}, "T342", "heads"),
        ({"llama__rope__freq_base": float("nan")}, "T342", "rope_theta"),
        ({"llama__context_length": 0}, "T342", "max_positions"),
        ({"tokenizer__ggml__eos_token_id": 9_999}, "T342", "eos"),
        ({"general__alignment": 48}, "T343", "power of two"),
    ],
)
def test_bad_metadata_is_named(tmp_path: Path, values: dict[str, object], code: str, named: str) -> None:
    with pytest.raises(InputError, match=named) as refusal:
        load_model(small(tmp_path, **values))
    assert refusal.value.code == code


def test_missing_metadata_is_named(tmp_path: Path) -> None:
    path = small(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"llama.feed_forward_length", b"llama.feed_forward_lengtx"))
    with pytest.raises(InputError, match="feed_forward_length") as refusal:
        load_model(path)
    assert refusal.value.code == "T341"


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    path = small(tmp_path)
    whole = path.read_bytes()
    draw = random.Random(0)
    for size in {*range(40), *(draw.randrange(len(whole)) for _ in range(150)), len(whole) - 1}:
        path.write_bytes(whole[:size])
        with pytest.raises(InputError) as refusal:
            load_model(path)
        assert refusal.value.code == "T343", size
        assert refusal.value.where == str(path)


def test_corruption_never_escapes_as_another_error(tmp_path: Path) -> None:
    path = small(tmp_path)
    whole = path.read_bytes()
    start = GgufFile(path).tensors["token_embd.weight"].offset
    draw = random.Random(1)
    for _ in range(300):
        damaged = bytearray(whole)
        at = draw.randrange(start)
        damaged[at : at + 4] = draw.randbytes(draw.choice((1, 4)))
        path.write_bytes(damaged)
        with contextlib.suppress(InputError):  # any other exception fails the test
            model = load_model(path)
            load_weights(model)
            model.tokenizer()


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (b"", "truncated"),
        (b"GGML" + b"\0" * 60, "magic"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "version"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 62), "truncated"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 62, 0), "truncated"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 63), "truncated"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"\xff" + b"\0" * 99, "UTF-8"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<I", 77), "unknown type 77"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<IIQ", 9, 9, 1), "unknown type 9"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<IIQ", 9, 8, 1 << 60), "truncated"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<IIQ", 9, 4, 1 << 60), "truncated"),
        (
            b"GGUF"
            + struct.pack("<IQQ", 3, 0, 2)
            + (struct.pack("<Q", 1) + b"k" + struct.pack("<II", 4, 1)) * 2,
            "twice",
        ),
        (b"GGUF" + struct.pack("<IQQQ", 3, 1, 0, 1) + b"t" + struct.pack("<I", 9), "9 dimensions"),
        (
            b"GGUF" + struct.pack("<IQQQ", 3, 1, 0, 1) + b"t" + struct.pack("<IQIQ", 1, 33, 8, 0),
            "do not fill blocks",
        ),
        (
            b"GGUF" + struct.pack("<IQQQ", 3, 1, 0, 1) + b"t" + struct.pack("<IQIQ", 1, 1 << 60, 0, 0),
            "truncated",
        ),
        (
            b"GGUF" + struct.pack("<IQQQ", 3, 1, 0, 1) + b"t" + struct.pack("<IQIQ", 1, 1, 0, 3) + b"\0" * 99,
            "multiple",
        ),
    ],
    ids=range(17),
)
def test_malformed_file_is_one_clear_error(tmp_path: Path, data: bytes, named: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    with pytest.raises(InputError, match=named) as refusal:
        GgufFile(path)
    assert refusal.value.code == "T343"


def test_missing_and_misshapen_tensors_are_named(tmp_path: Path) -> None:
    path = small(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"blk.0.ffn_up.weight", b"blk.0.ffn_u_.weight"))
    with pytest.raises(InputError, match="ffn_up") as refusal:
        load_model(path).weights()
    assert refusal.value.code == "T345"
    with pytest.raises(InputError, match=r"must have shape \(96, 64\), found \(64, 64\)") as refusal:
        load_model(small(tmp_path, llama__feed_forward_length=96)).weights()
    assert refusal.value.code == "T345"


def test_unknown_tensor_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=r"blk\.1\.") as refusal:
        load_model(write_gguf(tmp_path / "m.gguf", llama__block_count=1)).weights()
    assert refusal.value.code == "T333"


def test_nan_in_the_file_is_named_by_tensor_and_index(tmp_path: Path) -> None:
    path = small(tmp_path)
    at = GgufFile(path).tensors["blk.0.ffn_up.weight"]
    data = bytearray(path.read_bytes())
    struct.pack_into("<f", data, at.offset + 4 * 70, float("nan"))
    path.write_bytes(data)
    with pytest.raises(InputError, match="nan") as refusal:
        load_weights(load_model(path))
    assert (refusal.value.code, refusal.value.where) == ("T346", "layers.0.up[70]")


def test_directory_of_json_is_not_mistaken(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "llama"}))
    with pytest.raises(InputError, match="magic") as refusal:
        load_model(path)
    assert refusal.value.code == "T343"
