"""Each block type against its formula of numerics row 1, written out value by value."""

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.models import LlamaShape, write_gguf

from ticktrue.errors import InputError, UnsupportedModel
from ticktrue.model import load_model
from ticktrue.model.bf16 import to_bf16
from ticktrue.model.dequantize import check_kind, matrix_bf16, vector_float32
from ticktrue.model.gguf_file import _BLOCK_TYPES
from ticktrue.model.tensor_file import StoredTensor

F = np.float32


def half(data: bytes, at: int) -> np.float32:
    return F(struct.unpack_from("<e", data, at)[0])


def nibbles(data: bytes, at: int) -> list[int]:
    """16 low nibbles, then 16 high ones."""
    return [byte & 15 for byte in data[at : at + 16]] + [byte >> 4 for byte in data[at : at + 16]]


def fifth_bits(data: bytes, at: int) -> list[int]:
    (word,) = struct.unpack_from("<I", data, at)
    return [(word >> i & 1) << 4 for i in range(32)]


def q8_0(b: bytes) -> Iterator[np.float32]:
    return (half(b, 0) * F(q) for q in struct.unpack_from("<32b", b, 2))


def q4_0(b: bytes) -> Iterator[np.float32]:
    return (half(b, 0) * F(q - 8) for q in nibbles(b, 2))


def q4_1(b: bytes) -> Iterator[np.float32]:
    return (half(b, 0) * F(q) + half(b, 2) for q in nibbles(b, 4))


def q5_0(b: bytes) -> Iterator[np.float32]:
    return (half(b, 0) * F((q | h) - 16) for q, h in zip(nibbles(b, 6), fifth_bits(b, 2), strict=True))


def q5_1(b: bytes) -> Iterator[np.float32]:
    pairs = zip(nibbles(b, 8), fifth_bits(b, 4), strict=True)
    return (half(b, 0) * F(q | h) + half(b, 2) for q, h in pairs)


def scale_and_min(s: bytes, j: int) -> tuple[int, int]:
    """Six-bit scale and minimum of sub-block j. Source: ggml-quants.c `get_scale_min_k4`."""
    if j < 4:
        return s[j] & 63, s[j + 4] & 63
    return s[j + 4] & 15 | s[j - 4] >> 6 << 4, s[j + 4] >> 4 | s[j] >> 6 << 4


