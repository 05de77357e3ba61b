"""Canonical weights of a model: one name, shape and number format per tensor, whatever the file."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from ticktrue.errors import InputError
from ticktrue.model.dequantize import matrix_bf16, matrix_float32, vector_float32
from ticktrue.model.naming import Naming, Source, match
from ticktrue.model.quantize import QuantFormat, Quantised, quantise
from ticktrue.model.spec import Experts, LatentAttention, ModelSpec
from ticktrue.model.tensor_file import Progress, TensorFile

S = TypeVar("S")
T = TypeVar("T")

WEIGHTS_SCHEMA = "ticktrue/weights/v1"

_EIGHT_BITS = frozenset({"q", "k", "v", "o", "q_a", "q_b", "kv_a", "kv_b", "gate", "up", "down", "lm_head"})

CanonicalArray = npt.NDArray[np.uint16] | npt.NDArray[np.float32]


def canonical_shapes(spec: ModelSpec) -> Mapping[str, tuple[int, ...]]:
    """Shape of every stored tensor, in canonical order; `lm_head` is left out where it is `embed`.

    Matrices are [out, in] in the Hugging Face row order; norms are vectors.
    """
    shapes: dict[str, tuple[int, ...]] = {"embed": (spec.vocab, spec.hidden)}
    for layer in range(spec.layers):
        shapes |= {f"layers.{layer}.{name}": shape for name, shape in _layer_shapes(spec, layer).items()}
    shapes["final_norm"] = (spec.hidden,)
    if not spec.tied_embeddings:
        shapes["lm_head"] = (spec.vocab, spec.hidden)
    return MappingProxyType(shapes)


def _layer_shapes(spec: ModelSpec, layer: int) -> dict[str, tuple[int, ...]]:
    """One layer's tensors in canonical order. Experts stand below one another: row e * n + i is row i of expert e."""
    hidden = (spec.hidden,)
    shapes: dict[str, tuple[int, ...]] = {"attn_norm": hidden}
    shapes |= _attention_shapes(spec, layer) if spec.latent is None else _latent_shapes(spec, spec.latent)
    if spec.output_bias:
        shapes["o_bias"] = hidden
    if spec.post_norms:
        shapes["post_attn_norm"] = hidden
    shapes["ffn_norm"] = hidden
    experts = spec.experts
    if experts is None or layer < experts.dense_layers:
        shapes["gate"] = shapes["up"] = (spec.ffn, spec.hidden)
        shapes["down"] = (spec.hidden, spec.ffn)
    else:
        shapes |= _expert_shapes(spec, experts)
    if spec.post_norms:
        shapes["post_ffn_norm"] = hidden
    if spec.layer_scalar:
        shapes["layer_scalar"] = (1,)
    return shapes


def _attention_shapes(spec: ModelSpec, layer: int) -> dict[str, tuple[int, ...]]:
    at = spec.attention(layer)
    queries, keys = at.heads * at.head_dim, at.kv_heads * at.head_dim
    shapes: dict[str, tuple[int, ...]] = {"q": (queries, spec.hidden), "k": (keys, spec.hidden)}
    if not at.k_is_v:
        shapes["v"] = (keys, spec.hidden)
    if spec.attention_bias:
        shapes |= {"q_bias": (queries,), "k_bias": (keys,), "v_bias": (keys,)}
    if spec.qk_norm:
        shapes["q_norm"] = shapes["k_norm"] = (at.head_dim,)
    if spec.sinks:
        shapes["sinks"] = (at.heads,)
    shapes["o"] = (spec.hidden, queries)
    return shapes


def _latent_shapes(spec: ModelSpec, mla: LatentAttention) -> dict[str, tuple[int, ...]]:
    """Compressed q and KV, each under a norm, then expanded per head; k's rotary part is shared by the heads."""
    return {
        "q_a": (mla.q_rank, spec.hidden),
        "q_a_norm": (mla.q_rank,),
        "q_b": (spec.heads * (mla.nope_dim + mla.rope_dim), mla.q_rank),
        "kv_a": (mla.kv_rank + mla.rope_dim, spec.hidden),
        "kv_a_norm": (mla.kv_rank,),
        "kv_b": (spec.heads * (mla.nope_dim + mla.v_dim), mla.kv_rank),
        "o": (spec.hidden, spec.heads * mla.v_dim),
    }


