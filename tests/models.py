"""Test models: seeded random Llamas written as Hugging Face directories, the same bytes on every machine."""

import json
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ticktrue.model import DEFAULT_MODEL, Family, ModelSpec, default_cache_dir, fetch
from ticktrue.model.bf16 import to_bf16

if TYPE_CHECKING:
    import gguf

BOS, EOS = 0, 1
SPECIALS = ("<|bos|>", "<|eos|>")


@dataclass(frozen=True, slots=True)
class LlamaShape:
    """Shape and scale of a random Llama; `scale` multiplies the spread of the logits (1 gives about 3)."""

    layers: int = 2
    hidden: int = 218
    heads: int = 9
    kv_heads: int = 3
    head_dim: int = 64
    ffn: int = 346
    vocab: int = 509
    scale: float = 1.0
    tied: bool = False
    rope_theta: float = 10_000.0
    rms_eps: float = 1e-5
    max_positions: int = 32_768


# Sizes that 6, 8 and 16 do not divide, each past one 160-value tile and ending inside another.
TINY_KV3 = LlamaShape()
TINY_D128 = LlamaShape(hidden=250, heads=4, kv_heads=2, head_dim=128, ffn=330, vocab=487, tied=True)
TINY_KV2 = LlamaShape(hidden=202, heads=4, kv_heads=2, head_dim=64, ffn=338, vocab=499)


SPEC = ModelSpec(
    family=Family.LLAMA,
    name="t",
    layers=2,
    hidden=218,
    heads=9,
    kv_heads=3,
    head_dim=64,
    ffn=346,
    vocab=509,
    rope_theta=10_000.0,
    rms_eps=1e-5,
    max_positions=2_048,
    eos=(1,),
)


def write_llama(
    directory: Path, seed: int = 0, shape: LlamaShape = TINY_KV3, dtype: str = "bf16", **changes: float
) -> Path:
    """Writes config.json, model.safetensors and tokenizer.json of a random Llama; gives the directory.

    Args:
        directory: made where it does not exist.
        seed: of the weights; same seed and shape, same bytes.
        shape: a preset.
        dtype: of the matrices in the file, "bf16" or "f32" (norms are float32 in both).
        changes: fields of `shape` to replace, e.g. layers=1.
    """
    shape = replace(shape, **changes)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config(shape), indent=1, sort_keys=True))
    tensors = random_tensors(shape, seed)
    stored = {name: _stored(name, values, dtype) for name, values in tensors.items()}
    write_safetensors(directory / "model.safetensors", stored)
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer(shape.vocab), ensure_ascii=True))
    return directory


def config(shape: LlamaShape) -> dict[str, object]:
    """config.json of a `LlamaForCausalLM`."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": shape.layers,
        "hidden_size": shape.hidden,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "intermediate_size": shape.ffn,
        "vocab_size": shape.vocab,
        "rope_theta": shape.rope_theta,
        "rms_norm_eps": shape.rms_eps,
        "max_position_embeddings": shape.max_positions,
        "tie_word_embeddings": shape.tied,
        "attention_bias": False,
        "mlp_bias": False,
        "hidden_act": "silu",
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "torch_dtype": "bfloat16",
    }


def random_tensors(shape: LlamaShape, seed: int) -> dict[str, npt.NDArray[np.float32]]:
    """float32 weights by Hugging Face name, spread so that every block moves the residual and logits differ.

    The draws are integers of the bit generator and one float32 product each, so no library version or CPU
    changes a byte.
    """
    bits = np.random.PCG64(seed)
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    hidden_std, head_std = shape.hidden**-0.5, 3.0 * shape.scale * shape.hidden**-0.5

    def norm() -> npt.NDArray[np.float32]:
        return np.float32(1) + _normal(bits, (shape.hidden,), 0.1)

    tensors = {"model.embed_tokens.weight": _normal(bits, (shape.vocab, shape.hidden), head_std)}
    for layer in range(shape.layers):
        at = f"model.layers.{layer}."
        tensors |= {
            at + "input_layernorm.weight": norm(),
            at + "self_attn.q_proj.weight": _normal(bits, (queries, shape.hidden), 1.4 * hidden_std),
            at + "self_attn.k_proj.weight": _normal(bits, (keys, shape.hidden), 1.4 * hidden_std),
            at + "self_attn.v_proj.weight": _normal(bits, (keys, shape.hidden), hidden_std),
            at + "self_attn.o_proj.weight": _normal(bits, (shape.hidden, queries), queries**-0.5),
            at + "post_attention_layernorm.weight": norm(),
            at + "mlp.gate_proj.weight": _normal(bits, (shape.ffn, shape.hidden), hidden_std),
            at + "mlp.up_proj.weight": _normal(bits, (shape.ffn, shape.hidden), hidden_std),
            at + "mlp.down_proj.weight": _normal(bits, (shape.hidden, shape.ffn), shape.ffn**-0.5),
        }
    tensors["model.norm.weight"] = norm()
    if not shape.tied:
        tensors["lm_head.weight"] = _normal(bits, (shape.vocab, shape.hidden), head_std)
    return tensors


def write_safetensors(path: Path, tensors: dict[str, tuple[str, npt.NDArray[np.generic]]]) -> None:
    """Writes (dtype name, array) pairs in the given order as a safetensors file."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (kind, array) in tensors.items():
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    fresh = path.with_suffix(".new")  # never cut off a file that a test still has mapped
    with fresh.open("wb") as file:
        file.write(struct.pack("<Q", len(head)) + head)
        for _, array in tensors.values():
            file.write(np.ascontiguousarray(array).tobytes())
    fresh.replace(path)


