"""Test models: seeded random Llamas written as Hugging Face directories, the same bytes on every machine."""

import json
import struct
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ticktrue.model.bf16 import to_bf16

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


def shape_fields(shape: LlamaShape) -> dict[str, object]:
    """The fields of a shape, for test ids and messages."""
    return asdict(shape)
