"""A GGUF file as a model: metadata to ModelSpec, its tensor names, and Llama's permuted q and k rows."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt

from ticktrue.errors import InputError, UnsupportedModel
from ticktrue.model.dequantize import check_kind, vector_float32
from ticktrue.model.family import Family, family_of
from ticktrue.model.gguf_file import GgufArray, GgufFile
from ticktrue.model.naming import Place, Take
from ticktrue.model.spec import (
    Activation,
    Experts,
    FactorScaling,
    LayerKind,
    LinearScaling,
    ModelSpec,
    RopeScaling,
    SlidingAttention,
)

_GEMMA3_PATTERN = 6
_GEMMA3_27B_LAYERS = 62

_PARTS = {
    "attn_norm": "attn_norm.weight",
    "q": "attn_q.weight",
    "k": "attn_k.weight",
    "v": "attn_v.weight",
    "o": "attn_output.weight",
    "q_bias": "attn_q.bias",
    "k_bias": "attn_k.bias",
    "v_bias": "attn_v.bias",
    "q_norm": "attn_q_norm.weight",
    "k_norm": "attn_k_norm.weight",
    "post_attn_norm": "post_attention_norm.weight",
    "ffn_norm": "ffn_norm.weight",
    "gate": "ffn_gate.weight",
    "up": "ffn_up.weight",
    "down": "ffn_down.weight",
    "post_ffn_norm": "post_ffw_norm.weight",
    "router": "ffn_gate_inp.weight",
}
_EXPERTS = {
    "experts.gate": "ffn_gate_exps.weight",
    "experts.up": "ffn_up_exps.weight",
    "experts.down": "ffn_down_exps.weight",
}
_WHOLE = {"embed": "token_embd.weight", "final_norm": "output_norm.weight", "lm_head": "output.weight"}
_ROPE_FACTORS = "rope_freqs.weight"

# Metadata that would change the computation; zero (or absent) in every model that is read.
_REFUSED = (
    "attention.scale",
    "attention.clamp_kqv",
    "attn_logit_softcapping",
    "logit_scale",
    "embedding_scale",
    "residual_scale",
    "expert_shared_count",
    "expert_group_count",
)
# Refused too, except in the families that have them.
_OWN = {
    "expert_count": frozenset({Family.QWEN3_MOE}),
    "attention.sliding_window": frozenset({Family.GEMMA3}),
    "final_logit_softcapping": frozenset({Family.GEMMA3}),
}
_READ = frozenset({Family.LLAMA, Family.QWEN2, Family.QWEN3, Family.QWEN3_MOE, Family.GEMMA3})


class GgufNaming:
    """Names of a GGUF; a Llama's q and k rows are stored with rotary pairs adjacent and are brought back.

    A Gemma 3 file stores norm weights with their +1, so nothing is added (llama.cpp `Gemma3Model.modify_tensors`).
    """

    __slots__ = ("_spec",)

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec

    def place(self, canonical: str) -> Place:
        """Where a canonical tensor lies."""
        if canonical in _WHOLE:
            return Place((_WHOLE[canonical],))
        _, layer, part = canonical.split(".", 2)
        at, experts = f"blk.{layer}.", self._spec.experts
        if experts is not None and part in _EXPERTS:
            rows = self._spec.hidden if part == "experts.down" else experts.ffn
            return Place((at + _EXPERTS[part],), Take(experts.count, rows, 0, rows))
        heads = {"q": self._spec.heads, "k": self._spec.kv_heads}.get(part)
        if heads is None or self._spec.family != Family.LLAMA:
            return Place((at + _PARTS[part],))
        return Place((at + _PARTS[part],), rows=partial(unpermute, heads=heads))

    def ignored(self, stored: str) -> bool:
        """Whether a tensor is used elsewhere: the RoPE divisors are part of the spec."""
        return stored == _ROPE_FACTORS


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
    if family not in _READ:
        raise UnsupportedModel(
            f"family {family} is not read from GGUF; expected one of: {', '.join(sorted(_READ))}",
            where=where,
            hint="give the model as a Hugging Face directory",
        )
    _refuse_features(file, kind, family)
    hidden, heads = file.get(f"{kind}.embedding_length", int), _uniform(file, f"{kind}.attention.head_count")
    key = f"{kind}.attention.head_count_kv"
    head_dim = file.get(f"{kind}.attention.key_length", int, hidden // max(heads, 1))
    for other in ("attention.value_length", "rope.dimension_count"):
        if (found := file.get(f"{kind}.{other}", int, head_dim)) != head_dim:
            raise UnsupportedModel(
                f"{other} = {found} differs from the head size {head_dim}", code="T333", where=where
            )
    spec = ModelSpec(
        family=family,
        name=file.get("general.name", str, file.path.stem),
        layers=file.get(f"{kind}.block_count", int),
        hidden=hidden,
        heads=heads,
        kv_heads=_uniform(file, key) if key in file.metadata else heads,
        head_dim=head_dim,
        ffn=_ffn(file, kind, family),
        vocab=_vocab(file),
        rope_theta=file.get(f"{kind}.rope.freq_base", float, 10_000.0),
        rms_eps=file.get(f"{kind}.attention.layer_norm_rms_epsilon", float),
        max_positions=file.get(f"{kind}.context_length", int),
        rope_scaling=_scaling(file, kind),
        tied_embeddings=_WHOLE["lm_head"] not in file.tensors,
        bos=_ids(file, "bos"),
        eos=_ids(file, "eos", "eot"),
        attention_bias=family == Family.QWEN2,
        qk_norm=family in {Family.QWEN3, Family.QWEN3_MOE, Family.GEMMA3},
        experts=_experts(file, kind) if family == Family.QWEN3_MOE else None,
    )
    return _gemma3(file, kind, spec) if family == Family.GEMMA3 else spec


def _ffn(file: GgufFile, kind: str, family: Family) -> int:
    """Width of the feed-forward block; converters of mixtures may leave it out, as no layer has one."""
    key = f"{kind}.feed_forward_length"
    if family == Family.QWEN3_MOE and key not in file.metadata:
        return file.get(f"{kind}.expert_feed_forward_length", int)
    return _uniform(file, key)


def _experts(file: GgufFile, kind: str) -> Experts:
    return Experts(
        count=file.get(f"{kind}.expert_count", int),
        per_token=file.get(f"{kind}.expert_used_count", int),
        ffn=file.get(f"{kind}.expert_feed_forward_length", int),
    )


def _gemma3(file: GgufFile, kind: str, spec: ModelSpec) -> ModelSpec:
    """What a Gemma 3 has beyond the common fields, most of it assumed by llama.cpp rather than stored.

    Every sixth layer is full, the others turn with base 10,000 and no scaling; scores are scaled by
    1 / sqrt(head size), in the 27B (62 layers) by 1 / sqrt(hidden / heads).

    Source: llama.cpp `src/models/gemma3.cpp` (before 2026 `src/llama-model.cpp`, case LLM_ARCH_GEMMA3).
    """
    pattern = file.get(f"{kind}.attention.sliding_window_pattern", int, _GEMMA3_PATTERN)
    if pattern < 1:
        raise InputError(
            f"{kind}.attention.sliding_window_pattern must be at least 1, found {pattern}",
            code="T342",
            where=str(file.path),
        )
    kinds = tuple(
        LayerKind.SLIDING if (layer + 1) % pattern else LayerKind.FULL for layer in range(spec.layers)
    )
    sliding = SlidingAttention(
        window=file.get(f"{kind}.attention.sliding_window", int),
        kv_heads=spec.kv_heads,
        head_dim=spec.head_dim,
        rope_theta=file.get(f"{kind}.rope.freq_base_swa", float, 10_000.0),
    )
    slides = LayerKind.SLIDING in kinds
    scalar = spec.hidden // spec.heads if spec.layers == _GEMMA3_27B_LAYERS else spec.head_dim
    return replace(
        spec,
        activation=Activation.GELU_TANH,
        post_norms=True,
        embed_scale=math.sqrt(spec.hidden),
        query_scale=1.0 / math.sqrt(scalar),
        final_softcap=file.get(f"{kind}.final_logit_softcapping", float, 0.0),
        layer_kinds=kinds,
        sliding=sliding if slides else None,
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


def _refuse_features(file: GgufFile, kind: str, family: Family) -> None:
    for feature in (*_REFUSED, *(name for name, owners in _OWN.items() if family not in owners)):
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
