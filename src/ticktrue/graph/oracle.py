"""An independent reference of the canonical numerics for the Llama family, formats `bf16` and `f32`, greedy.

Written from docs/numerics.md alone and sharing no code with `ticktrue.kernels`: it is the other witness
of every bit. All positions of a call are worked on as one matrix; rows are independent, so whole prompts,
chunks and single steps give equal bits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ticktrue.errors import Bug, InputError
from ticktrue.graph.oracle_attention import attend
from ticktrue.graph.oracle_format import Arithmetic, arithmetic
from ticktrue.graph.oracle_math import bf16_widen, gated_silu, rms_norm
from ticktrue.graph.oracle_matmul import FloatArray, Matmul, ordered_matmul
from ticktrue.graph.oracle_rope import RopeTables, inverse_frequencies, rope_tables, rotate
from ticktrue.model import ModelSpec


class Tensors(Protocol):
    """Weights by canonical name: matrices uint16 bf16 bits [out, in], norms float32."""

    def tensor(self, name: str) -> npt.NDArray[np.uint16] | npt.NDArray[np.float32]:
        """The tensor called `name`."""
        ...


@dataclass(frozen=True, slots=True)
class OracleState:
    """Keys and values so far: one float32[positions, kv_heads, head_dim] per layer, on the format's grid."""

    k: tuple[FloatArray, ...]
    v: tuple[FloatArray, ...]

    @property
    def positions(self) -> int:
        """Number of positions stored."""
        return int(self.k[0].shape[0])


@dataclass(frozen=True, slots=True)
class OracleResult:
    """Logits float32[asked positions, vocab] of one call, and the state after it."""

    logits: FloatArray
    state: OracleState

    @property
    def k(self) -> tuple[FloatArray, ...]:
        """Keys of all positions so far, one float32[positions, kv_heads, head_dim] per layer."""
        return self.state.k

    @property
    def v(self) -> tuple[FloatArray, ...]:
        """Values of all positions so far, as `k`."""
        return self.state.v


@dataclass(frozen=True, slots=True)
class _Layer:
    """One layer's weights: norms float32[hidden], matrices float32[in, out]."""

    attn_norm: FloatArray
    q: FloatArray
    k: FloatArray
    v: FloatArray
    o: FloatArray
    ffn_norm: FloatArray
    gate: FloatArray
    up: FloatArray
    down: FloatArray


