"""Time of a step on GPUs: by hand, in its limits, and as a function that never turns the wrong way."""

import time
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticktrue.errors import DoesNotFit, UsageError
from ticktrue.hw import Gpu, list_gpus, load_gpu
from ticktrue.model.count import known_spec, parameters
from ticktrue.plan.demand import Steps, decode_steps, legal_degrees, prefill_steps
from ticktrue.plan.formats import BF16, STORAGE, Formats, bytes_per_number, rate_fact
from ticktrue.plan.gpu import GpuTime, Parts, require_fit, sensitivity, step_time
from ticktrue.plan.traffic import Traffic, traffic

NAMES = ("llama-3.1-8b", "llama-3.1-70b", "gemma-4-31b", "gpt-oss-120b", "qwen3-235b-a22b", "deepseek-v3")
MODELS = {name: traffic(known_spec(name)) for name in NAMES}
GPUS = {gpu.name: gpu for gpu in list_gpus()}
FORMATS = (BF16, Formats("fp8", "fp8", "fp8", "fp8"), Formats(ffn="nvfp4"), Formats("int4", "int4", "int8"))
ROUNDING = 1 - 1e-12


def total(model: Traffic, gpu: Gpu, steps: Steps, formats: Formats = BF16) -> float:
    return float(step_time(model, gpu, formats, steps).best.total_s)


def test_llama_on_one_h100_by_hand() -> None:
    found = step_time(MODELS["llama-3.1-8b"], GPUS["h100"], BF16, decode_steps(1, 1, 2_048)).best
    memory = 3_350e9 * GPUS["h100"].fact("bandwidth_efficiency").value
    read = parameters(known_spec("llama-3.1-8b")) - 128_256 * 4_096 + 4_096
    assert float(found.weights_s) == pytest.approx(2 * read / memory, rel=1e-12)
    assert float(found.kv_s) == pytest.approx(2 * 65_536 * 2_049 / memory, rel=1e-12)
    assert float(found.overhead_s) == pytest.approx(
        292 * GPUS["h100"].fact("kernel_overhead_ns").value * 1e-9
    )
    assert float(found.compute_s) == float(found.allreduce_s) == 0.0


def test_all_reduces_are_two_a_layer_and_one_gather_of_the_logits() -> None:
    model, gpu = MODELS["llama-3.1-70b"], GPUS["h100"]
    found = float(step_time(model, gpu, BF16, decode_steps(8, 1, 100)).best.allreduce_s)
    whole = float(step_time(model, gpu, BF16, Steps(gpus=8, context=100, whole_head=True)).best.allreduce_s)
    assert whole == pytest.approx(160 * 3.559e-6)  # the measured time of 16 KiB over eight
    assert 3.8e-6 < found - whole < 10.2e-6  # 128 KiB of logits, half of an all-reduce's traffic


def test_prefill_is_bound_by_products() -> None:
    model, gpu = MODELS["llama-3.1-70b"], GPUS["h100"]
    found = step_time(model, gpu, BF16, prefill_steps(8, 1, 8_192)).best
    rate = 8 * 989e12 * gpu.fact("compute_efficiency").value
    body = sum(piece.elements for piece in model.pieces if piece.role in {"attention", "ffn"})
    products = 2 * body * 8_192
    scores = 80 * 4 * 64 * 128 * 8_192 * 8_193 / 2
    spent = (products + scores) / rate
    assert float(found.compute_s + found.weights_s + found.kv_s) == pytest.approx(spent, rel=0.002)
    assert float(found.compute_s) > 0.9 * spent


def test_prefill_after_a_cached_prefix_costs_the_new_tokens() -> None:
    model, gpu = MODELS["llama-3.1-8b"], GPUS["b200"]
    whole = total(model, gpu, prefill_steps(1, 1, 65_536))
    rest = total(model, gpu, prefill_steps(1, 1, 32_768, cached=32_768))
    first = total(model, gpu, prefill_steps(1, 1, 32_768))
    assert first < rest < whole
    overhead = float(step_time(model, gpu, BF16, prefill_steps(1, 1, 1)).best.total_s)
    assert first + rest == pytest.approx(whole, abs=3 * overhead)


def test_a_sliding_window_stops_the_growth() -> None:
    model, gpu = MODELS["gemma-4-31b"], GPUS["h200"]
    kv = step_time(model, gpu, BF16, decode_steps(1, 1, np.array([1_024, 1_124, 1_224]))).best.kv_s
    assert np.diff(kv) == pytest.approx([100 * 10 * 4_096 * 2 / (4.8e12 * 0.83)] * 2)


