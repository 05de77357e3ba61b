"""Stored bytes to canonical values: matrices as bfloat16 bits, vectors as float32 (numerics rows 1 and 2)."""

from collections.abc import Iterator
from functools import cache
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ticktrue.errors import UnsupportedModel
from ticktrue.model.bf16 import check_bf16, check_float32, from_bf16, to_bf16
from ticktrue.model.tensor_file import StoredTensor

BLOCK_TYPES = ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K")
SUPPORTED = ("F32", "F16", "BF16", *BLOCK_TYPES)

# Values per step: float32 intermediates of this size stay in a core's cache.
_CHUNK_VALUES = 1 << 17


def check_kind(tensor: StoredTensor, where: str) -> None:
    """Refuse, by name, a number format that is not supported.

    Raises:
        UnsupportedModel: T331.
    """
    if tensor.kind not in SUPPORTED:
        raise UnsupportedModel(
            f"tensor {tensor.name!r} has type {tensor.kind}; supported: {', '.join(SUPPORTED)}",
            code="T331",
            where=where,
        )


def matrix_bf16(raw: npt.NDArray[np.uint8], tensor: StoredTensor, name: str) -> npt.NDArray[np.uint16]:
    """uint16[rows, columns]: bfloat16 bits of a stored matrix; BF16 stays a view of the file.

    Raises:
        InputError: T346, naming the tensor and the index, for a value that is not finite in bfloat16.
    """
    if tensor.kind == "BF16":
        bits = np.require(raw.view(np.uint16), requirements="A").reshape(tensor.shape)
        check_bf16(bits, name)
        return bits
    rows = raw.reshape(tensor.shape[0], -1)
    columns = prod(tensor.shape[1:])
    out = np.empty((tensor.shape[0], columns), dtype=np.uint16)
    step = max(1, _CHUNK_VALUES // columns)
    with np.errstate(over="ignore", invalid="ignore"):  # non-finite values are reported by to_bf16
        for first in range(0, rows.shape[0], step):
            values = _float32(rows[first : first + step], tensor.kind)
            out[first : first + step] = to_bf16(values, name, first * columns)
    return out.reshape(tensor.shape)


def matrix_float32(raw: npt.NDArray[np.uint8], tensor: StoredTensor, name: str) -> npt.NDArray[np.float32]:
    """float32[rows, columns]: a stored matrix as numerics row 1 gives it.

    Raises:
        InputError: T346, naming the tensor and the index, for a NaN or an infinity.
    """
    out = np.empty(tensor.shape, dtype=np.float32)
    for first, values in float32_rows(raw, tensor, name):
        out[first : first + len(values)] = values
    return out


def float32_rows(
    raw: npt.NDArray[np.uint8], tensor: StoredTensor, name: str
) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
    """A stored matrix as float32, some rows at a time: (first row, float32[rows, columns]).

    Raises:
        InputError: T346, naming the tensor and the index, for a NaN or an infinity.
    """
    rows = raw.reshape(tensor.shape[0], -1)
    columns = prod(tensor.shape[1:])
    step = max(1, _CHUNK_VALUES // columns)
    for first in range(0, rows.shape[0], step):
        with np.errstate(over="ignore", invalid="ignore"):  # non-finite values are reported below
            values = _float32(rows[first : first + step], tensor.kind)
        check_float32(values, name, first * columns)
        yield first, values


def vector_float32(raw: npt.NDArray[np.uint8], tensor: StoredTensor, name: str) -> npt.NDArray[np.float32]:
    """float32[n]: a stored norm weight, exactly as read.

    Raises:
        InputError: T346, for a NaN or an infinity.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        values = _float32(raw.reshape(1, -1), tensor.kind).reshape(tensor.shape)
    check_float32(values, name)
    return np.array(values)


def _float32(rows: npt.NDArray[np.uint8], kind: str) -> npt.NDArray[np.float32]:
    if kind == "F32":
        return rows.view(np.float32)
    if kind == "F16":
        return rows.view(np.float16).astype(np.float32)
    if kind == "BF16":
        return from_bf16(rows.view(np.uint16))
    values: npt.NDArray[np.float32] = _block_decoder(kind)(rows)
    return values


@cache
def _block_decoder(kind: str) -> Any:  # noqa: ANN401  gguf is untyped
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize

    block_type = GGMLQuantizationType[kind]
    return lambda rows: dequantize(rows, block_type)
