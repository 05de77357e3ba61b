"""Time of an all-reduce over a tensor-parallel group, from measured curves, or from latency and links where there are none.

Between measured sizes: linear in the logarithms. Below the smallest: its time. Above the largest: its rate, bytes per second.
Measured times never fall with size here: where noise makes one fall, the largest so far stands. Between measured degrees: linear
in the logarithms. Beyond the largest: the slope of the last two goes on, but never falls.
"""

from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from ticktrue.errors import InputError

Floats = npt.NDArray[np.float64]


class CurveEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One system: microseconds[degree][size]."""

    device: str
    kernel: str
    bytes: list[int]
    degrees: list[int]
    microseconds: list[list[float]]


class CurveFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The measured curves, with their source and licence."""

    schema: Literal["ticktrue/allreduce/v1"]
    source: str
    date: str
    licence: str
    curve: dict[str, CurveEntry]


@dataclass(frozen=True, slots=True)
class Curve:
    """Measured all-reduce times of one system.

    Attributes:
        bytes: float64[sizes], message per GPU, rising.
        degrees: GPUs of the group, at least two of them, rising, from 2.
        seconds: float64[degrees, sizes], never falling with size.
    """

    kernel: str
    source: str
    bytes: Floats
    degrees: tuple[int, ...]
    seconds: Floats

    def time(self, degree: int, size: Floats) -> Floats:
        """Seconds of an all-reduce of `size` bytes per GPU over `degree` GPUs; 0 for one GPU."""
        if degree == 1:
            return np.zeros_like(size, dtype=np.float64)
        times = self._grid(degree)
        inside = np.clip(size, self.bytes[0], self.bytes[-1])
        value = np.exp(np.interp(np.log(inside), np.log(self.bytes), np.log(times)))
        return np.asarray(value * np.maximum(size / self.bytes[-1], 1.0))

    def _grid(self, degree: int) -> Floats:
        """Seconds at the measured sizes: measured, between two measured degrees, or beyond the last."""
        if degree in self.degrees:
            return np.asarray(self.seconds[self.degrees.index(degree)])
        upper = int(np.clip(np.searchsorted(self.degrees, degree), 1, len(self.degrees) - 1))
        low, high = self.degrees[upper - 1], self.degrees[upper]
        first, second = self.seconds[upper - 1], self.seconds[upper]
        slope = np.log(second / first) / np.log(high / low)
        grid = second * (degree / high) ** (np.maximum(slope, 0.0) if degree > high else slope)
        return np.asarray(np.maximum.accumulate(grid))


def curve_names() -> tuple[str, ...]:
    """Names of the measured curves."""
    return tuple(sorted(_file().curve))


def load_curve(name: str) -> Curve:
    """The measured curve of that name.

    Raises:
        InputError: T370, there is none.
    """
    file = _file()
    if name not in file.curve:
        raise InputError(
            f"expected a measured all-reduce curve ({', '.join(sorted(file.curve))}), found {name!r}",
            code="T370",
            where="curve",
        )
    entry = file.curve[name]
    seconds = np.maximum.accumulate(np.array(entry.microseconds, dtype=np.float64) * 1e-6, axis=1)
    return Curve(
        kernel=f"{entry.kernel} on {entry.device}",
        source=file.source,
        bytes=np.array(entry.bytes, dtype=np.float64),
        degrees=tuple(entry.degrees),
        seconds=seconds,
    )


def ring_time(degree: int, size: Floats, latency: float, link: float) -> Floats:
    """Seconds where nothing is measured: start-up `latency` and 2 (n − 1) / n messages over a link of that rate."""
    if degree == 1:
        return np.zeros_like(size, dtype=np.float64)
    return np.asarray(latency + 2 * (degree - 1) / degree * size / link)


def _file() -> CurveFile:
    data = files("ticktrue.plan").joinpath("data", "allreduce.json").read_bytes()
    return msgspec.json.decode(data, type=CurveFile)
