"""What a model is: family, shape and constants, checked before any weight is touched."""

import hashlib
import math
from dataclasses import dataclass, fields
from enum import StrEnum

import msgspec
import numpy as np

from ticktrue.errors import InputError, UnsupportedModel
from ticktrue.model.family import Family

MAX_LAYERS = 4_096
MAX_WIDTH = 1 << 22  # hidden, ffn, heads * head_dim: far above any published model
MAX_HEADS = 4_096
MAX_HEAD_DIM = 4_096
MAX_VOCAB = 1 << 24
MAX_EXPERTS = 1 << 16
MAX_POSITIONS = 1 << 31

SPEC_SCHEMA = "ticktrue/model-spec/v1"

# Not part of the digest: they change neither the graph nor a bit of the logits.
_OUTSIDE_DIGEST = frozenset({"name", "bos", "eos"})

# Fields of the first version count always, later ones only where they say something: a Llama's digest stays what it was.
_ALWAYS_IN_DIGEST = frozenset({"rope_scaling", "tied_embeddings", "attention_bias", "mlp_bias"})


@dataclass(frozen=True, slots=True)
class LinearScaling:
    """Every RoPE frequency divided by `factor`."""

    factor: float


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """RoPE scaling of Llama 3.1: long waves divided by `factor`, short ones kept, a ramp between."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_positions: int


@dataclass(frozen=True, slots=True)
class FactorScaling:
    """One divisor per frequency, as a GGUF stores Llama 3's scaling (`rope_freqs.weight`, float32)."""

    factors: tuple[float, ...]


RopeScaling = LinearScaling | Llama3Scaling | FactorScaling


@dataclass(frozen=True, slots=True)
class YarnScaling:
    """YaRN: long waves divided by `factor`, a ramp by turns over the original context. Known, not run yet."""

    factor: float
    original_max_positions: int
    beta_fast: float
    beta_slow: float


class Activation(StrEnum):
    """The gate of the feed-forward block (numerics row 21)."""

    SILU = "silu"
    GELU_TANH = "gelu_tanh"


class LayerKind(StrEnum):
    """Which of a model's kinds of attention a layer has."""

    FULL = "full"
    SLIDING = "sliding"


@dataclass(frozen=True, slots=True)
class Attention:
    """One kind of attention layer.

    `window` is the number of positions a row sees, its own included; 0: all of them. `rotary_fraction` of the pairs
    turn, the others keep (frequency 0). `k_is_v`: there is no V projection, V is the K projection before its norm.
    `scale` multiplies the scores (numerics row 14), rounded once to float32.
    """

    heads: int
    kv_heads: int
    head_dim: int
    rope_theta: float
    rope_scaling: RopeScaling | None
    rotary_fraction: float
    window: int
    k_is_v: bool
    scale: float

    @property
    def group(self) -> int:
        """Query heads of one KV head."""
        return self.heads // self.kv_heads


