"""Canonical weights of a model: one name, shape and number format per tensor, whatever the file."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from ticktrue.errors import InputError, UnsupportedModel
from ticktrue.model.dequantize import check_kind, matrix_bf16, vector_float32
from ticktrue.model.spec import ModelSpec
from ticktrue.model.tensor_file import Progress, StoredTensor, TensorFile

T = TypeVar("T")

WEIGHTS_SCHEMA = "ticktrue/weights/v1"

CanonicalArray = npt.NDArray[np.uint16] | npt.NDArray[np.float32]
RowOrder = Callable[[npt.NDArray[np.uint8]], npt.NDArray[np.uint8]]


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
    at = spec.attention(layer)
    hidden, queries, keys = (spec.hidden,), at.heads * at.head_dim, at.kv_heads * at.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "attn_norm": hidden,
        "q": (queries, spec.hidden),
        "k": (keys, spec.hidden),
    }
    if not at.k_is_v:
        shapes["v"] = (keys, spec.hidden)
    if spec.attention_bias:
        shapes |= {"q_bias": (queries,), "k_bias": (keys,), "v_bias": (keys,)}
    if spec.qk_norm:
        shapes["q_norm"] = shapes["k_norm"] = (at.head_dim,)
    if spec.sinks:
        shapes["sinks"] = (at.heads,)
    shapes["o"] = (spec.hidden, queries)
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
        n, f = experts.count, experts.ffn
        shapes["router"] = (n, spec.hidden)
        shapes["experts.gate"] = shapes["experts.up"] = (n * f, spec.hidden)
        shapes["experts.down"] = (n * spec.hidden, f)
    if spec.post_norms:
        shapes["post_ffn_norm"] = hidden
    if spec.layer_scalar:
        shapes["layer_scalar"] = (1,)
    return shapes


class Naming(Protocol):
    """How one file format names the canonical tensors, and in which row order it stores them."""

    def stored_name(self, canonical: str) -> str:
        """The name in the file."""
        ...

    def ignored(self, stored: str) -> bool:
        """Whether a tensor of the file carries nothing that is needed."""
        ...

    def rows(self, canonical: str) -> RowOrder | None:
        """How to bring the file's rows into the Hugging Face order, or None where they are."""
        ...


@dataclass(frozen=True, slots=True)
class _Source:
    stored: StoredTensor
    rows: RowOrder | None


class Weights:
    """Tensors of one model by canonical name, read-only: matrices as bfloat16 bits, norms float32.

    Shapes and number formats are checked when the value is made; bytes are converted at the first use.

    Raises:
        InputError: T345, for a tensor that is missing or has another shape.
        UnsupportedModel: T331 for a number format, T333 for a tensor this family does not have.
    """

    __slots__ = ("_arrays", "_digests", "_file", "_sources", "_where", "spec")

    def __init__(self, spec: ModelSpec, file: TensorFile, naming: Naming, where: str) -> None:
        self.spec = spec
        self._file = file
        self._where = where
        self._sources = _match(spec, file, naming, where)
        self._arrays: dict[str, CanonicalArray] = {}
        self._digests: dict[str, str] = {}

    def names(self) -> tuple[str, ...]:
        """Canonical names in canonical order (`lm_head` only where it is stored apart from `embed`)."""
        return tuple(self._sources)

    def tensor(self, name: str) -> CanonicalArray:
        """uint16[out, in] (bfloat16 bits) or float32[n] (a norm); `lm_head` is `embed` where tied.

        Raises:
            InputError: T345 for a name the model does not have, T346 for a weight that is not finite.
        """
        if name == "lm_head" and self.spec.tied_embeddings:
            name = "embed"
        if name not in self._sources:
            raise InputError(f"the model has no tensor {name!r}", code="T345", where=self._where)
        array = self._arrays.get(name)
        if array is None:
            array = self._arrays.setdefault(name, self._convert(name))
        return array

    def load(self, progress: Progress | None = None, workers: int = 2) -> None:
        """Read and convert every tensor now, on `workers` threads."""
        for done, _ in enumerate(self._each(self.tensor, workers), start=1):
            if progress is not None:
                progress("weights", done, len(self._sources))

    def digest(self, workers: int = 2) -> str:
        """Sha256 over names, shapes and bytes: equal for equal weights, whatever file they came from."""
        total = hashlib.sha256(WEIGHTS_SCHEMA.encode())
        for name, digest in zip(self._sources, self._each(self._tensor_digest, workers), strict=True):
            array = self.tensor(name)
            total.update(f"\n{name} {array.dtype.str} {array.shape} {digest}".encode())
        return total.hexdigest()

    def _each(self, work: Callable[[str], T], workers: int) -> Iterator[T]:
        with ThreadPoolExecutor(max_workers=workers) as pool:
            yield from pool.map(work, self._sources)

    def _tensor_digest(self, name: str) -> str:
        if name not in self._digests:
            array = np.ascontiguousarray(self.tensor(name))
            self._digests[name] = hashlib.sha256(array.data).hexdigest()
        return self._digests[name]

    def _convert(self, name: str) -> CanonicalArray:
        source = self._sources[name]
        raw = self._file.raw(source.stored.name)
        if len(source.stored.shape) == 1:
            array: CanonicalArray = vector_float32(raw, source.stored, name)
        else:
            if source.rows is not None:
                raw = source.rows(raw.reshape(source.stored.shape[0], -1))
            array = matrix_bf16(raw.reshape(-1), source.stored, name)
        array.flags.writeable = False
        return array


def _match(spec: ModelSpec, file: TensorFile, naming: Naming, where: str) -> dict[str, _Source]:
    shapes = canonical_shapes(spec)
    sources = {}
    for name, shape in shapes.items():
        stored = file.tensors.get(naming.stored_name(name))
        if stored is None:
            raise InputError(f"tensor {naming.stored_name(name)!r} is missing", code="T345", where=where)
        if stored.shape != shape:
            raise InputError(
                f"tensor {stored.name!r} must have shape {shape}, found {stored.shape}",
                code="T345",
                where=where,
            )
        check_kind(stored, where)
        sources[name] = _Source(stored, naming.rows(name))
    used = {source.stored.name for source in sources.values()}
    tied = {naming.stored_name("lm_head")} if spec.tied_embeddings else set()
    for stored_name in sorted(set(file.tensors) - used - tied):
        if not naming.ignored(stored_name):
            raise UnsupportedModel(
                f"tensor {stored_name!r} has no place in family {spec.family}", code="T333", where=where
            )
    return sources
