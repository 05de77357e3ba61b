"""Parts of a config.json that several families share: RoPE, token ids, kinds of layers, refusals by name."""

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from ticktrue.errors import InputError, UnsupportedModel
from ticktrue.model.spec import LayerKind, LinearScaling, Llama3Scaling, RopeScaling, YarnScaling

S = TypeVar("S", bound=msgspec.Struct)

_KINDS = {"full_attention": LayerKind.FULL, "sliding_attention": LayerKind.SLIDING}


class Rope(msgspec.Struct, frozen=True):
    """`rope_parameters` (new spelling) or `rope_scaling` (old)."""

    rope_type: str | None = None
    type: str | None = None
    rope_theta: float | None = None
    factor: float | None = None
    low_freq_factor: float | None = None
    high_freq_factor: float | None = None
    original_max_position_embeddings: int | None = None
    partial_rotary_factor: float | None = None
    beta_fast: float | None = None
    beta_slow: float | None = None

    @property
    def kind(self) -> str:
        """The name of the scheme."""
        return self.rope_type or self.type or "default"


class Config(msgspec.Struct, frozen=True):
    """The fields that decide something in every family; the many others of a config.json are passed over."""

    model_type: str
    num_hidden_layers: int
    hidden_size: int
    intermediate_size: int
    max_position_embeddings: int
    vocab_size: int
    rms_norm_eps: float
    num_attention_heads: int
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    quantization_config: object = None
    bos_token_id: int | list[int] | None = None
    eos_token_id: int | list[int] | None = None

    @property
    def kv_heads(self) -> int:
        """KV heads; as many as heads where the file does not say."""
        return self.num_attention_heads if self.num_key_value_heads is None else self.num_key_value_heads

    @property
    def size_of_head(self) -> int:
        """Elements of a head; the hidden size divided by heads where the file does not say."""
        if self.head_dim is None:
            return self.hidden_size // max(self.num_attention_heads, 1)
        return self.head_dim


class Plain(Config, frozen=True):
    """Families whose layers have one RoPE and a SiLU gate: Llama, Mistral, Qwen."""

    hidden_act: str = "silu"
    rope_theta: float | None = None
    rope_scaling: Rope | None = None
    rope_parameters: Rope | None = None
    partial_rotary_factor: float | None = None
    rope_interleaved: bool = False

    @property
    def rope(self) -> Rope:
        """RoPE in either spelling."""
        return self.rope_parameters or self.rope_scaling or Rope()

    @property
    def theta(self) -> float:
        """The base of the RoPE frequencies."""
        return first(self.rope.rope_theta, self.rope_theta, 10_000.0)


def decode(data: bytes | msgspec.Raw, kind: type[S], path: Path) -> S:
    """The fields of `kind` in a JSON text.

    Raises:
        InputError: T341, naming the field.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
        raise InputError(f"{path.name} is not valid: {problem}", code="T341", where=str(path)) from None


def first(*candidates: float | None) -> float:
    """The first number that is given."""
    return next(value for value in candidates if value is not None)


def ids(value: int | list[int] | None) -> tuple[int, ...]:
    """Token ids, given as one, several or none."""
    if value is None:
        return ()
    return (value,) if isinstance(value, int) else tuple(value)


def layer_kinds(names: list[str], path: Path) -> tuple[LayerKind, ...]:
    """`layer_types` of a config.

    Raises:
        UnsupportedModel: T333, for a type of attention that is not known.
    """
    for name in names:
        if name not in _KINDS:
            raise UnsupportedModel(
                f"layer type {name!r} is not supported; supported: {', '.join(_KINDS)}",
                code="T333",
                where=str(path),
            )
    return tuple(_KINDS[name] for name in names)


def refuse(found: Mapping[str, bool], path: Path) -> None:
    """Refuse the first feature that is present.

    Raises:
        UnsupportedModel: T333, naming it.
    """
    for feature, present in found.items():
        if present:
            raise UnsupportedModel(f"{feature} is not supported in this family", code="T333", where=str(path))


def refuse_plain(config: Plain, path: Path) -> None:
    """Refuse what no family of the plain kind may ask for.

    Raises:
        UnsupportedModel: T333, naming it.
    """
    rotary = first(config.rope.partial_rotary_factor, config.partial_rotary_factor, 1.0)
    found = {
        f"hidden_act = {config.hidden_act!r}": config.hidden_act != "silu",
        "quantization_config": config.quantization_config is not None,
        f"partial_rotary_factor = {rotary}": rotary != 1.0,
        "rope_interleaved": config.rope_interleaved,
        "attention_bias": config.attention_bias,
        "mlp_bias": config.mlp_bias,
    }
    refuse(found, path)


def scaling(rope: Rope, path: Path) -> RopeScaling | None:
    """RoPE scaling of a config; "proportional" (Gemma 4) divides by its factor as "linear" does.

    Raises:
        InputError: T341, for a number that is missing.
        UnsupportedModel: T333, naming the scheme.
    """
    kind = rope.kind
    if kind == "default" or (kind == "proportional" and rope.factor in {None, 1.0}):
        return None
    if kind not in {"linear", "llama3", "proportional"}:
        raise UnsupportedModel(
            f"RoPE scaling {kind!r} is not supported; supported: default, linear, llama3",
            code="T333",
            where=str(path),
        )
    if rope.factor is None:
        raise InputError("rope_scaling.factor is missing", code="T341", where=str(path))
    if kind != "llama3":
        return LinearScaling(rope.factor)
    low, high, original = rope.low_freq_factor, rope.high_freq_factor, rope.original_max_position_embeddings
    if low is None or high is None or original is None:
        raise InputError(
            "rope_scaling llama3 needs low_freq_factor, high_freq_factor, original_max_position_embeddings",
            code="T341",
            where=str(path),
        )
    return Llama3Scaling(rope.factor, low, high, original)


def yarn(rope: Rope, path: Path) -> YarnScaling | None:
    """YaRN of a family that is read for planning.

    Raises:
        InputError: T341, for a number that is missing.
        UnsupportedModel: T333, for another scheme.
    """
    if rope.kind == "default":
        return None
    refuse({f"RoPE scaling {rope.kind!r}": rope.kind != "yarn"}, path)
    if rope.factor is None or rope.original_max_position_embeddings is None:
        raise InputError(
            "rope_scaling yarn needs factor and original_max_position_embeddings",
            code="T341",
            where=str(path),
        )
    return YarnScaling(
        rope.factor,
        rope.original_max_position_embeddings,
        first(rope.beta_fast, 32.0),
        first(rope.beta_slow, 1.0),
    )
