"""A tensor as it lies in a file: name, number format, shape and raw bytes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Where one tensor lies; `shape` is in row-major order, outermost first."""

    name: str
    kind: str  # F32, F16, BF16, or a GGUF block type such as Q4_1
    shape: tuple[int, ...]
    offset: int  # from the start of the file
    size: int  # bytes


class TensorFile(Protocol):
    """Named tensors of one model, whatever the file format."""

    @property
    def tensors(self) -> Mapping[str, StoredTensor]:
        """Every tensor, by the name the file gives it."""
        ...

    def raw(self, name: str) -> npt.NDArray[np.uint8]:
        """The bytes of a tensor, as a read-only view of the mapped file."""
        ...


Progress = Callable[[str, int, int], None]
"""Called with (what, done, total); total is 0 while it is unknown."""
