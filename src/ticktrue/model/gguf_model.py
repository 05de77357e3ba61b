"""A GGUF file as a model: metadata to ModelSpec, its tensor names, and Llama's permuted q and k rows."""

from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt

from ticktrue.errors import InputError, UnsupportedModel
from ticktrue.model.dequantize import check_kind, vector_float32
from ticktrue.model.gguf_file import GgufArray, GgufFile
from ticktrue.model.spec import FactorScaling, LinearScaling, ModelSpec, RopeScaling, family_of

_PARTS = {
    "attn_norm": "attn_norm",
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "o": "attn_output",
    "ffn_norm": "ffn_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}
_WHOLE = {"embed": "token_embd.weight", "final_norm": "output_norm.weight", "lm_head": "output.weight"}
_ROPE_FACTORS = "rope_freqs.weight"

# Metadata that would change the computation; zero (or absent) in every plain Llama.
_REFUSED = (
    "expert_count",
    "attention.sliding_window",
    "attention.scale",
    "attention.clamp_kqv",
    "logit_scale",
    "embedding_scale",
    "residual_scale",
)


class GgufNaming:
    """Names of a Llama GGUF; q and k rows are stored with rotary pairs adjacent and are brought back."""

    __slots__ = ("_spec",)

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec

    def stored_name(self, canonical: str) -> str:
        """The name in the file."""
        if canonical in _WHOLE:
            return _WHOLE[canonical]
        _, layer, part = canonical.split(".")
        return f"blk.{layer}.{_PARTS[part]}.weight"

    def ignored(self, stored: str) -> bool:
        """Whether a tensor is used elsewhere: the RoPE divisors are part of the spec."""
        return stored == _ROPE_FACTORS

    def rows(self, canonical: str) -> Callable[[npt.NDArray[np.uint8]], npt.NDArray[np.uint8]] | None:
        """How to bring the file's rows into the Hugging Face order, or None where they are."""
        part = canonical.rsplit(".", 1)[-1]
        heads = {"q": self._spec.heads, "k": self._spec.kv_heads}.get(part)
        return None if heads is None else partial(unpermute, heads=heads)


def unpermute(rows: npt.NDArray[np.uint8], heads: int) -> npt.NDArray[np.uint8]:
    """Rows of a Llama q or k matrix, from the GGUF order (rotary pairs adjacent) to (i, i + d/2).

    Works on whole rows, so on quantised bytes as well as on values.

    Source: `LlamaModel.permute` in llama.cpp's `convert_hf_to_gguf.py`, inverted.
    """
    pairs = rows.reshape(heads, -1, 2, rows.shape[-1])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)


def read_metadata(file: GgufFile) -> ModelSpec:
    """The ModelSpec that a GGUF file's metadata describes.

    Raises:
        InputError: T341 for a missing field or one of another type, T342 for an absurd value.
        UnsupportedModel: T330 for a family, T333 for a feature, each by name.
    """
    where = str(file.path)
    kind = file.get("general.architecture", str)
    family = family_of(kind, where)
    _refuse_features(file, kind)
    hidden, heads = file.get(f"{kind}.embedding_length", int), _uniform(file, f"{kind}.attention.head_count")
    key = f"{kind}.attention.head_count_kv"
    head_dim = file.get(f"{kind}.attention.key_length", int, hidden // max(heads, 1))
    for other in ("attention.value_length", "rope.dimension_count"):
        if (found := file.get(f"{kind}.{other}", int, head_dim)) != head_dim:
            raise UnsupportedModel(
                f"{other} = {found} differs from the head size {head_dim}", code="T333", where=where
            )
    return ModelSpec(
        family=family,
        name=file.get("general.name", str, file.path.stem),
        layers=file.get(f"{kind}.block_count", int),
        hidden=hidden,
        heads=heads,
        kv_heads=_uniform(file, key) if key in file.metadata else heads,
        head_dim=head_dim,
        ffn=_uniform(file, f"{kind}.feed_forward_length"),
        vocab=_vocab(file),
        rope_theta=file.get(f"{kind}.rope.freq_base", float, 10_000.0),
        rms_eps=file.get(f"{kind}.attention.layer_norm_rms_epsilon", float),
        max_positions=file.get(f"{kind}.context_length", int),
        rope_scaling=_scaling(file, kind),
        tied_embeddings=_WHOLE["lm_head"] not in file.tensors,
        bos=_ids(file, "bos"),
        eos=_ids(file, "eos", "eot"),
    )


def _vocab(file: GgufFile) -> int:
    """Rows of the embedding; `vocab_size` is optional and sometimes wrong."""
    embedding = file.tensors.get(_WHOLE["embed"])
    if embedding is None:
        raise InputError(f"tensor {_WHOLE['embed']!r} is missing", code="T345", where=str(file.path))
    return embedding.shape[0]


def _uniform(file: GgufFile, key: str) -> int:
    """The one value of a number that may be stored once or per layer."""
    if not isinstance(file.metadata.get(key), GgufArray):
        return file.get(key, int)
    values = set(file.integers(key))
    if len(values) != 1:
        raise UnsupportedModel(
            f"{key} differs from layer to layer: {sorted(values)}", code="T333", where=str(file.path)
        )
    return values.pop()


def _ids(file: GgufFile, *kinds: str) -> tuple[int, ...]:
    keys = [f"tokenizer.ggml.{kind}_token_id" for kind in kinds]
    return tuple(dict.fromkeys(file.get(key, int) for key in keys if key in file.metadata))


def _refuse_features(file: GgufFile, kind: str) -> None:
    for feature in _REFUSED:
        value = file.metadata.get(f"{kind}.{feature}")
        if value:
            raise UnsupportedModel(f"{feature} = {value} is not supported", code="T333", where=str(file.path))


def _scaling(file: GgufFile, kind: str) -> RopeScaling | None:
    where = str(file.path)
    factors = file.tensors.get(_ROPE_FACTORS)
    if factors is not None:
        check_kind(factors, where)
        values = vector_float32(file.raw(_ROPE_FACTORS), factors, _ROPE_FACTORS)
        return FactorScaling(tuple(float(value) for value in values.reshape(-1)))
    scaling = file.get(f"{kind}.rope.scaling.type", str, "none")
    if scaling == "none":
        return None
    if scaling != "linear":
        raise UnsupportedModel(
            f"RoPE scaling {scaling!r} is not supported; supported: none, linear", code="T333", where=where
        )
    return LinearScaling(file.get(f"{kind}.rope.scaling.factor", float))