@dataclass(frozen=True, slots=True)
class SlidingAttention:
    """What differs in the sliding layers of a model that has them."""

    window: int
    kv_heads: int
    head_dim: int
    rope_theta: float
    rope_scaling: RopeScaling | None = None


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts in place of the feed-forward block.

    `count` experts of `ffn`, `per_token` of them for each token, `shared` of the same size always. `router`: the function of
    the logits; `normalise`: the kept weights are divided by their sum. The first `dense_layers` layers have none.
    """

    count: int
    per_token: int
    ffn: int
    shared: int = 0
    router: str = "softmax"
    normalise: bool = True
    dense_layers: int = 0


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (MLA): ranks of the compressed q and KV, and the sizes of a head's parts."""

    q_rank: int
    kv_rank: int
    nope_dim: int
    rope_dim: int
    v_dim: int


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Shape and constants of one model; every field is checked when the value is made.

    `kv_heads`, `head_dim`, `rope_*`, `k_is_v` are those of the full layers; `attention` gives what a layer has.
    `layer_kinds` is empty where all layers are full. `attention_bias`: q, k and v have biases; `output_bias`: o has one.
    `qk_norm`, `v_norm`: norms of each head (rows 11, 11b); `post_norms`: norms of both blocks' results before they are added.
    `embed_scale`, `query_scale` (0: 1 / sqrt(head_dim)), `score_softcap` and `final_softcap` (0: none) are rounded to float32.
    `rms_eps` is rounded to float32, as it is used (and as a GGUF stores it).

    Raises:
        InputError: T342, naming the field, for a value no model can have.
    """

    family: Family
    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    rope_theta: float
    rms_eps: float
    max_positions: int
    rope_scaling: RopeScaling | None = None
    tied_embeddings: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    bos: tuple[int, ...] = ()
    eos: tuple[int, ...] = ()
    activation: Activation = Activation.SILU
    output_bias: bool = False
    qk_norm: bool = False
    v_norm: bool = False
    post_norms: bool = False
    layer_scalar: bool = False
    sinks: bool = False
    k_is_v: bool = False
    rotary_fraction: float = 1.0
    embed_scale: float = 1.0
    query_scale: float = 0.0
    score_softcap: float = 0.0
    final_softcap: float = 0.0
    gate_limit: float = 0.0
    sliding: SlidingAttention | None = None
    layer_kinds: tuple[LayerKind, ...] = ()
    experts: Experts | None = None
    latent: LatentAttention | None = None
    yarn: YarnScaling | None = None

    def __post_init__(self) -> None:
        for name, most in _LIMITS.items():
            _check_integer(name, getattr(self, name), most)
        _check_shape(self)
        _check_constants(self)
        if self.rope_scaling is not None:
            _check_scaling(self.rope_scaling, self.head_dim)
        _check_kinds(self)
        if self.sliding is not None:
            _check_sliding(self.sliding, self.heads)
        if self.experts is not None:
            _check_experts(self.experts, self.layers)
        if self.latent is not None:
            _check_latent(self.latent, self)
        _check_biases(self)
        _check_tokens(self)

    def kind(self, layer: int) -> LayerKind:
        """The kind of attention of a layer."""
        return self.layer_kinds[layer] if self.layer_kinds else LayerKind.FULL

    @property
    def kinds(self) -> tuple[LayerKind, ...]:
        """The kinds of attention that occur, in a fixed order."""
        present = {self.kind(layer) for layer in range(self.layers)}
        return tuple(k for k in LayerKind if k in present)

    def attention_of(self, kind: LayerKind) -> Attention:
        """Shape and constants of one kind of attention."""
        s = self.sliding if kind == LayerKind.SLIDING else None
        head_dim = s.head_dim if s else self.head_dim
        scale = self.query_scale or 1.0 / math.sqrt(head_dim)
        return Attention(
            heads=self.heads,
            kv_heads=s.kv_heads if s else self.kv_heads,
            head_dim=head_dim,
            rope_theta=s.rope_theta if s else self.rope_theta,
            rope_scaling=s.rope_scaling if s else self.rope_scaling,
            rotary_fraction=1.0 if s else self.rotary_fraction,
            window=s.window if s else 0,
            k_is_v=False if s else self.k_is_v,
            scale=float(np.float32(scale)),
        )

    def attention(self, layer: int) -> Attention:
        """Shape and constants of a layer's attention."""
        return self.attention_of(self.kind(layer))

    def digest(self) -> str:
        """Sha256 of every field that shapes the graph or its numbers (not name, bos, eos)."""
        canonical = {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if f.name not in _OUTSIDE_DIGEST
            and (f.name in _ALWAYS_IN_DIGEST or getattr(self, f.name) != f.default)
        }
        canonical["rope_scaling"] = [type(self.rope_scaling).__name__, self.rope_scaling]
        data = msgspec.json.encode([SPEC_SCHEMA, canonical], order="deterministic")
        return hashlib.sha256(data).hexdigest()