class Oracle:
    """The reference for one model in one format.

    Args:
        spec: the model's shape.
        weights: its tensors by canonical name.
        fmt: `bf16` or `f32`.
        matmul: the ordered product; `oracle_fast.fast_matmul` gives the same bits sooner.

    Raises:
        UnsupportedModel: for another format.
    """

    def __init__(self, spec: ModelSpec, weights: Tensors, fmt: str, matmul: Matmul = ordered_matmul) -> None:
        self.spec = spec
        self._arithmetic: Arithmetic = arithmetic(fmt, matmul)
        self._eps = np.float32(spec.rms_eps)
        self._inv_freq = inverse_frequencies(spec)
        self._embed = _bf16_bits(weights, "embed")
        self._layers = tuple(_layer(weights, layer) for layer in range(spec.layers))
        self._final_norm = _vector(weights, "final_norm")
        self._lm_head = _matrix(weights, "lm_head")

    def empty_state(self) -> OracleState:
        """The state before the first token."""
        nothing = np.zeros((0, self.spec.kv_heads, self.spec.head_dim), np.float32)
        return OracleState(k=(nothing,) * self.spec.layers, v=(nothing,) * self.spec.layers)

    def forward(self, token_ids: Sequence[int], *, logits_at: Sequence[int] | None = None) -> OracleResult:
        """`extend` from nothing: positions 0 to n − 1."""
        return self.extend(self.empty_state(), token_ids, logits_at=logits_at)

    def extend(
        self, state: OracleState, token_ids: Sequence[int], *, logits_at: Sequence[int] | None = None
    ) -> OracleResult:
        """Logits and new state after `token_ids` at positions state.positions, state.positions + 1, ...

        Args:
            state: keys and values of the positions before; not changed.
            token_ids: at least one.
            logits_at: absolute positions, among the new ones, whose logits are wanted; all of them if None.

        Raises:
            InputError: for a token outside the vocabulary, no token, or a position that is not new.
        """
        first, n = state.positions, len(token_ids)
        rows = self._rows(token_ids, logits_at, first)
        tables = rope_tables(self._inv_freq, np.arange(first, first + n, dtype=np.int64))
        x = bf16_widen(self._embed[np.asarray(token_ids, np.int64)])
        keys, values = [], []
        for layer, old_k, old_v in zip(self._layers, state.k, state.v, strict=True):
            q, k, v = self._project(layer, x, tables)
            keys.append(np.concatenate([old_k, k]))
            values.append(np.concatenate([old_v, v]))
            mixed = attend(q, keys[-1], values[-1], self._arithmetic)
            x = x + self._rounded_product(mixed, layer.o)
            x = x + self._feed_forward(layer, x)
        logits = self._product(self._norm(x[rows], self._final_norm), self._lm_head)
        if not np.isfinite(logits).all():
            raise InputError("logits must be finite, found NaN or infinity", where="oracle logits")
        return OracleResult(logits=logits, state=OracleState(k=tuple(keys), v=tuple(values)))

    def generate(self, prompt_ids: Sequence[int], max_tokens: int) -> list[int]:
        """`max_tokens` greedy token ids after the prompt; stops at nothing (row 23)."""
        result = self.forward(prompt_ids, logits_at=[len(prompt_ids) - 1])
        tokens: list[int] = []
        while len(tokens) < max_tokens:
            tokens.append(greedy(result.logits[-1]))
            if len(tokens) < max_tokens:
                result = self.extend(result.state, tokens[-1:])
        return tokens

    def _rows(self, token_ids: Sequence[int], logits_at: Sequence[int] | None, first: int) -> list[int]:
        """Rows of the call whose logits are wanted, after checking the inputs."""
        n = len(token_ids)
        if n == 0 or min(token_ids) < 0 or max(token_ids) >= self.spec.vocab:
            raise InputError(
                f"expected at least one token id in 0..{self.spec.vocab - 1}, found {list(token_ids)[:8]}",
                where="oracle token_ids",
            )
        rows = list(range(n)) if logits_at is None else [position - first for position in logits_at]
        if any(not 0 <= row < n for row in rows):
            raise InputError(
                f"expected positions in {first}..{first + n - 1}, found {logits_at}", where="oracle logits_at"
            )
        return rows

    def _project(
        self, layer: _Layer, x: FloatArray, tables: RopeTables
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Rotated q and k, and v: float32[n, heads, head_dim] on the format's grid (rows 5, 7, 10-13)."""
        h = self._norm(x, layer.attn_norm)
        shape = (x.shape[0], -1, self.spec.head_dim)
        q = self._arithmetic.round(rotate(self._product(h, layer.q).reshape(shape), tables))
        k = self._arithmetic.round(rotate(self._product(h, layer.k).reshape(shape), tables))
        return q, k, self._rounded_product(h, layer.v).reshape(shape)

    def _feed_forward(self, layer: _Layer, x: FloatArray) -> FloatArray:
        """The y of the feed-forward half of a layer (rows 5, 7, 10, 21)."""
        h = self._norm(x, layer.ffn_norm)
        gated = gated_silu(self._product(h, layer.gate), self._product(h, layer.up))
        return self._rounded_product(self._arithmetic.round(gated), layer.down)

    def _norm(self, x: FloatArray, gain: FloatArray) -> FloatArray:
        return self._arithmetic.round(rms_norm(x, gain, self._eps))

    def _product(self, x: FloatArray, w: FloatArray) -> FloatArray:
        return self._arithmetic.matmul(x, w, self._arithmetic.tile)

    def _rounded_product(self, x: FloatArray, w: FloatArray) -> FloatArray:
        return self._arithmetic.round(self._product(x, w))


def greedy(logits: FloatArray) -> int:
    """Index of the largest of logits[vocab]; of equals the lowest index (row 23)."""
    return int(np.flatnonzero(logits == logits.max())[0])


def _layer(weights: Tensors, layer: int) -> _Layer:
    prefix = f"layers.{layer}."
    return _Layer(
        attn_norm=_vector(weights, prefix + "attn_norm"),
        q=_matrix(weights, prefix + "q"),
        k=_matrix(weights, prefix + "k"),
        v=_matrix(weights, prefix + "v"),
        o=_matrix(weights, prefix + "o"),
        ffn_norm=_vector(weights, prefix + "ffn_norm"),
        gate=_matrix(weights, prefix + "gate"),
        up=_matrix(weights, prefix + "up"),
        down=_matrix(weights, prefix + "down"),
    )


def _matrix(weights: Tensors, name: str) -> FloatArray:
    """float32[in, out] of the bf16 bits [out, in] called `name`."""
    return bf16_widen(np.ascontiguousarray(_bf16_bits(weights, name).T))


def _bf16_bits(weights: Tensors, name: str) -> npt.NDArray[np.uint16]:
    """The bits [out, in] of the matrix called `name`."""
    tensor = weights.tensor(name)
    if tensor.dtype != np.uint16:
        raise Bug(f"{name} must hold bf16 bits as uint16, found {tensor.dtype}", where=name)
    return tensor.view(np.uint16)


def _vector(weights: Tensors, name: str) -> FloatArray:
    """float32 norm weights as read, called `name`."""
    tensor = weights.tensor(name)
    if tensor.dtype != np.float32:
        raise Bug(f"{name} must be float32, found {tensor.dtype}", where=name)
    return tensor.view(np.float32)
