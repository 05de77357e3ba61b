"""Where a file keeps each canonical tensor: names, parts of fused tensors, row order; checked against the file."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ticktrue.errors import InputError, UnsupportedModel
from ticktrue.model.dequantize import check_kind
from ticktrue.model.spec import ModelSpec
from ticktrue.model.tensor_file import StoredTensor, TensorFile

RowOrder = Callable[[npt.NDArray[np.uint8]], npt.NDArray[np.uint8]]


@dataclass(frozen=True, slots=True)
class Take:
    """Rows `first .. first + rows - 1` of each expert's `of` rows in a tensor [experts, of, in]."""

    experts: int
    of: int
    first: int
    rows: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where one canonical tensor lies in a file.

    `names`: stored tensors whose rows follow one another; `take`: a part of the one fused tensor; `rows`: how to bring
    rows into the Hugging Face order; `plus_one`: the file stores a norm weight minus 1 (added in float32).
    """

    names: tuple[str, ...]
    take: Take | None = None
    rows: RowOrder | None = field(default=None, compare=False)
    plus_one: bool = False


class Naming(Protocol):
    """How one file names the canonical tensors, and in which row order it stores them."""

    def place(self, canonical: str) -> Place:
        """Where a canonical tensor lies."""
        ...

    def ignored(self, stored: str) -> bool:
        """Whether a tensor of the file carries nothing that is needed."""
        ...


@dataclass(frozen=True, slots=True)
class Source:
    """A canonical tensor found in a file: `stored` has its canonical shape and number format."""

    names: tuple[str, ...]
    stored: StoredTensor
    take: Take | None
    rows: RowOrder | None
    plus_one: bool

    @property
    def vector(self) -> bool:
        """Whether it is kept in float32 as read."""
        return len(self.stored.shape) == 1


def match(
    spec: ModelSpec, shapes: Mapping[str, tuple[int, ...]], file: TensorFile, naming: Naming, where: str
) -> dict[str, Source]:
    """Every canonical tensor with where it lies.

    Raises:
        InputError: T345, for a tensor that is missing or has another shape.
        UnsupportedModel: T331 for a number format, T333 for a tensor this family does not have.
    """
    places = {name: naming.place(name) for name in shapes}
    sources = {name: _source(place, shapes[name], file, where) for name, place in places.items()}
    used = {stored for place in places.values() for stored in place.names}
    tied = set(naming.place("lm_head").names) if spec.tied_embeddings else set()
    for stored_name in sorted(set(file.tensors) - used - tied):
        if not naming.ignored(stored_name):
            raise UnsupportedModel(
                f"tensor {stored_name!r} has no place in family {spec.family}", code="T333", where=where
            )
    return sources


def _source(place: Place, shape: tuple[int, ...], file: TensorFile, where: str) -> Source:
    found = [_found(name, file, where) for name in place.names]
    each = (shape[0] // len(found), *shape[1:])
    kinds = {stored.kind for stored in found}
    if len(kinds) > 1:
        raise UnsupportedModel(
            f"the experts of {found[0].name!r} have number formats {', '.join(sorted(kinds))}; one is expected",
            code="T331",
            where=where,
        )
    for stored in found:
        expected = each if place.take is None else (place.take.experts, place.take.of, shape[1])
        if stored.shape != expected:
            raise InputError(
                f"tensor {stored.name!r} must have shape {expected}, found {stored.shape}",
                code="T345",
                where=where,
            )
        check_kind(stored, where)
    size = sum(stored.size for stored in found)
    if place.take is not None:
        size = size * prod(shape) // prod(found[0].shape)
    whole = StoredTensor(found[0].name, found[0].kind, shape, found[0].offset, size)
    return Source(place.names, whole, place.take, place.rows, place.plus_one)


def _found(name: str, file: TensorFile, where: str) -> StoredTensor:
    stored = file.tensors.get(name)
    if stored is None:
        raise InputError(f"tensor {name!r} is missing", code="T345", where=where)
    return stored
