"""A GPU as a roofline: its facts by name. Peak rates are dense, links one direction, memory that of one GPU.

What it does not know: caches, clocks under load, kernels. Those are in the efficiencies and the kernel overhead, facts too.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ticktrue.errors import InputError
from ticktrue.hw.fact import Fact, nearest


@dataclass(frozen=True, slots=True)
class GpuFactSpec:
    """What a fact of this name must look like. `required`: every GPU has it; `least`: its lowest legal value."""

    name: str
    unit: str
    meaning: str
    required: bool = True
    least: float = 0.0


GPU_FACTS: tuple[GpuFactSpec, ...] = (
    GpuFactSpec(
        "domain_gpus",
        "GPUs",
        "reach one another over the fast links; the largest tensor-parallel group",
        least=1,
    ),
    GpuFactSpec("memory_bytes", "bytes", "memory of one GPU", least=1),
    GpuFactSpec("memory_bytes_per_second", "bytes/s", "peak rate of that memory", least=1),
    GpuFactSpec("bf16_flops", "FLOP/s", "peak dense rate of products at 16 bits", least=1),
    GpuFactSpec(
        "fp8_flops", "FLOP/s", "peak dense rate of products at 8 bits, floating", required=False, least=1
    ),
    GpuFactSpec(
        "fp4_flops", "FLOP/s", "peak dense rate of products at 4 bits, floating", required=False, least=1
    ),
    GpuFactSpec(
        "int8_ops", "op/s", "peak dense rate of products at 8 bits, integer", required=False, least=1
    ),
    GpuFactSpec(
        "link_bytes_per_second",
        "bytes/s",
        "to the rest of the domain, one direction",
        required=False,
        least=1,
    ),
    GpuFactSpec("power_watts", "W", "the most that one GPU may draw", required=False, least=1),
    GpuFactSpec("bandwidth_efficiency", "ratio", "of the memory's peak rate that a kernel reaches"),
    GpuFactSpec("compute_efficiency", "ratio", "of the peak rate of products that a kernel reaches"),
    GpuFactSpec("kernel_overhead_ns", "ns", "lost at each kernel: launch, fill and drain of its pipeline"),
    GpuFactSpec("stage_hop_ns", "ns", "from one pipeline stage to the next"),
    GpuFactSpec("allreduce_scale", "ratio", "of the measured all-reduce curve", required=False),
    GpuFactSpec(
        "allreduce_latency_ns",
        "ns",
        "of an all-reduce of no bytes, where no curve is measured",
        required=False,
    ),
)

SPEC_OF_GPU: Mapping[str, GpuFactSpec] = MappingProxyType({spec.name: spec for spec in GPU_FACTS})


@dataclass(frozen=True, slots=True)
class Gpu:
    """One kind of GPU, as it stands in its system.

    `curve` names the measured all-reduce times (`plan/data/allreduce.json`); empty: none, and the two facts
    `link_bytes_per_second` and `allreduce_latency_ns` stand in for it where the domain has more than one GPU.

    Raises:
        InputError: T370 a fact is missing, unknown or named twice; T371 a wrong unit or a value out of bounds.
    """

    name: str
    title: str
    curve: str
    facts: tuple[Fact, ...]
    _by_name: dict[str, Fact] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", {fact.name: fact for fact in self.facts})
        if len(self._by_name) != len(self.facts):
            raise InputError(
                "expected each fact once, found one twice", code="T370", where=f"gpu {self.name}"
            )
        for fact in self.facts:
            _check_fact(self.name, fact)
        missing = [name for name in _needed(self) if name not in self._by_name]
        if missing:
            raise InputError(
                f"expected the facts {', '.join(missing)}, found none", code="T370", where=f"gpu {self.name}"
            )

    def fact(self, name: str) -> Fact:
        """The fact of that name.

        Raises:
            InputError: T372, there is none; the hint names the nearest.
        """
        found = self.get(name)
        if found is None:
            raise InputError(
                f"expected a fact of GPU {self.name}, found {name!r}",
                code="T372",
                hint=nearest(name, self._by_name),
            )
        return found

    def get(self, name: str) -> Fact | None:
        """The fact of that name, or nothing: not every GPU has every rate."""
        return self._by_name.get(name)

    def with_fact(self, name: str, value: float) -> "Gpu":
        """This GPU with one value replaced: for a sensitivity run or a user's `--set`."""
        new = self.fact(name).replaced(value)
        facts = tuple(new if fact.name == name else fact for fact in self.facts)
        return Gpu(self.name, self.title, self.curve, facts)


def _needed(gpu: Gpu) -> list[str]:
    """Names of the facts that this GPU must have."""
    names = [spec.name for spec in GPU_FACTS if spec.required]
    domain = gpu.get("domain_gpus")
    if gpu.curve:
        names.append("allreduce_scale")
    elif domain is not None and domain.value > 1:
        names += ["allreduce_latency_ns", "link_bytes_per_second"]
    return names


def _check_fact(owner: str, fact: Fact) -> None:
    """Checks a fact against its entry in `GPU_FACTS`."""
    where = f"gpu {owner}, fact {fact.name}"
    spec = SPEC_OF_GPU.get(fact.name)
    if spec is None:
        raise InputError(
            f"expected a fact that a GPU can have, found {fact.name!r}",
            code="T370",
            where=where,
            hint=nearest(fact.name, SPEC_OF_GPU),
        )
    if fact.unit != spec.unit:
        raise InputError(f"expected the unit {spec.unit!r}, found {fact.unit!r}", code="T371", where=where)
    if fact.low < spec.least or (spec.unit == "ratio" and fact.low <= 0):
        raise InputError(f"expected at least {spec.least}, found {fact.low}", code="T371", where=where)