def tokenizer(vocab: int) -> dict[str, object]:
    """tokenizer.json of a byte-level BPE with `vocab` entries: 2 specials, 256 bytes, then short merges."""
    tokens = [*SPECIALS, *byte_alphabet()]
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    pairs = [("Ġ", letter) for letter in letters] + list(product(letters, letters))
    merges = pairs[: max(0, vocab - len(tokens))]
    tokens += [left + right for left, right in merges]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False}
            | {"normalized": False, "special": True}
            for i, text in enumerate(SPECIALS)
        ],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: i for i, token in enumerate(tokens[:vocab])},
            "merges": [list(pair) for pair in merges],
        },
    }


def byte_alphabet() -> list[str]:
    """The printable character GPT-2's byte-level BPE writes for each byte, in byte order."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    spare = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(spare)) for byte in range(256)]


def _normal(bits: np.random.PCG64, shape: tuple[int, ...], std: float) -> npt.NDArray[np.float32]:
    """Near-normal float32: the sum of four 16-bit integers, centred (exact), times one scale."""
    count = int(np.prod(shape))
    quarters = bits.random_raw(count).astype("<u8").view("<u2").reshape(count, 4)
    centred = quarters.astype(np.int64).sum(axis=1) - 2 * 65_535
    unit = (65_536**2 * 4 / 12) ** 0.5
    return (centred.astype(np.float32) * np.float32(std / unit)).reshape(shape)


def _stored(name: str, values: npt.NDArray[np.float32], dtype: str) -> tuple[str, npt.NDArray[np.generic]]:
    if dtype == "bf16" and values.ndim == 2:
        return "BF16", to_bf16(values, name)
    return "F32", values


def smollm2() -> Path:
    """The default model's GGUF, fetched once into $TICKTRUE_TEST_MODELS or the user's cache (slow tests)."""
    return registry_file(DEFAULT_MODEL)


def registry_file(name: str) -> Path:
    """The file of a registry model, fetched once into $TICKTRUE_TEST_MODELS or the user's cache (slow tests)."""
    named = os.environ.get("TICKTRUE_TEST_MODELS")
    return fetch(name, Path(named) if named else default_cache_dir(os.environ))


def write_gguf(
    path: Path,
    seed: int = 0,
    shape: LlamaShape = TINY_KV2,
    kinds: Mapping[str, str] = MappingProxyType({}),
    **values: object,
) -> Path:
    """Writes the random Llama of `write_llama` as a GGUF, by the `gguf` package's writer; gives the path.

    Args:
        path: of the file.
        seed: of the weights.
        shape: a preset; block types need rows that fill whole blocks.
        kinds: block type by part of the GGUF name ("attn_q": "Q8_0"), F32 for the others; "" fits all.
        values: metadata to add or replace, dots written as two underscores.
    """
    import gguf
    from gguf.quants import quantize

    writer = gguf.GGUFWriter(path, "llama")
    metadata = gguf_metadata(shape) | {key.replace("__", "."): value for key, value in values.items()}
    for key, value in metadata.items():
        _add_value(writer, key, value)
    for name, array in random_tensors(shape, seed).items():
        stored, rows = gguf_name(name), array
        if stored.endswith(("attn_q.weight", "attn_k.weight")):
            rows = permute(array, shape.heads if "attn_q" in stored else shape.kv_heads)
        kind = (
            next((kind for part, kind in kinds.items() if part in stored), "F32") if array.ndim > 1 else "F32"
        )
        block = gguf.GGMLQuantizationType[kind]
        writer.add_tensor(stored, quantize(rows, block), raw_dtype=block)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def permute(rows: npt.NDArray[np.float32], heads: int) -> npt.NDArray[np.float32]:
    """Rows of q or k as llama.cpp's converter stores them (`LlamaModel.permute`)."""
    return rows.reshape(heads, 2, -1, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


def gguf_metadata(shape: LlamaShape) -> dict[str, object]:
    """Metadata as llama.cpp's converter writes it for a SmolLM."""
    model = tokenizer(shape.vocab)["model"]
    tokens = list(model["vocab"])  # type: ignore[index]
    return {
        "general.name": "tiny",
        "llama.block_count": shape.layers,
        "llama.context_length": shape.max_positions,
        "llama.embedding_length": shape.hidden,
        "llama.feed_forward_length": shape.ffn,
        "llama.attention.head_count": shape.heads,
        "llama.attention.head_count_kv": shape.kv_heads,
        "llama.attention.key_length": shape.head_dim,
        "llama.attention.value_length": shape.head_dim,
        "llama.attention.layer_norm_rms_epsilon": shape.rms_eps,
        "llama.rope.freq_base": shape.rope_theta,
        "llama.rope.dimension_count": shape.head_dim,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if token in SPECIALS else 1 for token in tokens],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in model["merges"]],  # type: ignore[index]
        "tokenizer.ggml.bos_token_id": BOS,
        "tokenizer.ggml.eos_token_id": EOS,
        "tokenizer.ggml.add_bos_token": False,
    }


def gguf_name(name: str) -> str:
    """The GGUF name of a tensor with a Hugging Face name."""
    parts = {
        "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
        "model.layers.": "blk.", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
        "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    }  # fmt: skip
    for old, new in parts.items():
        name = name.replace(old, new)
    return name


def _add_value(writer: "gguf.GGUFWriter", key: str, value: object) -> None:
    match value:
        case bool():
            writer.add_bool(key, value)
        case int():
            writer.add_uint32(key, value)
        case float():
            writer.add_float32(key, value)
        case str():
            writer.add_string(key, value)
        case list():
            writer.add_array(key, value)
