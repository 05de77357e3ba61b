"""A model's weights as the oracle works on them: products in the format, norms and biases as they are read."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ticktrue.errors import Bug, UnsupportedModel
from ticktrue.graph.oracle_attention import Scoring
from ticktrue.graph.oracle_format import Arithmetic, score_scale
from ticktrue.graph.oracle_math import bf16_widen
from ticktrue.graph.oracle_matmul import FloatArray
from ticktrue.graph.oracle_quantize import Grid, quantised_product, quantised_weights
from ticktrue.graph.oracle_rope import inverse_frequencies
from ticktrue.model import Attention, ModelSpec


class Tensors(Protocol):
    """Weights by canonical name."""

    def tensor(self, name: str) -> npt.NDArray[np.uint16] | npt.NDArray[np.float32]:
        """A matrix as uint16 bf16 bits [out, in], a vector (norm, bias, sinks, scalar) as float32."""
        ...

    def values(self, name: str) -> npt.NDArray[np.float32]:
        """The float32 values [out, in] of a matrix before any rounding to a format (row 1)."""
        ...


@dataclass(frozen=True, slots=True)
class Linear:
    """One product: w float32[in, out] on the format's grid, scale and bias float32[out] where there are any."""

    w: FloatArray
    grid: Grid | None = None
    scale: FloatArray | None = None
    bias: FloatArray | None = None

    def __call__(self, x: FloatArray, arithmetic: Arithmetic) -> FloatArray:
        """float32[rows, out], not rounded: rows 7 to 10."""
        if self.grid is None:
            acc = arithmetic.matmul(x, self.w, arithmetic.tile)
        else:
            acc = quantised_product(x, self.w, self.grid, arithmetic.matmul)
        if self.scale is not None:
            acc = acc * self.scale
        return acc if self.bias is None else acc + self.bias


@dataclass(frozen=True, slots=True)
class Gated:
    """A gated feed-forward block, dense or one expert."""

    gate: Linear
    up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class Mixture:
    """A router, always bf16, and its experts."""

    router: Linear
    experts: tuple[Gated, ...]
    per_token: int


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: None stands for what the family does not have."""

    attention: Attention
    inv_freq: tuple[float, ...]
    scoring: Scoring
    attn_norm: FloatArray
    q: Linear
    k: Linear
    v: Linear | None
    q_norm: FloatArray | None
    k_norm: FloatArray | None
    o: Linear
    post_attn_norm: FloatArray | None
    ffn_norm: FloatArray
    ffn: Gated | Mixture
    post_ffn_norm: FloatArray | None
    scalar: FloatArray | None


def check_known(spec: ModelSpec) -> None:
    """Refuse what the page has no row for.

    Raises:
        UnsupportedModel: naming it.
    """
    experts = spec.experts
    unknown = {
        "latent attention": spec.latent is not None,
        "a limit in the gate": spec.gate_limit != 0,
        "biases in the feed-forward block": spec.mlp_bias,
        "YaRN": spec.yarn is not None,
        "shared experts": experts is not None and experts.shared != 0,
        "a router that is not softmax": experts is not None and experts.router != "softmax",
        "router weights that are not normalised": experts is not None and not experts.normalise,
    }
    found = [name for name, there in unknown.items() if there]
    if found:
        raise UnsupportedModel(
            f"the oracle follows docs/numerics.md, which has no row for {', '.join(found)}",
            where="oracle spec",
        )


class Reader:
    """Reads canonical tensors into layers of one format."""

    def __init__(self, spec: ModelSpec, weights: Tensors, grid: Grid | None) -> None:
        self._spec, self._weights, self._grid = spec, weights, grid

    def layer(self, layer: int) -> Layer:
        """Everything of one layer."""
        spec, at = self._spec, f"layers.{layer}."
        attention = spec.attention(layer)
        return Layer(
            attention=attention,
            inv_freq=inverse_frequencies(attention),
            scoring=Scoring(
                scale=np.float32(attention.scale) if spec.query_scale else score_scale(attention.head_dim),
                window=attention.window,
                cap=np.float32(spec.score_softcap),
                sinks=self._maybe(at + "sinks", spec.sinks),
            ),
            attn_norm=self.vector(at + "attn_norm"),
            q=self.linear(at + "q", bias=spec.attention_bias),
            k=self.linear(at + "k", bias=spec.attention_bias),
            v=None if attention.k_is_v else self.linear(at + "v", bias=spec.attention_bias),
            q_norm=self._maybe(at + "q_norm", spec.qk_norm),
            k_norm=self._maybe(at + "k_norm", spec.qk_norm),
            o=self.linear(at + "o", bias=spec.output_bias),
            post_attn_norm=self._maybe(at + "post_attn_norm", spec.post_norms),
            ffn_norm=self.vector(at + "ffn_norm"),
            ffn=self._feed_forward(layer),
            post_ffn_norm=self._maybe(at + "post_ffn_norm", spec.post_norms),
            scalar=self._maybe(at + "layer_scalar", spec.layer_scalar),
        )

    def linear(self, name: str, *, bias: bool = False) -> Linear:
        """The matrix called `name` in the format, with the bias `name`_bias."""
        return self._linears(name, 1, self._maybe(name + "_bias", bias))[0]

    def bits(self, name: str) -> npt.NDArray[np.uint16]:
        """The bf16 bits [out, in] of the matrix called `name`."""
        tensor = self._weights.tensor(name)
        if tensor.dtype != np.uint16:
            raise Bug(f"{name} must hold bf16 bits as uint16, found {tensor.dtype}", where=name)
        return tensor.view(np.uint16)

    def vector(self, name: str) -> FloatArray:
        """float32 weights as read, called `name`."""
        return self._floats(name, self._weights.tensor(name))

    def _maybe(self, name: str, there: bool) -> FloatArray | None:
        return self.vector(name) if there else None

    def _feed_forward(self, layer: int) -> Gated | Mixture:
        at, experts = f"layers.{layer}.", self._spec.experts
        if experts is None or layer < experts.dense_layers:
            return Gated(self.linear(at + "gate"), self.linear(at + "up"), self.linear(at + "down"))
        parts = [self._linears(f"{at}experts.{part}", experts.count) for part in ("gate", "up", "down")]
        router = Linear(_columns(bf16_widen(self.bits(at + "router"))))
        return Mixture(router, tuple(Gated(*of) for of in zip(*parts, strict=True)), experts.per_token)

    def _linears(self, name: str, count: int, bias: FloatArray | None = None) -> list[Linear]:
        """The `count` matrices that stand below one another in the tensor called `name` (row 2)."""
        if self._grid is None:
            return [Linear(_columns(w), bias=bias) for w in np.split(bf16_widen(self.bits(name)), count)]
        w, scale = quantised_weights(self._floats(name, self._weights.values(name)), self._grid)
        pairs = zip(np.split(w, count), np.split(scale, count), strict=True)
        return [Linear(_columns(part), self._grid, s, bias) for part, s in pairs]

    def _floats(self, name: str, values: npt.NDArray[np.generic]) -> FloatArray:
        if values.dtype != np.float32:
            raise Bug(f"{name} must be float32, found {values.dtype}", where=name)
        return values.view(np.float32)


def _columns(w: FloatArray) -> FloatArray:
    """float32[in, out] of w[out, in]."""
    return np.ascontiguousarray(w.T)
