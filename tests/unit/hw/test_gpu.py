"""GPUs of the catalog: every number sourced and ranged, rates that add up to the racks' published ones, errors by code."""

import re
import shutil
from pathlib import Path

import pytest

import ticktrue.hw
from ticktrue.errors import InputError, UsageError
from ticktrue.hw import GPU_FACTS, Fact, Gpu, list_gpus, load_gpu

SHIPPED = Path(ticktrue.hw.__file__).parent / "catalog"
NAMES = (
    "a100",
    "b200",
    "b300",
    "gb200-nvl72",
    "gb300-nvl72",
    "h100",
    "h200",
    "mi300x",
    "mi355x",
    "rubin-nvl72",
    "wse-3",
)
GPUS = {gpu.name: gpu for gpu in list_gpus()}
FACTS = [pytest.param(fact, id=f"{gpu.name}-{fact.name}") for gpu in GPUS.values() for fact in gpu.facts]


def test_catalog_lists_exactly_the_shipped_gpus() -> None:
    assert tuple(GPUS) == NAMES


@pytest.mark.parametrize("fact", FACTS)
def test_every_number_has_source_date_grade_range_and_reason(fact: Fact) -> None:
    assert re.fullmatch(r"[A-Z0-9]+: .{10,}", fact.source)
    assert re.fullmatch(r"20\d\d(-\d\d){0,2}", fact.date)
    assert fact.low <= fact.value <= fact.high
    assert len(fact.why) >= 5
    assert (fact.grade == "assumed") == fact.source.startswith("ASSUMED")


@pytest.mark.parametrize("name", NAMES)
def test_efficiencies_overheads_and_scales_have_a_range(name: str) -> None:
    for fact in GPUS[name].facts:
        if fact.unit in {"ratio", "ns"}:
            assert fact.low < fact.high, fact.name
        if fact.name.endswith("_efficiency"):
            assert fact.high <= 1


def test_rates_of_a_rubin_rack_are_the_published_ones() -> None:
    def rack(fact: str) -> float:
        return 72 * GPUS["rubin-nvl72"].fact(fact).value

    assert rack("fp8_flops") == 1_260e15
    assert rack("fp4_flops") == 2_520e15
    assert rack("memory_bytes_per_second") == pytest.approx(1_580e12, rel=0.005)
    assert rack("memory_bytes") == pytest.approx(20.7e12, rel=0.005)
    assert 2 * rack("link_bytes_per_second") == pytest.approx(260e12, rel=0.005)


@pytest.mark.parametrize("name", NAMES)
def test_a_narrower_format_is_never_slower(name: str) -> None:
    gpu = GPUS[name]
    rates = [fact.value for key in ("bf16_flops", "fp8_flops", "fp4_flops") if (fact := gpu.get(key))]
    assert rates == sorted(rates)


def test_unknown_gpu_is_a_usage_error_with_the_near_names() -> None:
    with pytest.raises(UsageError) as err:
        load_gpu("gb200")
    assert err.value.code == "T110"
    assert "gb200-nvl72" in err.value.hint


def test_unknown_fact_is_refused_and_a_rate_may_be_absent() -> None:
    with pytest.raises(InputError) as err:
        GPUS["a100"].fact("fp8_flop")
    assert err.value.code == "T372"
    assert GPUS["a100"].get("fp8_flops") is None


def test_an_overridden_fact_says_so_and_keeps_its_range() -> None:
    fact = GPUS["h100"].with_fact("kernel_overhead_ns", 1_000).fact("kernel_overhead_ns")
    assert (fact.value, fact.low, fact.grade) == (1_000, 1_000, "assumed")
    assert fact.source.startswith("overridden")
    assert fact.high == GPUS["h100"].fact("kernel_overhead_ns").high


BAD = {
    "unit": ('unit = "GPUs"', 'unit = "chips"', "T371", "chips"),
    "bound": ("value = 0.834", "value = 0.0\nlow=0.0\nhigh=0.5 #", "T370", "TOML"),
    "range": ("low = 0.75", "low = 0.9", "T371", "0.9 <= 0.834"),
    "name": ('name = "a100"', 'name = "a101"', "T370", "a101"),
    "source": ('source = "GPTFAST"', 'source = "GPTFASTER"', "T370", "GPTFASTER"),
    "unknown": ("[fact.domain_gpus]", "[fact.domain]", "T370", "domain"),
    "key": ('curve = "a100"', 'curves = "a100"', "T370", "curves"),
    "zero": ("value = 312_000_000_000_000", "value = 0", "T371", "at least 1"),
}


@pytest.mark.parametrize("case", BAD)
def test_malformed_file_is_one_error_with_its_place(tmp_path: Path, case: str) -> None:
    old, new, code, found = BAD[case]
    (tmp_path / "gpu").mkdir()
    shutil.copy(SHIPPED / "sources.toml", tmp_path / "sources.toml")
    text = (SHIPPED / "gpu" / "a100.toml").read_text()
    assert old in text
    (tmp_path / "gpu" / "a100.toml").write_text(text.replace(old, new, 1))
    with pytest.raises(InputError) as err:
        load_gpu("a100", tmp_path)
    assert err.value.code == code
    assert found in str(err.value)
    assert "a100" in err.value.where


@pytest.mark.parametrize("gone", [spec.name for spec in GPU_FACTS if spec.required])
def test_a_gpu_lacks_no_required_fact(gone: str) -> None:
    whole = GPUS["h100"]
    with pytest.raises(InputError, match=gone) as err:
        Gpu("h100", whole.title, whole.curve, tuple(fact for fact in whole.facts if fact.name != gone))
    assert err.value.code == "T370"


def test_without_a_curve_links_must_be_known_unless_alone() -> None:
    whole = GPUS["mi300x"]
    few = tuple(fact for fact in whole.facts if fact.name != "link_bytes_per_second")
    with pytest.raises(InputError, match="link_bytes_per_second"):
        Gpu("mi300x", whole.title, "", few)
    assert GPUS["wse-3"].get("link_bytes_per_second") is None
    with pytest.raises(InputError, match="twice"):
        Gpu("mi300x", whole.title, "", (*whole.facts, whole.facts[0]))
