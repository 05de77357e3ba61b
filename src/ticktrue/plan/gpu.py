"""Time of a model's step on GPUs: a roofline per block, measured all-reduces, an overhead per kernel; with low and high.

A block (attention's weights, feed-forward, experts, head, cache) takes the longer of its bytes over the memory's rate and its
operations over the peak rate, each times its efficiency. Blocks, all-reduces and kernel overheads follow one another: nothing
overlaps. Low has every fact at its fastest end, high at its slowest: an envelope, not a confidence interval.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ticktrue.errors import DoesNotFit
from ticktrue.hw import Fact, Gpu
from ticktrue.plan.allreduce import Curve, Floats, load_curve, ring_time
from ticktrue.plan.demand import Demand, Steps, check_steps, demand
from ticktrue.plan.formats import Formats
from ticktrue.plan.traffic import Traffic

# More of these is slower; of every other fact, faster.
_SLOWER = frozenset({"kernel_overhead_ns", "stage_hop_ns", "allreduce_scale", "allreduce_latency_ns"})
# These say what fits or is allowed, not how long it takes.
_NO_TIME = frozenset({"domain_gpus", "memory_bytes", "power_watts"})
_ALL_REDUCES_PER_LAYER = 2  # after attention, after the feed-forward

Pick = Callable[[Fact], float]


@dataclass(frozen=True, slots=True)
class Parts:
    """Seconds of a step, float64 of the configurations' shape; the parts add up to `total_s`.

    `weights_s`, `kv_s`: the memory's time for weights and for the cache. `compute_s`: what operations take beyond it.
    """

    weights_s: Floats
    kv_s: Floats
    compute_s: Floats
    allreduce_s: Floats
    overhead_s: Floats

    @property
    def total_s(self) -> Floats:
        """Seconds of the step."""
        return np.asarray(self.weights_s + self.kv_s + self.compute_s + self.allreduce_s + self.overhead_s)


@dataclass(frozen=True, slots=True)
class GpuTime:
    """Time of each configuration: best, low (every fact at its fastest end) and high (at its slowest).

    `resident_bytes` stay in the memory of each GPU; `fits` where that is no more than it has.
    """

    best: Parts
    low: Parts
    high: Parts
    resident_bytes: Floats
    fits: npt.NDArray[np.bool_]


def step_time(model: Traffic, gpu: Gpu, formats: Formats, steps: Steps) -> GpuTime:
    """Time of a step in every configuration; also of those that do not fit (`fits`).

    Raises:
        UsageError: T143 for a number of GPUs that the heads or the system do not allow; T144 for a value out of range.
    """
    check_steps(model, gpu, steps)
    need = demand(model, gpu, formats, steps)
    curve = load_curve(gpu.curve) if gpu.curve else None
    return GpuTime(
        best=_parts(need, gpu, curve, _best),
        low=_parts(need, gpu, curve, _fastest),
        high=_parts(need, gpu, curve, _slowest),
        resident_bytes=need.resident,
        fits=np.asarray(need.resident <= gpu.fact("memory_bytes").value),
    )


def require_fit(gpu: Gpu, time: GpuTime) -> None:
    """Refuses configurations whose weights and cache are more than the memory.

    Raises:
        DoesNotFit: T310, with the bytes of the largest.
    """
    if time.fits.all():
        return
    worst, has = float(time.resident_bytes.max()), int(gpu.fact("memory_bytes").value)
    raise DoesNotFit(
        f"weights and cache take {worst:,.0f} bytes of each GPU, {gpu.name} has {has:,}",
        where="memory",
        hint="more GPUs or stages, a smaller format, fewer sequences or a shorter context",
    )


@dataclass(frozen=True, slots=True)
class Sway:
    """Seconds of a step with one fact at its fastest and at its slowest end, the others at their best."""

    fact: Fact
    low_s: Floats
    high_s: Floats


def sensitivity(model: Traffic, gpu: Gpu, formats: Formats, steps: Steps) -> tuple[Sway, ...]:
    """How far each uncertain fact moves the time, the one that moves it furthest (summed over configurations) first."""
    check_steps(model, gpu, steps)
    need = demand(model, gpu, formats, steps)
    curve = load_curve(gpu.curve) if gpu.curve else None
    found = []
    for fact in gpu.facts:
        if fact.name in _NO_TIME or fact.low == fact.high:
            continue
        ends = [_parts(need, gpu, curve, _only(fact.name, end)).total_s for end in (_fastest, _slowest)]
        found.append(Sway(fact, *ends))
    return tuple(sorted(found, key=lambda sway: -float(np.sum(sway.high_s - sway.low_s))))


def _best(fact: Fact) -> float:
    return float(fact.value)


def _fastest(fact: Fact) -> float:
    return float(fact.low if fact.name in _SLOWER else fact.high)


def _slowest(fact: Fact) -> float:
    return float(fact.high if fact.name in _SLOWER else fact.low)


def _only(name: str, end: Pick) -> Pick:
    """The best of every fact but one."""
    return lambda fact: end(fact) if fact.name == name else _best(fact)


def _parts(need: Demand, gpu: Gpu, curve: Curve | None, pick: Pick) -> Parts:
    """The time under one choice of the facts' values."""
    memory = pick(gpu.fact("memory_bytes_per_second")) * pick(gpu.fact("bandwidth_efficiency"))
    efficiency = pick(gpu.fact("compute_efficiency"))
    weights = kv = compute = np.zeros_like(need.resident)
    for block in need.blocks:
        reading = block.bytes / memory
        computing = block.operations / (pick(gpu.fact(block.rate)) * efficiency)
        compute = compute + np.maximum(computing - reading, 0.0)
        if block.name == "kv":
            kv = kv + reading
        else:
            weights = weights + reading
    overhead = need.kernels * pick(gpu.fact("kernel_overhead_ns")) * 1e-9
    hops = need.hops * pick(gpu.fact("stage_hop_ns")) * 1e-9
    return Parts(weights, kv, compute, _all_reduces(need, gpu, curve, pick), np.asarray(overhead + hops))


def _all_reduces(need: Demand, gpu: Gpu, curve: Curve | None, pick: Pick) -> Floats:
    """Seconds of a step's all-reduces, each over `gpus` GPUs."""
    total = np.zeros_like(need.resident)
    for degree in np.unique(need.gpus).tolist():
        at = need.gpus == degree
        if degree > 1:
            layer = _one(degree, need.layer_message[at], gpu, curve, pick)
            end = np.where(
                need.end_message[at] > 0, _one(degree, need.end_message[at], gpu, curve, pick), 0.0
            )
            total[at] = need.layers * _ALL_REDUCES_PER_LAYER * layer + end
    return total


def _one(degree: int, size: Floats, gpu: Gpu, curve: Curve | None, pick: Pick) -> Floats:
    if curve is not None:
        return curve.time(degree, np.maximum(size, 1.0)) * pick(gpu.fact("allreduce_scale"))
    latency = pick(gpu.fact("allreduce_latency_ns")) * 1e-9
    return ring_time(degree, size, latency, pick(gpu.fact("link_bytes_per_second")))
