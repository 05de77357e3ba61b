"""Reader for GGUF files: metadata and tensor places, each checked against the file size before a read.

The `gguf` package's own reader builds an object per vocabulary entry (2 s for 49,152) and reads past the end
of a cut-off file without a word; its dequantisation is used, its reader is not.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from ticktrue.errors import InputError
from ticktrue.model.tensor_file import StoredTensor

T = TypeVar("T")

CODE = "T343"
MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_DIMENSIONS = 4

# Value types of the format, by their number: struct letter, or string or array.
_SCALARS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True, slots=True)
class _BlockType:
    name: str
    values: int
    size: int  # bytes


# Number: name, values per block, bytes per block. Source: ggml.h and ggml-common.h.
_BLOCK_TYPES = {
    0: _BlockType("F32", 1, 4),
    1: _BlockType("F16", 1, 2),
    2: _BlockType("Q4_0", 32, 18),
    3: _BlockType("Q4_1", 32, 20),
    6: _BlockType("Q5_0", 32, 22),
    7: _BlockType("Q5_1", 32, 24),
    8: _BlockType("Q8_0", 32, 34),
    12: _BlockType("Q4_K", 256, 144),
    13: _BlockType("Q5_K", 256, 176),
    14: _BlockType("Q6_K", 256, 210),
    30: _BlockType("BF16", 1, 2),
}


@dataclass(frozen=True, slots=True)
class GgufArray:
    """An array value that is decoded only when it is asked for."""

    kind: int
    count: int
    start: int
    end: int


Value = int | float | bool | str | GgufArray


class _Cursor:
    """Bounded little-endian reads; every one past the end is one clear error."""

    __slots__ = ("_data", "_path", "at")

    def __init__(self, path: Path, data: memoryview) -> None:
        self._path = path
        self._data = data
        self.at = 0

    @property
    def size(self) -> int:
        return len(self._data)

    def scalar(self, letter: str) -> int | float | bool:
        size = struct.calcsize(letter)
        self.need(size)
        (value,) = struct.unpack_from(letter, self._data, self.at)
        self.at += size
        result: int | float | bool = value
        return result

    def integer(self, letter: str) -> int:
        return int(self.scalar(letter))

    def text(self) -> str:
        length = self.integer("<Q")
        self.need(length)
        raw = bytes(self._data[self.at : self.at + length])
        self.at += length
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise bad_gguf(self._path, f"the string at byte {self.at - length:,} is not UTF-8") from None

    def skip_strings(self, count: int) -> None:
        """Past `count` strings; a tight loop, vocabularies have 10^5 of them."""
        unpack, data, at = struct.Struct("<Q").unpack_from, self._data, self.at
        limit = len(data) - 8
        for _ in range(count):
            if at > limit:
                break
            at += 8 + unpack(data, at)[0]
        else:
            self.at = at
            self.need(0)
            return
        self.at = at
        self.need(8)

    def need(self, size: int) -> None:
        if self.at + size > len(self._data):
            raise bad_gguf(
                self._path,
                f"byte {self.at + size:,} is needed, the file has {len(self._data):,}: truncated or corrupt",
            )


class GgufFile:
    """One GGUF file, mapped read-only: `metadata` by key, `tensors` by name.

    Raises:
        InputError: T343, for a truncated or malformed file.

    Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
    """

    __slots__ = ("_data", "metadata", "path", "tensors")

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            empty = path.stat().st_size == 0
            self._data = np.zeros(0, np.uint8) if empty else np.memmap(path, np.uint8, "r").view(np.ndarray)
        except OSError as problem:
            raise bad_gguf(path, f"cannot be read: {problem.strerror}") from None
        cursor = _Cursor(path, self._data.data)
        tensor_count, value_count = _read_start(path, cursor)
        metadata: dict[str, Value] = {}
        for _ in range(value_count):
            key = cursor.text()
            if key in metadata:
                raise bad_gguf(path, f"metadata key {key!r} appears twice")
            metadata[key] = _read_value(path, cursor, cursor.integer("<I"))
        self.metadata: Mapping[str, Value] = MappingProxyType(metadata)
        self.tensors: Mapping[str, StoredTensor] = MappingProxyType(
            _read_tensors(path, cursor, tensor_count, self._alignment())
        )

    def raw(self, name: str) -> npt.NDArray[np.uint8]:
        """The bytes of a tensor, as a read-only view of the mapped file."""
        at = self.tensors[name]
        return self._data[at.offset : at.offset + at.size]

    def get(self, key: str, kind: type[T], default: T | None = None) -> T:
        """The metadata value at `key`, or `default`.

        Raises:
            InputError: T341, where there is neither, or the value has another type.
        """
        value: object = self.metadata.get(key)
        if value is None:
            if default is None:
                raise InputError(f"metadata key {key!r} is missing", code="T341", where=str(self.path))
            return default
        if isinstance(value, kind) and isinstance(value, bool) == (kind is bool):
            return value
        raise InputError(
            f"metadata key {key!r} must be of type {kind.__name__}, found {value!r}",
            code="T341",
            where=str(self.path),
        )

    def strings(self, key: str) -> list[str]:
        """The array of strings at `key`.

        Raises:
            InputError: T341, where it is missing or of another type; T343 for malformed UTF-8.
        """
        array = self._array(key, "strings")
        if array.kind != _STRING:
            raise InputError(f"metadata key {key!r} must hold strings", code="T341", where=str(self.path))
        cursor = _Cursor(self.path, self._data.data)
        cursor.at = array.start
        return [cursor.text() for _ in range(array.count)]

    def integers(self, key: str) -> list[int]:
        """The array of integers at `key`.

        Raises:
            InputError: T341, where it is missing or of another type.
        """
        array = self._array(key, "integers")
        letter = _SCALARS.get(array.kind, "")
        if letter in {"", "<f", "<d", "<?"}:
            raise InputError(f"metadata key {key!r} must hold integers", code="T341", where=str(self.path))
        return [int(item) for (item,) in struct.iter_unpack(letter, self._data[array.start : array.end].data)]

    def numbers(self, key: str) -> list[float]:
        """The array of float32 numbers at `key`.

        Raises:
            InputError: T341, where it is missing or of another type.
        """
        array = self._array(key, "float32 numbers")
        if _SCALARS.get(array.kind, "") != "<f":
            raise InputError(
                f"metadata key {key!r} must hold float32 numbers", code="T341", where=str(self.path)
            )
        return [float(x) for (x,) in struct.iter_unpack("<f", self._data[array.start : array.end].data)]

    def _array(self, key: str, what: str) -> GgufArray:
        value = self.metadata.get(key)
        if not isinstance(value, GgufArray):
            raise InputError(
                f"metadata key {key!r} must be an array of {what}, found {value!r}",
                code="T341",
                where=str(self.path),
            )
        return value

    def _alignment(self) -> int:
        alignment = self.get("general.alignment", int, DEFAULT_ALIGNMENT)
        if alignment < 1 or alignment & (alignment - 1):
            raise bad_gguf(self.path, f"general.alignment must be a power of two, found {alignment}")
        return alignment


def bad_gguf(path: Path, message: str) -> InputError:
    """The error of a malformed GGUF file."""
    return InputError(
        message, code=CODE, where=str(path), hint="fetch the file again: it is damaged or cut off"
    )


def _read_start(path: Path, cursor: _Cursor) -> tuple[int, int]:
    """Number of tensors, number of metadata values."""
    cursor.need(4)
    magic = struct.pack("<I", cursor.integer("<I"))
    if magic != MAGIC:
        raise bad_gguf(path, f"expected the magic {MAGIC!r}, found {magic!r}")
    version = cursor.integer("<I")
    if version not in VERSIONS:
        raise bad_gguf(
            path, f"GGUF version must be one of {VERSIONS}, found {version} (big-endian or newer?)"
        )
    return cursor.integer("<Q"), cursor.integer("<Q")


def _read_value(path: Path, cursor: _Cursor, kind: int) -> Value:
    if kind in _SCALARS:
        return cursor.scalar(_SCALARS[kind])
    if kind == _STRING:
        return cursor.text()
    if kind != _ARRAY:
        raise bad_gguf(path, f"metadata value of unknown type {kind} at byte {cursor.at:,}")
    item, count = cursor.integer("<I"), cursor.integer("<Q")
    start = cursor.at
    if item == _STRING:
        cursor.skip_strings(count)
    elif item in _SCALARS:
        size = count * struct.calcsize(_SCALARS[item])
        cursor.need(size)
        cursor.at += size
    else:
        raise bad_gguf(path, f"array of items of unknown type {item} at byte {start:,}")
    return GgufArray(item, count, start, cursor.at)


def _read_tensors(path: Path, cursor: _Cursor, count: int, alignment: int) -> dict[str, StoredTensor]:
    found: dict[str, StoredTensor] = {}
    for _ in range(count):
        tensor = _read_tensor(path, cursor)
        if tensor.name in found:
            raise bad_gguf(path, f"tensor {tensor.name!r} appears twice")
        found[tensor.name] = tensor
    start = -(-cursor.at // alignment) * alignment
    placed = {}
    for name, tensor in found.items():
        end = start + tensor.offset + tensor.size
        if end > cursor.size:
            raise bad_gguf(
                path,
                f"tensor {name!r} ends at byte {end:,}, the file has {cursor.size:,}: truncated or corrupt",
            )
        if tensor.offset % alignment:
            raise bad_gguf(path, f"tensor {name!r} starts at {tensor.offset}, not a multiple of {alignment}")
        placed[name] = StoredTensor(name, tensor.kind, tensor.shape, start + tensor.offset, tensor.size)
    return placed


def _read_tensor(path: Path, cursor: _Cursor) -> StoredTensor:
    """One tensor; its offset is still from the start of the data."""
    name = cursor.text()
    dimensions = cursor.integer("<I")
    if not 1 <= dimensions <= MAX_DIMENSIONS:
        raise bad_gguf(path, f"tensor {name!r} has {dimensions} dimensions")
    shape = tuple(reversed([cursor.integer("<Q") for _ in range(dimensions)]))
    number, offset = cursor.integer("<I"), cursor.integer("<Q")
    block = _BLOCK_TYPES.get(number)
    if block is None:  # refused by name when the model wants it; never read
        return StoredTensor(name, _type_name(number), shape, offset, 0)
    if shape[-1] % block.values:
        raise bad_gguf(
            path, f"tensor {name!r}: rows of {shape[-1]} do not fill blocks of {block.values} ({block.name})"
        )
    return StoredTensor(name, block.name, shape, offset, prod(shape) // block.values * block.size)


def _type_name(number: int) -> str:
    from gguf.constants import GGMLQuantizationType

    return next((kind.name for kind in GGMLQuantizationType if kind.value == number), f"type {number}")