_LIMITS = {
    "layers": MAX_LAYERS,
    "hidden": MAX_WIDTH,
    "heads": MAX_HEADS,
    "kv_heads": MAX_HEADS,
    "head_dim": MAX_HEAD_DIM,
    "ffn": MAX_WIDTH,
    "vocab": MAX_VOCAB,
    "max_positions": MAX_POSITIONS,
}


# Families in which a part has biases; GPT-OSS is known, not run.
_BIASED = {
    "attention_bias": frozenset({Family.QWEN2, Family.GPT_OSS}),
    "output_bias": frozenset({Family.GPT_OSS}),
    "mlp_bias": frozenset({Family.GPT_OSS}),
}

_ROUTERS = ("softmax", "sigmoid")


def _absurd(field: str, expected: str, found: object) -> InputError:
    return InputError(f"{field} must be {expected}, found {found!r}", code="T342", where=field)


def _check_integer(field: str, value: object, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _absurd(field, "an integer", value)
    if not 1 <= value <= most:
        raise _absurd(field, f"in 1..{most:,}", value)


def _check_real(field: str, value: object, above: float) -> None:
    if isinstance(value, bool) or not isinstance(value, float | int):
        raise _absurd(field, "a number", value)
    if not (math.isfinite(value) and value > above):
        raise _absurd(field, f"a finite number above {above:g}", value)


def _check_shape(spec: ModelSpec) -> None:
    for name in ("hidden", "head_dim"):
        if getattr(spec, name) % 2:
            raise _absurd(name, "even", getattr(spec, name))
    if spec.heads % spec.kv_heads:
        raise _absurd("heads", f"a multiple of kv_heads = {spec.kv_heads}", spec.heads)
    if spec.heads * spec.head_dim > MAX_WIDTH:
        raise _absurd("head_dim", f"at most {MAX_WIDTH:,} / heads", spec.head_dim)


def _check_biases(spec: ModelSpec) -> None:
    for name, allowed in _BIASED.items():
        if getattr(spec, name) and spec.family not in allowed:
            raise UnsupportedModel(
                f"{name} is true: biases are not supported in family {spec.family}", code="T333", where=name
            )


def _check_tokens(spec: ModelSpec) -> None:
    for name in ("bos", "eos"):
        for token in getattr(spec, name):
            if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < spec.vocab:
                raise _absurd(name, f"token ids in 0..{spec.vocab - 1}", token)


def _check_constants(spec: ModelSpec) -> None:
    """Numbers that are rounded to float32 as they are used; the rounded value is what the spec keeps."""
    _check_real("rope_theta", spec.rope_theta, above=1.0)
    _check_real("rms_eps", spec.rms_eps, above=0.0)
    if spec.rms_eps >= 1.0:
        raise _absurd("rms_eps", "a number below 1", spec.rms_eps)
    _check_real("embed_scale", spec.embed_scale, above=0.0)
    _check_real("rotary_fraction", spec.rotary_fraction, above=0.0)
    if spec.rotary_fraction > 1.0:
        raise _absurd("rotary_fraction", "at most 1", spec.rotary_fraction)
    for name in ("query_scale", "score_softcap", "final_softcap", "gate_limit"):
        if getattr(spec, name) != 0:
            _check_real(name, getattr(spec, name), above=0.0)
    for name in ("rms_eps", "embed_scale", "query_scale", "score_softcap", "final_softcap", "gate_limit"):
        with np.errstate(over="ignore"):
            rounded = np.float32(getattr(spec, name))
        if not np.isfinite(rounded):
            raise _absurd(name, "finite in float32", getattr(spec, name))
        object.__setattr__(spec, name, float(rounded))
    if not isinstance(spec.activation, Activation):
        raise _absurd("activation", f"one of {', '.join(Activation)}", spec.activation)


def _check_kinds(spec: ModelSpec) -> None:
    kinds = spec.layer_kinds
    if kinds and len(kinds) != spec.layers:
        raise _absurd("layer_kinds", f"empty or {spec.layers} kinds, one per layer", len(kinds))
    for kind in kinds:
        if not isinstance(kind, LayerKind):
            raise _absurd("layer_kinds", f"made of {', '.join(LayerKind)}", kind)
    slides = LayerKind.SLIDING in kinds
    if slides and spec.sliding is None:
        raise _absurd("sliding", "given, since a layer slides", None)
    if spec.sliding is not None and not slides:
        raise _absurd("sliding", "absent, since no layer slides", spec.sliding)
    if kinds and not slides:
        object.__setattr__(spec, "layer_kinds", ())  # one spelling of "all full", so one digest
    if spec.k_is_v and not spec.v_norm:
        raise _absurd("k_is_v", "false where v_norm is (V is the K projection under its own norm)", True)
    if spec.k_is_v and spec.attention_bias:
        raise _absurd("k_is_v", "false where attention_bias is true (there is no V projection to bias)", True)


def _check_sliding(sliding: SlidingAttention, heads: int) -> None:
    _check_integer("sliding.window", sliding.window, MAX_POSITIONS)
    _check_integer("sliding.kv_heads", sliding.kv_heads, MAX_HEADS)
    _check_integer("sliding.head_dim", sliding.head_dim, MAX_HEAD_DIM)
    if sliding.head_dim % 2:
        raise _absurd("sliding.head_dim", "even", sliding.head_dim)
    if heads % sliding.kv_heads:
        raise _absurd("sliding.kv_heads", f"a divisor of heads = {heads}", sliding.kv_heads)
    if heads * sliding.head_dim > MAX_WIDTH:
        raise _absurd("sliding.head_dim", f"at most {MAX_WIDTH:,} / heads", sliding.head_dim)
    _check_real("sliding.rope_theta", sliding.rope_theta, above=1.0)
    if sliding.rope_scaling is not None:
        _check_scaling(sliding.rope_scaling, sliding.head_dim)


def _check_experts(experts: Experts, layers: int) -> None:
    _check_integer("experts.count", experts.count, MAX_EXPERTS)
    _check_integer("experts.per_token", experts.per_token, experts.count)
    _check_integer("experts.ffn", experts.ffn, MAX_WIDTH)
    for name, most in (("shared", MAX_EXPERTS), ("dense_layers", layers)):
        if getattr(experts, name) != 0:
            _check_integer(f"experts.{name}", getattr(experts, name), most)
    if experts.router not in _ROUTERS:
        raise _absurd("experts.router", f"one of {', '.join(_ROUTERS)}", experts.router)


def _check_latent(latent: LatentAttention, spec: ModelSpec) -> None:
    for field in fields(latent):
        _check_integer(f"latent.{field.name}", getattr(latent, field.name), MAX_WIDTH)
    if spec.layer_kinds:
        raise _absurd("latent", "absent where layers slide", latent)


def _check_scaling(scaling: RopeScaling, head_dim: int) -> None:
    match scaling:
        case LinearScaling(factor):
            _check_real("rope_scaling.factor", factor, above=0.0)
        case Llama3Scaling(factor, low, high, original):
            _check_real("rope_scaling.factor", factor, above=0.0)
            _check_real("rope_scaling.low_freq_factor", low, above=0.0)
            _check_real("rope_scaling.high_freq_factor", high, above=0.0)
            if high <= low:
                raise _absurd("rope_scaling.high_freq_factor", f"above low_freq_factor = {low}", high)
            _check_integer("rope_scaling.original_max_position_embeddings", original, MAX_POSITIONS)
        case FactorScaling(factors):
            if len(factors) != head_dim // 2:
                raise _absurd("rope_scaling.factors", f"{head_dim // 2} numbers", len(factors))
            for factor in factors:
                _check_real("rope_scaling.factors", factor, above=0.0)