def test_formats_count_their_scales_and_fall_back_to_16_bits() -> None:
    assert [bytes_per_number(f) for f in STORAGE] == [2.0, 1.0, 0.5625, 0.53125, 1.0, 0.625]
    assert rate_fact("nvfp4", GPUS["b200"]) == "fp4_flops"
    assert rate_fact("nvfp4", GPUS["h100"]) == rate_fact("fp8", GPUS["a100"]) == "bf16_flops"
    assert rate_fact("int8", GPUS["a100"]) == "bf16_flops"  # of weights only


def test_stages_share_the_memory_and_add_a_hop() -> None:
    model, gpu = MODELS["llama-3.1-70b"], GPUS["wse-3"]
    one, four = (step_time(model, gpu, BF16, Steps(stages=n, context=100)) for n in (1, 4))
    assert not one.fits
    assert four.fits
    assert float(four.resident_bytes) == pytest.approx(float(one.resident_bytes) / 4)
    assert float(four.best.total_s - one.best.total_s) == pytest.approx(3 * 5e-6)


DEGREES = st.sampled_from([1, 2, 4, 8])
CONFIGURATION = {
    "name": st.sampled_from(NAMES),
    "gpu": st.sampled_from(sorted(set(GPUS) - {"wse-3"})),
    "formats": st.sampled_from(FORMATS),
    "gpus": DEGREES,
    "batch": st.integers(1, 512),
    "context": st.integers(1, 300_000),
}


@given(**CONFIGURATION, more=st.integers(1, 100_000))
def test_monotone_in_context_and_batch(name, gpu, formats, gpus, batch, context, more) -> None:
    model, kind = MODELS[name], GPUS[gpu]
    here = total(model, kind, decode_steps(gpus, batch, context), formats)
    assert total(model, kind, decode_steps(gpus, batch, context + more), formats) >= here * ROUNDING
    assert total(model, kind, decode_steps(gpus, batch + more, context), formats) >= here * ROUNDING


@given(**CONFIGURATION, factor=st.floats(1.0, 50.0))
def test_monotone_in_every_fact(name, gpu, formats, gpus, batch, context, factor) -> None:
    model, kind, steps = MODELS[name], GPUS[gpu], decode_steps(gpus, batch, context)
    here = total(model, kind, steps, formats)
    for fact in ("memory_bytes_per_second", "bf16_flops", "bandwidth_efficiency", "compute_efficiency"):
        assert (
            total(model, kind.with_fact(fact, kind.fact(fact).value * factor), steps, formats)
            <= here / ROUNDING
        )
    slower = kind.with_fact("kernel_overhead_ns", kind.fact("kernel_overhead_ns").value * factor)
    assert total(model, slower, steps, formats) >= here * ROUNDING


@given(**CONFIGURATION)
def test_low_best_high_and_parts(name, gpu, formats, gpus, batch, context) -> None:
    model, kind, steps = MODELS[name], GPUS[gpu], decode_steps(gpus, batch, context)
    found = step_time(model, kind, formats, steps)
    assert found.low.total_s <= found.best.total_s <= found.high.total_s
    for parts in (found.low, found.best, found.high):
        each = [float(getattr(parts, field.name)) for field in fields(Parts)]
        assert min(each) >= 0
        assert sum(each) == pytest.approx(float(parts.total_s))
    for sway in sensitivity(model, kind, formats, steps):
        ends = (float(sway.low_s), float(sway.high_s))
        assert found.low.total_s * ROUNDING <= ends[0] <= found.best.total_s / ROUNDING
        assert found.best.total_s * ROUNDING <= ends[1] <= found.high.total_s / ROUNDING


@given(
    gpu=st.sampled_from(["h100", "b200", "gb300-nvl72", "mi300x"]),
    gpus=st.sampled_from([1, 2, 4]),
    batch=st.integers(1, 64),
    context=st.integers(1, 50_000),
)
def test_twice_the_gpus_halve_what_can_be_cut(gpu, gpus, batch, context) -> None:
    model, kind = MODELS["llama-3.1-70b"], GPUS[gpu]
    one, two = (step_time(model, kind, BF16, decode_steps(n, batch, context)).best for n in (gpus, 2 * gpus))
    whole = [float(p.weights_s + p.kv_s + p.compute_s) for p in (one, two)]
    assert 0.5 * ROUNDING <= whole[1] / whole[0] <= 0.505  # norms and the embedding's rows are not cut
    assert float(two.kv_s) == pytest.approx(float(one.kv_s) / 2)
    assert float(two.overhead_s) == float(one.overhead_s)
    assert float(two.total_s) >= float(one.total_s) / 2


