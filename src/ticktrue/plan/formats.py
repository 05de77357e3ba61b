"""Number formats of a deployment: what a weight or a cached number takes in bytes, and at which rate its products run."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType

from ticktrue.errors import UsageError
from ticktrue.hw import Gpu


@dataclass(frozen=True, slots=True)
class Storage:
    """`bits` per number with its share of the scales; `rate` is the fact that has the peak of its products."""

    bits: float
    rate: str


# Scales: NVFP4 one 8-bit scale per 16 numbers, MXFP4 one per 32; int4 in groups of 32 with a 16-bit scale and zero each.
# Integer formats are of weights only: activations stay in bf16, so products run at its rate.
STORAGE: Mapping[str, Storage] = MappingProxyType(
    {
        "bf16": Storage(16.0, "bf16_flops"),
        "fp8": Storage(8.0, "fp8_flops"),
        "nvfp4": Storage(4.0 + 8 / 16, "fp4_flops"),
        "mxfp4": Storage(4.0 + 8 / 32, "fp4_flops"),
        "int8": Storage(8.0, "bf16_flops"),
        "int4": Storage(4.0 + 32 / 32, "bf16_flops"),
    }
)


@dataclass(frozen=True, slots=True)
class Formats:
    """Formats of the four kinds of numbers that a step reads: keys of `STORAGE`.

    Norms, biases, the router and the embedding's rows are bf16 always.

    Raises:
        UsageError: T145, for a format that is not known.
    """

    attention: str = "bf16"
    ffn: str = "bf16"
    head: str = "bf16"
    kv: str = "bf16"

    def __post_init__(self) -> None:
        for item in fields(self):
            name = getattr(self, item.name)
            if name not in STORAGE:
                raise UsageError(
                    f"expected one of the formats {', '.join(STORAGE)}, found {name!r}",
                    code="T145",
                    where=item.name,
                )


BF16 = Formats()


def bytes_per_number(fmt: str) -> float:
    """Bytes that one number of that format takes, its share of the scales included."""
    return STORAGE[fmt].bits / 8


def rate_fact(fmt: str, gpu: Gpu) -> str:
    """Name of the fact with the peak rate of that format's products; bf16's where the GPU has none of its own."""
    name = STORAGE[fmt].rate
    return name if gpu.get(name) is not None else "bf16_flops"
