"""Reader for safetensors files, single or sharded: header checked against the file size, tensors mapped."""

from collections.abc import Mapping
from math import prod
from pathlib import Path
from types import MappingProxyType

import msgspec
import numpy as np
import numpy.typing as npt

from ticktrue.errors import InputError
from ticktrue.model.tensor_file import StoredTensor

CODE = "T344"
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
# The limit of the reference implementation.
MAX_HEADER_BYTES = 100_000_000
_LENGTH_BYTES = 8
_ITEM_BYTES = {
    "F64": 8,
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "I64": 8,
    "I32": 4,
    "I16": 2,
    "I8": 1,
    "U8": 1,
    "BOOL": 1,
}


class _Entry(msgspec.Struct, frozen=True):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


class _Index(msgspec.Struct, frozen=True):
    weight_map: dict[str, str]


class SafetensorsFile:
    """One `.safetensors` file, mapped read-only.

    Raises:
        InputError: T344, for a truncated or malformed file.

    Source: https://github.com/huggingface/safetensors, "Format".
    """

    __slots__ = ("_data", "path", "tensors")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._data = _map(path)
        self.tensors: Mapping[str, StoredTensor] = MappingProxyType(_read_header(path, self._data))

    def raw(self, name: str) -> npt.NDArray[np.uint8]:
        """The bytes of a tensor, as a read-only view of the mapped file."""
        at = self.tensors[name]
        return self._data[at.offset : at.offset + at.size]


class ShardedSafetensors:
    """The safetensors files that an index names, as one set of tensors.

    Raises:
        InputError: T344, for a malformed index, a missing or malformed shard.
    """

    __slots__ = ("_home", "tensors")

    def __init__(self, index: Path) -> None:
        try:
            weight_map = msgspec.json.decode(index.read_bytes(), type=_Index).weight_map
        except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
            raise _bad(index, f"the shard index is not valid: {problem}") from None
        shards = {
            shard: SafetensorsFile(_sibling(index, shard)) for shard in sorted(set(weight_map.values()))
        }
        self._home: dict[str, SafetensorsFile] = {}
        tensors: dict[str, StoredTensor] = {}
        for name, shard in weight_map.items():
            if name not in shards[shard].tensors:
                raise _bad(index, f"tensor {name!r} is said to be in {shard}, which does not hold it")
            self._home[name] = shards[shard]
            tensors[name] = shards[shard].tensors[name]
        self.tensors: Mapping[str, StoredTensor] = MappingProxyType(tensors)

    def raw(self, name: str) -> npt.NDArray[np.uint8]:
        """The bytes of a tensor, as a read-only view of its mapped shard."""
        return self._home[name].raw(name)


def open_safetensors(directory: Path) -> SafetensorsFile | ShardedSafetensors:
    """The weights of a Hugging Face directory.

    Raises:
        InputError: T344, where there are none, or a file is malformed.
    """
    if (directory / INDEX).is_file():
        return ShardedSafetensors(directory / INDEX)
    if (directory / SINGLE).is_file():
        return SafetensorsFile(directory / SINGLE)
    raise InputError(
        f"expected {SINGLE} or {INDEX}, found neither",
        code=CODE,
        where=str(directory),
        hint="pickle files (*.bin) are never read: convert them with `save_pretrained`",
    )


def _bad(path: Path, message: str) -> InputError:
    return InputError(
        message, code=CODE, where=str(path), hint="fetch the file again: it is damaged or cut off"
    )


def _sibling(index: Path, shard: str) -> Path:
    path = index.parent / shard
    if Path(shard).name != shard or not path.is_file():
        raise _bad(index, f"the index names shard {shard!r}, which is not a file beside it")
    return path


def _map(path: Path) -> npt.NDArray[np.uint8]:
    try:
        if path.stat().st_size <= _LENGTH_BYTES:
            raise _bad(path, f"expected a safetensors header, found {path.stat().st_size} bytes in all")
        return np.memmap(path, dtype=np.uint8, mode="r").view(np.ndarray)
    except OSError as problem:
        raise _bad(path, f"cannot be read: {problem.strerror}") from None


def _read_header(path: Path, data: npt.NDArray[np.uint8]) -> dict[str, StoredTensor]:
    length = int.from_bytes(data[:_LENGTH_BYTES].tobytes(), "little")
    start = _LENGTH_BYTES + length
    if length > MAX_HEADER_BYTES or start > data.size:
        raise _bad(path, f"the header says it is {length:,} bytes long, the file is {data.size:,}")
    try:
        header = msgspec.json.decode(data[_LENGTH_BYTES:start].tobytes(), type=dict[str, msgspec.Raw])
        entries = {
            name: msgspec.json.decode(raw, type=_Entry)
            for name, raw in header.items()
            if name != "__metadata__"
        }
    except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
        raise _bad(path, f"the header is not valid: {problem}") from None
    return {name: _place(path, name, entry, start, data.size) for name, entry in entries.items()}


def _place(path: Path, name: str, entry: _Entry, start: int, file_size: int) -> StoredTensor:
    begin, end = entry.data_offsets
    if not 0 <= begin <= end or start + end > file_size:
        raise _bad(
            path,
            f"tensor {name!r} ends at byte {start + end:,}, the file has {file_size:,}: truncated or corrupt",
        )
    if any(size < 0 for size in entry.shape):
        raise _bad(path, f"tensor {name!r} has shape {entry.shape}")
    item = _ITEM_BYTES.get(entry.dtype)
    if item is not None and end - begin != prod(entry.shape) * item:
        raise _bad(
            path,
            f"tensor {name!r}: {entry.dtype}{entry.shape} needs {prod(entry.shape) * item:,} bytes, "
            f"found {end - begin:,}",
        )
    return StoredTensor(name, entry.dtype, tuple(entry.shape), start + begin, end - begin)
