"""An independent reference of the canonical numerics for every runnable family and format, greedy.

Written from docs/numerics.md alone and sharing no code with `ticktrue.kernels`: it is the other witness
of every bit. All positions of a call are worked on as one matrix; rows are independent, so whole prompts,
chunks and single steps give equal bits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ticktrue.errors import InputError
from ticktrue.graph.oracle_attention import attend
from ticktrue.graph.oracle_experts import gated, mixed
from ticktrue.graph.oracle_format import Arithmetic, arithmetic
from ticktrue.graph.oracle_math import bf16_widen, head_norm, rms_norm, softcap
from ticktrue.graph.oracle_matmul import FloatArray, Matmul, ordered_matmul
from ticktrue.graph.oracle_quantize import stored_e4m3
from ticktrue.graph.oracle_rope import RopeTables, rope_tables, rotate
from ticktrue.graph.oracle_weights import Gated, Layer, Reader, Tensors, check_known
from ticktrue.model import ModelSpec


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
class Cache:
    """The format of keys and values (row 13).

    `scales`: powers of two, float32[kv_heads], by `layers.N.k` or `layers.N.v`; 1 where there is none.
    """

    form: str
    scales: Mapping[str, FloatArray] = field(default_factory=dict)


class Oracle:
    """The reference for one model in one format.

    Args:
        spec: the model's shape.
        weights: its tensors by canonical name; `values` is asked for in the 8-bit formats only.
        fmt: `bf16`, `f32`, `int8` or `fp8`.
        matmul: the ordered product; `oracle_fast.fast_matmul` gives the same bits sooner.
        cache: of keys and values; None: the format's own.

    Raises:
        UnsupportedModel: for another format or cache, or a model with something the page has no row for.
    """

    def __init__(
        self,
        spec: ModelSpec,
        weights: Tensors,
        fmt: str,
        matmul: Matmul = ordered_matmul,
        cache: Cache | None = None,
    ) -> None:
        check_known(spec)
        self.spec = spec
        self._arithmetic: Arithmetic = arithmetic(fmt, matmul, cache.form if cache else None)
        self._cache_scales = cache.scales if cache else {}
        self._eps = np.float32(spec.rms_eps)
        reader = Reader(spec, weights, self._arithmetic.grid)
        self._embed = reader.bits("embed")
        self._layers = tuple(reader.layer(layer) for layer in range(spec.layers))
        self._final_norm = reader.vector("final_norm")
        self._lm_head = reader.linear("lm_head")

    def empty_state(self) -> OracleState:
        """The state before the first token."""
        kinds = [layer.attention for layer in self._layers]
        nothing = tuple(np.zeros((0, of.kv_heads, of.head_dim), np.float32) for of in kinds)
        return OracleState(k=nothing, v=nothing)

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
        positions = np.arange(first, first + n, dtype=np.int64)
        turns = {of: rope_tables(of, positions) for of in {layer.inv_freq for layer in self._layers}}
        x = bf16_widen(self._embed[np.asarray(token_ids, np.int64)]) * np.float32(self.spec.embed_scale)
        keys, values = [], []
        for index, (layer, old_k, old_v) in enumerate(zip(self._layers, state.k, state.v, strict=True)):
            q, k, v = self._project(layer, x, turns[layer.inv_freq])
            keys.append(np.concatenate([old_k, self._stored(k, f"layers.{index}.k")]))
            values.append(np.concatenate([old_v, self._stored(v, f"layers.{index}.v")]))
            joined = attend(q, keys[-1], values[-1], self._arithmetic, layer.scoring)
            x = x + self._after(layer.o(joined, self._arithmetic), layer.post_attn_norm)
            x = x + self._after(self._feed_forward(layer, x), layer.post_ffn_norm)
            if layer.scalar is not None:
                x = x * layer.scalar
        logits = self._lm_head(self._norm(x[rows], self._final_norm), self._arithmetic)
        if self.spec.final_softcap:
            logits = softcap(logits, np.float32(self.spec.final_softcap))
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
        self, layer: Layer, x: FloatArray, tables: RopeTables
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Rotated q and k, and v: float32[n, heads, head_dim] on the format's grid (rows 5, 7-12)."""
        h = self._norm(x, layer.attn_norm)
        shape = (x.shape[0], -1, layer.attention.head_dim)
        q, k = (part(h, self._arithmetic).reshape(shape) for part in (layer.q, layer.k))
        v = k if layer.v is None else layer.v(h, self._arithmetic).reshape(shape)
        if self.spec.v_norm:
            v = head_norm(v, None, self._eps)
        if layer.q_norm is not None:
            q = head_norm(q, layer.q_norm, self._eps)
        if layer.k_norm is not None:
            k = head_norm(k, layer.k_norm, self._eps)
        q, k = rotate(q, tables), rotate(k, tables)
        return self._arithmetic.round(q), self._arithmetic.round(k), self._arithmetic.round(v)

    def _stored(self, x: FloatArray, name: str) -> FloatArray:
        """What the cache gives back for new keys or values x[n, kv_heads, head_dim] (row 13)."""
        if not self._arithmetic.cache_e4m3:
            return x
        return stored_e4m3(x, self._cache_scales.get(name, np.ones(x.shape[1], np.float32)))

    def _feed_forward(self, layer: Layer, x: FloatArray) -> FloatArray:
        """The y of the feed-forward half of a layer, not rounded (rows 5, 7-10, 21, 27, 28)."""
        h = self._norm(x, layer.ffn_norm)
        if isinstance(layer.ffn, Gated):
            return gated(layer.ffn, h, self.spec.activation, self._arithmetic)
        return mixed(layer.ffn, h, self.spec.activation, self._arithmetic)

    def _after(self, y: FloatArray, post_norm: FloatArray | None) -> FloatArray:
        """What is added to the residual: y rounded, through the norm after the block (rows 10, 5b)."""
        y = self._arithmetic.round(y)
        return y if post_norm is None else self._norm(y, post_norm)

    def _norm(self, x: FloatArray, gain: FloatArray) -> FloatArray:
        return self._arithmetic.round(rms_norm(x, gain, self._eps))


def greedy(logits: FloatArray) -> int:
    """Index of the largest of logits[vocab]; of equals the lowest index (row 23)."""
    return int(np.flatnonzero(logits == logits.max())[0])
