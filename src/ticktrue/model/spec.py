"""What a model is: family, shape and constants, checked before any weight is touched."""

import hashlib
import math
from dataclasses import dataclass, fields
from enum import StrEnum

import msgspec
import numpy as np

from ticktrue.errors import InputError, UnsupportedModel

MAX_LAYERS = 4_096
MAX_WIDTH = 1 << 22  # hidden, ffn, heads * head_dim: far above any published model
MAX_HEADS = 4_096
MAX_HEAD_DIM = 4_096
MAX_VOCAB = 1 << 24
MAX_POSITIONS = 1 << 31

SPEC_SCHEMA = "ticktrue/model-spec/v1"

# Not part of the digest: they change neither the graph nor a bit of the logits.
_OUTSIDE_DIGEST = frozenset({"name", "bos", "eos"})

# Fields of the first version count always, later ones only where they say something: a Llama's digest stays what it was.
_ALWAYS_IN_DIGEST = frozenset({"rope_scaling", "tied_embeddings", "attention_bias", "mlp_bias"})


class Family(StrEnum):
    """Model families known by name; only those in `RUNNABLE` can be loaded."""

    LLAMA = "llama"
    MISTRAL = "mistral"
    MIXTRAL = "mixtral"
    QWEN2 = "qwen2"
    QWEN3 = "qwen3"
    QWEN3_MOE = "qwen3_moe"
    GEMMA2 = "gemma2"
    GEMMA3 = "gemma3"
    GEMMA4 = "gemma4"
    GPT_OSS = "gpt_oss"
    DEEPSEEK_V3 = "deepseek_v3"
    PHI3 = "phi3"
    SMOLLM3 = "smollm3"


RUNNABLE = frozenset({Family.LLAMA})

_ALIASES = {
    "gemma3_text": Family.GEMMA3,
    "gemma4_text": Family.GEMMA4,
    "gpt-oss": Family.GPT_OSS,
    "deepseek2": Family.DEEPSEEK_V3,
    "qwen3moe": Family.QWEN3_MOE,
}


def family_of(kind: str, where: str) -> Family:
    """The runnable family called `kind` (`model_type` or `general.architecture`).

    Raises:
        UnsupportedModel: T330, naming the family.
    """
    known = _ALIASES.get(kind) or next((family for family in Family if family == kind), None)
    if known is not None and known in RUNNABLE:
        return known
    what = f"family {kind!r} is known but not runnable yet" if known else f"unknown model family {kind!r}"
    raise UnsupportedModel(
        f"{what}; expected one of: {', '.join(sorted(RUNNABLE))}",
        where=where,
        hint="Llama-shaped models (Llama, SmolLM, SmolLM2, TinyLlama) run today",
    )


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

    def __post_init__(self) -> None:
        for name, most in _LIMITS.items():
            _check_integer(name, getattr(self, name), most)
        _check_shape(self)
        _check_real("rope_theta", self.rope_theta, above=1.0)
        _check_real("rms_eps", self.rms_eps, above=0.0)
        if self.rms_eps >= 1.0:
            raise _absurd("rms_eps", "a number below 1", self.rms_eps)
        for name in ("rms_eps", "embed_scale", "query_scale", "score_softcap", "final_softcap", "gate_limit"):
            object.__setattr__(self, name, float(np.float32(getattr(self, name))))
        if self.rope_scaling is not None:
            _check_scaling(self.rope_scaling, self.head_dim)
        for name in ("attention_bias", "mlp_bias"):
            if getattr(self, name):
                raise UnsupportedModel(
                    f"{name} is true: biases are not supported in family {self.family}",
                    code="T333",
                    where=name,
                )
        for name in ("bos", "eos"):
            for token in getattr(self, name):
                if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < self.vocab:
                    raise _absurd(name, f"token ids in 0..{self.vocab - 1}", token)

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
