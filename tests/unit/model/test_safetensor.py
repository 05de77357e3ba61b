"""safetensors: what is read is what was written; every damage is one clear error with a code."""

import contextlib
import json
import random
import struct
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from tests.models import TINY_KV2, write_llama

from ticktrue.errors import InputError, UnsupportedModel
from ticktrue.model import load_model, load_weights
from ticktrue.model.safetensor import SafetensorsFile, open_safetensors


def sealed(header: object, data: bytes = b"\0" * 64) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(
    dtype: str = "F32", shape: tuple[int, ...] = (4, 4), span: tuple[int, int] = (0, 64)
) -> dict[str, object]:
    return {"t": {"dtype": dtype, "shape": list(shape), "data_offsets": list(span)}}


def test_reads_what_the_reference_library_writes(tmp_path: Path) -> None:
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.arange(5, dtype=np.float16)}
    save_file(arrays, tmp_path / "x.safetensors", metadata={"format": "pt"})
    file = SafetensorsFile(tmp_path / "x.safetensors")
    assert set(file.tensors) == {"a", "b"}
    for name, array in arrays.items():
        assert file.tensors[name].shape == array.shape
        assert file.raw(name).tobytes() == array.tobytes()


def test_shards_are_one_set_and_equal_the_single_file(tmp_path: Path) -> None:
    whole = write_llama(tmp_path / "whole", shape=TINY_KV2)
    parts = tmp_path / "parts"
    parts.mkdir()
    (parts / "config.json").write_bytes((whole / "config.json").read_bytes())
    file = SafetensorsFile(whole / "model.safetensors")
    names = sorted(file.tensors)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for shard, members in shards.items():
        header, data = {}, b""
        for name in members:
            raw = file.raw(name).tobytes()
            at = file.tensors[name]
            span = [len(data), len(data) + len(raw)]
            header[name] = {"dtype": at.kind, "shape": at.shape, "data_offsets": span}
            data += raw
        (parts / shard).write_bytes(sealed(header, data))
    index = {"weight_map": {name: shard for shard, members in shards.items() for name in members}}
    (parts / "model.safetensors.index.json").write_text(json.dumps(index))
    assert load_model(parts).weights().digest() == load_model(whole).weights().digest()
    (parts / "b.safetensors").unlink()
    with pytest.raises(InputError, match=r"b\.safetensors") as refusal:
        open_safetensors(parts)
    assert refusal.value.code == "T344"


@pytest.mark.parametrize("shard", ["../x.safetensors", "/etc/passwd", "none.safetensors", ""])
def test_index_cannot_leave_its_directory(tmp_path: Path, shard: str) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"t": shard}}))
    with pytest.raises(InputError) as refusal:
        open_safetensors(tmp_path)
    assert refusal.value.code == "T344"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 7,
        sealed(b"{", b""),
        sealed(b"[]"),
        sealed(b"\xff\xfe"),
        struct.pack("<Q", 1 << 62) + b"{}",
        struct.pack("<Q", 200_000_000) + b"{}",
        sealed({"t": {"dtype": "F32", "shape": [4, 4]}}),
        sealed(entry(span=(0, 65))),
        sealed(entry(span=(0, 1 << 60))),
        sealed(entry(span=(60, 0))),
        sealed(entry(span=(-64, 0))),
        sealed(entry(shape=(4, 5))),
        sealed(entry(shape=(-4, -4))),
        sealed({"t": {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 1e300]}}),
    ],
)
def test_malformed_file_is_one_clear_error(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(data)
    with pytest.raises(InputError) as refusal:
        open_safetensors(tmp_path)
    assert refusal.value.code == "T344"
    assert refusal.value.where == str(tmp_path / "model.safetensors")


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    model = write_llama(tmp_path, shape=TINY_KV2, layers=1, hidden=34, ffn=32, vocab=260)
    whole = (model / "model.safetensors").read_bytes()
    draw = random.Random(0)
    for size in {*range(16), *(draw.randrange(len(whole)) for _ in range(40)), len(whole) - 1}:
        (model / "model.safetensors").write_bytes(whole[:size])
        with pytest.raises(InputError) as refusal:
            load_weights(load_model(model))
        assert refusal.value.code == "T344"


def test_corrupted_header_never_escapes_as_another_error(tmp_path: Path) -> None:
    model = write_llama(tmp_path, shape=TINY_KV2, layers=1, hidden=34, ffn=32, vocab=260)
    whole = (model / "model.safetensors").read_bytes()
    draw = random.Random(1)
    for _ in range(150):
        damaged = bytearray(whole)
        damaged[draw.randrange(2_000)] = draw.randrange(256)
        (model / "model.safetensors").write_bytes(damaged)
        with contextlib.suppress(InputError):  # any other exception fails the test
            load_weights(load_model(model))


def test_pickles_are_not_read(tmp_path: Path) -> None:
    path = write_llama(tmp_path, shape=TINY_KV2) / "model.safetensors"
    path.rename(path.with_name("pytorch_model.bin"))
    with pytest.raises(InputError, match="found neither") as refusal:
        load_model(tmp_path).weights()
    assert refusal.value.code == "T344"
    assert "pickle" in refusal.value.hint


def test_unsupported_number_format_is_named(tmp_path: Path) -> None:
    model = write_llama(tmp_path, shape=TINY_KV2)
    path = model / "model.safetensors"
    path.write_bytes(path.read_bytes().replace(b'"BF16"', b'"E5M2"', 1))
    with pytest.raises(UnsupportedModel, match=r"embed_tokens.*E5M2") as refusal:
        load_model(model).weights()
    assert refusal.value.code == "T331"
