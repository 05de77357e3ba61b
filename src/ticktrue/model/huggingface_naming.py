"""Names of the canonical tensors in the safetensors files of each family."""

from collections.abc import Iterable

from ticktrue.model.family import Family
from ticktrue.model.naming import Place, Take
from ticktrue.model.spec import Experts, ModelSpec

_PARTS = {
    "attn_norm": "input_layernorm.weight",
    "q": "self_attn.q_proj.weight",
    "k": "self_attn.k_proj.weight",
    "v": "self_attn.v_proj.weight",
    "o": "self_attn.o_proj.weight",
    "q_bias": "self_attn.q_proj.bias",
    "k_bias": "self_attn.k_proj.bias",
    "v_bias": "self_attn.v_proj.bias",
    "q_norm": "self_attn.q_norm.weight",
    "k_norm": "self_attn.k_norm.weight",
    "ffn_norm": "post_attention_layernorm.weight",
    "gate": "mlp.gate_proj.weight",
    "up": "mlp.up_proj.weight",
    "down": "mlp.down_proj.weight",
    "router": "mlp.gate.weight",
}
_FOUR_NORMS = {
    "post_attn_norm": "post_attention_layernorm.weight",
    "ffn_norm": "pre_feedforward_layernorm.weight",
    "post_ffn_norm": "post_feedforward_layernorm.weight",
    "layer_scalar": "layer_scalar",
}
_EMBED = "embed_tokens.weight"
# Where the text model stands: alone, or in a multimodal file of the newer or the older layout.
_ROOTS = ("model.", "model.language_model.", "language_model.model.")
_HEADS = ("lm_head.weight", "language_model.lm_head.weight")
# Other towers of a multimodal file.
_BESIDE = (
    "vision_tower.",
    "multi_modal_projector.",
    "embed_vision.",
    "audio_tower.",
    "embed_audio.",
)


class HuggingFaceNaming:
    """Names of a family's tensors; rows are in our order already.

    Args:
        spec: the model.
        stored: names in the file; they decide between the layouts that a family can have.
    """

    __slots__ = ("_fused", "_head", "_multimodal", "_parts", "_plus_one", "_root", "_spec")

    def __init__(self, spec: ModelSpec, stored: Iterable[str]) -> None:
        names = frozenset(stored)
        self._spec = spec
        self._root = next((root for root in _ROOTS if root + _EMBED in names), _ROOTS[0])
        self._head = next((head for head in _HEADS if head in names), _HEADS[0])
        self._parts = _PARTS | _FOUR_NORMS if spec.post_norms else _PARTS
        self._plus_one = spec.family == Family.GEMMA3
        self._multimodal = self._root != _ROOTS[0]
        self._fused = any(name.endswith(".mlp.experts.gate_up_proj") for name in names)

    def place(self, canonical: str) -> Place:
        """Where a canonical tensor lies."""
        if canonical == "embed":
            return Place((self._root + _EMBED,))
        if canonical == "lm_head":
            return Place((self._head,))
        if canonical == "final_norm":
            return Place((self._root + "norm.weight",), plus_one=self._plus_one)
        _, layer, part = canonical.split(".", 2)
        at = f"{self._root}layers.{layer}."
        if part.startswith("experts.") and self._spec.experts is not None:
            return self._experts(at + "mlp.experts.", part.removeprefix("experts."), self._spec.experts)
        return Place((at + self._parts[part],), plus_one=self._plus_one and part.endswith("norm"))

    def ignored(self, stored: str) -> bool:
        """Whether a tensor is not needed: old exports store RoPE frequencies; other towers of a multimodal file."""
        return stored.endswith("rotary_emb.inv_freq") or (
            self._multimodal and stored.removeprefix("model.").startswith(_BESIDE)
        )

    def _experts(self, at: str, part: str, experts: Experts) -> Place:
        """One tensor per expert, or all in one: [experts, gate rows then up rows, in], [experts, hidden, ffn]."""
        count, ffn, hidden = experts.count, experts.ffn, self._spec.hidden
        if not self._fused:
            return Place(tuple(f"{at}{expert}.{part}_proj.weight" for expert in range(count)))
        if part == "down":
            return Place((at + "down_proj",), Take(count, hidden, 0, hidden))
        return Place((at + "gate_up_proj",), Take(count, 2 * ffn, 0 if part == "gate" else ffn, ffn))