def q4_k(b: bytes) -> Iterator[np.float32]:
    for j in range(8):
        scale, low = scale_and_min(b[4:16], j)
        for i in range(32):
            q = b[16 + j // 2 * 32 + i] >> (4 * (j % 2)) & 15
            yield (half(b, 0) * F(scale)) * F(q) - half(b, 2) * F(low)


def q5_k(b: bytes) -> Iterator[np.float32]:
    for j in range(8):
        scale, low = scale_and_min(b[4:16], j)
        for i in range(32):
            q = b[48 + j // 2 * 32 + i] >> (4 * (j % 2)) & 15 | (b[16 + i] >> j & 1) << 4
            yield (half(b, 0) * F(scale)) * F(q) - half(b, 2) * F(low)


def q6_k(b: bytes) -> Iterator[np.float32]:
    scales = struct.unpack_from("<16b", b, 192)
    for i in range(256):
        part, rest = divmod(i, 128)
        quarter, l = divmod(rest, 32)
        low = b[64 * part + l + 32 * (quarter % 2)] >> (4 * (quarter // 2)) & 15
        high = b[128 + 32 * part + l] >> (2 * quarter) & 3
        yield (half(b, 208) * F(scales[i // 16])) * F((low | high << 4) - 32)


FORMULAS: dict[str, Callable[[bytes], Iterator[np.float32]]] = {
    "Q8_0": q8_0, "Q4_0": q4_0, "Q4_1": q4_1, "Q5_0": q5_0, "Q5_1": q5_1,
    "Q4_K": q4_k, "Q5_K": q5_k, "Q6_K": q6_k,
}  # fmt: skip
SCALES = {"Q6_K": (208,), "Q8_0": (0,), "Q4_0": (0,), "Q5_0": (0,)}  # the others: 0 and 2
SIZES = {block.name: (block.values, block.size) for block in _BLOCK_TYPES.values()}


def random_blocks(kind: str, count: int) -> bytes:
    draw = np.random.Generator(np.random.PCG64(len(kind) + count))
    blocks = draw.integers(0, 256, (count, SIZES[kind][1]), np.uint8)
    for at in SCALES.get(kind, (0, 2)):  # finite scales, of both signs
        blocks[:, at : at + 2] = draw.normal(0, 0.02, (count, 1)).astype(np.float16).view(np.uint8)
    return blocks.tobytes()


@pytest.mark.parametrize("kind", FORMULAS)
def test_block_type_follows_its_formula(kind: str) -> None:
    values, size = SIZES[kind]
    data = random_blocks(kind, 24)
    want = np.array([v for i in range(24) for v in FORMULAS[kind](data[i * size : (i + 1) * size])], F)
    raw = np.frombuffer(data, np.uint8)
    as_vector = vector_float32(raw, StoredTensor("t", kind, (24 * values,), 0, len(data)), "t")
    assert np.array_equal(as_vector, want)
    as_matrix = matrix_bf16(raw, StoredTensor("t", kind, (8, 3 * values), 0, len(data)), "t")
    assert np.array_equal(as_matrix, to_bf16(want, "t").reshape(8, -1))


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])  # it cannot write K types
def test_block_type_written_by_the_gguf_package_is_read(tmp_path: Path, kind: str) -> None:
    shape = LlamaShape(layers=1, hidden=64, heads=2, kv_heads=1, head_dim=32, ffn=96, vocab=260)
    exact = load_model(write_gguf(tmp_path / "f32.gguf", shape=shape)).weights()
    rough = load_model(write_gguf(tmp_path / "q.gguf", shape=shape, kinds={"": kind})).weights()
    for name in ("embed", "layers.0.q", "layers.0.k", "layers.0.down"):
        a, b = (w.tensor(name).astype(np.uint32) << 16 for w in (exact, rough))
        error = np.abs(a.view(F) - b.view(F)).max() / np.abs(a.view(F)).max()
        assert 0 < error < (0.02 if kind == "Q8_0" else 0.2), name


def test_float_kinds() -> None:
    values = np.array([[1.0, -2.5, 3.140625, 65504.0]], F)
    for kind, stored in {
        "F32": values,
        "F16": values.astype(np.float16),
        "BF16": to_bf16(values, "t"),
    }.items():
        raw = np.ascontiguousarray(stored).view(np.uint8).reshape(-1)
        assert np.array_equal(
            matrix_bf16(raw, StoredTensor("t", kind, (1, 4), 0, raw.size), "t"), to_bf16(values, "t")
        )
    raw = to_bf16(values, "t").view(np.uint8).reshape(-1)
    assert vector_float32(raw, StoredTensor("t", "BF16", (4,), 0, 8), "t").tolist() == [
        1.0,
        -2.5,
        3.140625,
        65536.0,
    ]


def test_unaligned_bytes_are_read() -> None:
    raw = np.concatenate(
        [np.zeros(1, np.uint8), to_bf16(np.ones((2, 2), F), "t").view(np.uint8).reshape(-1)]
    )[1:]
    bits = matrix_bf16(raw, StoredTensor("t", "BF16", (2, 2), 1, 8), "t")
    assert bits.flags.aligned
    assert (bits == 0x3F80).all()


@pytest.mark.parametrize("scale", [float("nan"), float("inf")])
@pytest.mark.parametrize("kind", FORMULAS)
def test_scale_that_is_not_finite_is_refused_by_place(kind: str, scale: float) -> None:
    values, size = SIZES[kind]
    data = bytearray(random_blocks(kind, 6))
    struct.pack_into("<e", data, 4 * size + SCALES.get(kind, (0, 2))[0], scale)
    with pytest.raises(InputError) as refusal:
        matrix_bf16(
            np.frombuffer(data, np.uint8), StoredTensor("t", kind, (3, 2 * values), 0, len(data)), "up"
        )
    assert refusal.value.code == "T346"
    name, index = refusal.value.where.rstrip("]").split("[")
    assert (name, int(index) // values) == ("up", 4)


@pytest.mark.parametrize(
    ("number", "name"), [(10, "Q2_K"), (16, "IQ2_XXS"), (34, "TQ1_0"), (39, "MXFP4"), (250, "type 250")]
)
def test_other_type_is_refused_by_name(tmp_path: Path, number: int, name: str) -> None:
    path = write_gguf(tmp_path / "m.gguf")
    data = path.read_bytes()
    at = data.index(b"blk.1.ffn_up.weight") + len(b"blk.1.ffn_up.weight") + 4 + 16
    path.write_bytes(data[:at] + struct.pack("<I", number) + data[at + 4 :])
    with pytest.raises(UnsupportedModel, match=rf"'blk\.1\.ffn_up\.weight' has type {name}") as refusal:
        load_model(path).weights()
    assert refusal.value.code == "T331"


def test_check_kind_lists_what_is_supported() -> None:
    with pytest.raises(UnsupportedModel, match="Q4_K, Q5_K, Q6_K") as refusal:
        check_kind(StoredTensor("t", "F64", (1,), 0, 8), "f")
    assert refusal.value.where == "f"