def _expert_shapes(spec: ModelSpec, experts: Experts) -> dict[str, tuple[int, ...]]:
    n, f, shared = experts.count, experts.ffn, experts.shared * experts.ffn
    shapes: dict[str, tuple[int, ...]] = {"router": (n, spec.hidden)}
    if spec.mlp_bias or experts.router == "sigmoid":
        shapes["router_bias"] = (n,)
    if shared:
        shapes["shared.gate"] = shapes["shared.up"] = (shared, spec.hidden)
        shapes["shared.down"] = (spec.hidden, shared)
    shapes["experts.gate"] = shapes["experts.up"] = (n * f, spec.hidden)
    shapes["experts.down"] = (n * spec.hidden, f)
    if spec.mlp_bias:
        shapes["experts.gate_bias"] = shapes["experts.up_bias"] = (n * f,)
        shapes["experts.down_bias"] = (n * spec.hidden,)
    return shapes


class Weights:
    """Tensors of one model by canonical name, read-only: matrices as bfloat16 bits, vectors float32.

    Shapes and number formats are checked when the value is made; bytes are converted at the first use.

    Raises:
        InputError: T345, for a tensor that is missing or has another shape.
        UnsupportedModel: T331 for a number format, T333 for a tensor this family does not have.
    """

    __slots__ = ("_arrays", "_digests", "_file", "_quantised", "_sources", "_where", "spec")

    def __init__(self, spec: ModelSpec, file: TensorFile, naming: Naming, where: str) -> None:
        self.spec = spec
        self._file = file
        self._where = where
        self._sources = match(spec, canonical_shapes(spec), file, naming, where)
        self._arrays: dict[str, CanonicalArray] = {}
        self._quantised: dict[tuple[str, str], Quantised] = {}
        self._digests: dict[str, str] = {}

    def names(self) -> tuple[str, ...]:
        """Canonical names in canonical order (`lm_head` only where it is stored apart from `embed`)."""
        return tuple(self._sources)

    def tensor(self, name: str) -> CanonicalArray:
        """uint16[out, in] (bfloat16 bits) or float32[n] (a vector); `lm_head` is `embed` where tied.

        Raises:
            InputError: T345 for a name the model does not have, T346 for a weight that is not finite.
        """
        name = self._stored(name)
        array = self._arrays.get(name)
        if array is None:
            array = self._arrays.setdefault(name, self._convert(name))
        return array

    def values(self, name: str) -> npt.NDArray[np.float32]:
        """float32[out, in]: a matrix as numerics row 1 gives it, before any rounding; made anew at each call.

        Raises:
            InputError: T345 for a name the model does not have, T346 for a value that is not finite.
        """
        name = self._stored(name)
        source = self._sources[name]
        if source.vector:
            return np.array(self.tensor(name), dtype=np.float32)
        return matrix_float32(self._raw(source), source.stored, name)

    def quantised(self, name: str, fmt: QuantFormat) -> Quantised:
        """A matrix in 8 bits (numerics row 2) with its float32 scale per output; kept after the first use.

        Args:
            name: of a matrix that the format stores in 8 bits (`in_eight_bits`).
            fmt: "int8" or "fp8".

        Raises:
            InputError: T345 for a name the model does not have or a vector, T346 for a value that is not finite.
        """
        if not in_eight_bits(name):
            raise InputError(f"tensor {name!r} is not stored in 8 bits", code="T345", where=self._where)
        key = (name, fmt)
        found = self._quantised.get(key)
        if found is None:
            source = self._sources[self._stored(name)]
            found = quantise(self._raw(source), source.stored, name, fmt)
            found = self._quantised.setdefault(key, found)
        return found

    def load(self, progress: Progress | None = None, workers: int = 2) -> None:
        """Read and convert every tensor now, on `workers` threads."""
        for done, _ in enumerate(_each(self.tensor, self._sources, workers), start=1):
            if progress is not None:
                progress("weights", done, len(self._sources))

    def digest(self, fmt: str = "bf16", workers: int = 2) -> str:
        """Sha256 over names, shapes and bytes: equal for equal weights, whatever file they came from.

        For "int8" and "fp8" it covers the 8-bit matrices and their scales; embedding and router stay bfloat16 there.
        "bf16" and "f32" read the same weights and have the same digest.

        Raises:
            InputError: T330, for another format.
        """
        if fmt in {"bf16", "f32"}:
            names = [(name, False) for name in self._sources]
        elif fmt in {"int8", "fp8"}:
            every = [*self._sources, "lm_head"] if self.spec.tied_embeddings else list(self._sources)
            names = [(name, in_eight_bits(name)) for name in every]
        else:
            raise InputError(
                f"no number format {fmt!r}; expected bf16, f32, int8 or fp8", code="T330", where="format"
            )

        def line(entry: tuple[str, bool]) -> str:
            name, eight = entry
            return (
                self._eight_bit_line(name, "int8" if fmt == "int8" else "fp8") if eight else self._line(name)
            )

        total = hashlib.sha256(WEIGHTS_SCHEMA.encode())
        for text in _each(line, names, workers):
            total.update(text.encode())
        return total.hexdigest()

    def _line(self, name: str) -> str:
        array = self.tensor(name)
        digest = self._digests.get(name)
        if digest is None:
            digest = self._digests.setdefault(name, _sha256(array))
        return f"\n{name} {array.dtype.str} {array.shape} {digest}"

    def _eight_bit_line(self, name: str, fmt: QuantFormat) -> str:
        key = f"{name} {fmt}"
        found = self._digests.get(key)
        if found is None:
            matrix = self.quantised(name, fmt)
            found = f"\n{key} {matrix.q.shape} {_sha256(matrix.q)} scales {_sha256(matrix.scale)}"
            found = self._digests.setdefault(key, found)
        return found

    def _stored(self, name: str) -> str:
        if name == "lm_head" and self.spec.tied_embeddings:
            name = "embed"
        if name not in self._sources:
            raise InputError(f"the model has no tensor {name!r}", code="T345", where=self._where)
        return name

    def _raw(self, source: Source) -> npt.NDArray[np.uint8]:
        """The bytes of a canonical tensor, rows in the Hugging Face order; a view of the file where that serves."""
        raws = [self._file.raw(stored) for stored in source.names]
        if source.take is not None:
            experts, rows = source.take.experts, source.take.of
            cube = raws[0].reshape(experts, rows, -1)[
                :, source.take.first : source.take.first + source.take.rows
            ]
            raws = [np.ascontiguousarray(cube).reshape(-1)]
        raw = raws[0] if len(raws) == 1 else np.concatenate(raws)
        if source.rows is not None:
            raw = source.rows(raw.reshape(source.stored.shape[0], -1))
        return raw.reshape(-1)

    def _convert(self, name: str) -> CanonicalArray:
        source = self._sources[name]
        array: CanonicalArray
        if source.vector:
            array = vector_float32(self._raw(source), source.stored, name)
            if source.plus_one:
                array = np.float32(1) + array
        else:
            array = matrix_bf16(self._raw(source), source.stored, name)
        array.flags.writeable = False
        return array


def in_eight_bits(name: str) -> bool:
    """Whether the formats int8 and fp8 store a tensor in 8 bits (numerics row 2): matrices but embedding and router."""
    return name.rsplit(".", 1)[-1] in _EIGHT_BITS


def _each(work: Callable[[S], T], items: Iterable[S], workers: int) -> Iterator[T]:
    with ThreadPoolExecutor(max_workers=workers) as pool:
        yield from pool.map(work, items)


def _sha256(array: npt.NDArray[np.generic]) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()