def test_many_configurations_at_once_are_the_single_ones_and_fast() -> None:
    rng = np.random.default_rng(7)
    model, gpu = MODELS["deepseek-v3"], GPUS["gb300-nvl72"]
    n = 20_000
    gpus = rng.choice(legal_degrees(model, gpu), n)
    batch, context = rng.integers(1, 1_024, n), rng.integers(1, 160_000, n)
    steps = Steps(gpus=gpus, batch=batch, context=context)
    begin = time.perf_counter()
    found = step_time(model, gpu, FORMATS[1], steps)
    assert n / (time.perf_counter() - begin) > 10_000
    for i in range(0, n, 1_999):
        single = step_time(model, gpu, FORMATS[1], decode_steps(int(gpus[i]), int(batch[i]), int(context[i])))
        for parts in ("best", "low", "high"):
            assert getattr(single, parts).total_s == pytest.approx(
                getattr(found, parts).total_s[i], rel=1e-12
            )
        assert single.fits == found.fits[i]


def refused(steps: Steps, gpu: str = "h100", model: str = "llama-3.1-8b") -> UsageError:
    with pytest.raises(UsageError) as err:
        step_time(MODELS[model], GPUS[gpu], BF16, steps)
    return err.value


@pytest.mark.parametrize(
    ("gpus", "gpu"),
    [(3, "h100"), (16, "h100"), (64, "gb300-nvl72"), (2, "wse-3"), (np.array([1, 2, 5]), "h100")],
)
def test_degree_that_the_heads_or_the_system_do_not_allow(gpus, gpu: str) -> None:
    error = refused(Steps(gpus=gpus, context=10), gpu)
    assert error.code == "T143"
    assert "32 heads" in error.message
    assert "degrees that can: 1" in error.hint


@pytest.mark.parametrize(
    ("steps", "where"),
    [
        (Steps(context=0), "context"),
        (Steps(context=-5), "context"),
        (Steps(context=np.array([5, -1])), "context"),
        (Steps(context=3, tokens=4), "context"),
        (Steps(batch=0), "batch"),
        (Steps(gpus=-1), "gpus"),
        (Steps(tokens=0), "tokens"),
        (Steps(stages=0), "stages"),
        (Steps(stages=33), "stages"),
        (Steps(context=5, logits=2), "logits"),
        (prefill_steps(1, 1, 0), "tokens"),
        (prefill_steps(1, 1, 10, cached=-1), "context"),
    ],
)
def test_values_out_of_range(steps: Steps, where: str) -> None:
    error = refused(steps)
    assert (error.code, error.where) == ("T144", where)


@pytest.mark.parametrize("bad", [1.5, True, "8", 1 << 70, np.array([1.0])])
def test_what_is_no_whole_number(bad) -> None:
    with pytest.raises(UsageError, match="whole numbers") as err:
        Steps(batch=bad)
    assert (err.value.code, err.value.where) == ("T144", "batch")


def test_shapes_that_do_not_broadcast() -> None:
    with pytest.raises(UsageError, match="broadcast") as err:
        Steps(batch=np.array([1, 2]), context=np.array([1, 2, 3]))
    assert err.value.code == "T144"


def test_unknown_format() -> None:
    with pytest.raises(UsageError, match="fp7") as err:
        Formats(kv="fp7")
    assert (err.value.code, err.value.where) == ("T145", "kv")


def test_what_does_not_fit_is_refused_with_its_bytes() -> None:
    model, gpu = MODELS["llama-3.1-70b"], load_gpu("h100")
    found: GpuTime = step_time(model, gpu, BF16, Steps(gpus=np.array([1, 8]), context=1_000))
    assert found.fits.tolist() == [False, True]
    with pytest.raises(DoesNotFit, match="141,4") as err:
        require_fit(gpu, found)
    assert err.value.code == "T310"
    require_fit(gpu, step_time(model, gpu, BF16, decode_steps(8, 1, 1_000)))
