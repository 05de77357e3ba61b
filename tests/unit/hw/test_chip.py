"""Facts and chips by themselves: ranges, names, units, overrides, number formats."""

import pickle
from dataclasses import replace

import pytest

from ticktrue.errors import InputError
from ticktrue.hw import Chip, Fact, formats_allowed, load_system
from ticktrue.units import Clock

LP30 = load_system("groq3-lpx-tray").chip
TSP = load_system("groq-tsp-v1-node").chip


def fact(**changes) -> Fact:
    base = Fact("x_cycles", 4, "cycles", "S: somewhere", "2026", "assumed", 2, 8, "because")
    return replace(base, **changes)


@pytest.mark.parametrize(("low", "high"), [(5, 8), (2, 3), (8, 2)])
def test_value_outside_its_range_is_refused(low: int, high: int) -> None:
    with pytest.raises(InputError, match="low <= value <= high") as err:
        fact(low=low, high=high)
    assert err.value.code == "T371"
    assert "x_cycles" in err.value.where


def test_fact_takes_a_float_but_a_chip_does_not() -> None:
    assert fact(value=2.5).value == 2.5
    facts = tuple(replace(f, value=8.5) if f.name == "mem_read_cycles" else f for f in LP30.facts)
    with pytest.raises(InputError, match="whole number"):
        Chip("x", facts, ())


def test_chip_gives_values_by_name() -> None:
    assert LP30.value("mxm_pass_cycles") == 40
    assert LP30.fact("mxm_pass_cycles").unit == "cycles"
    assert LP30.clock == Clock(1_500_000_000)


def test_unknown_fact_names_the_nearest() -> None:
    with pytest.raises(InputError) as err:
        LP30.value("mxm_pas_cycles")
    assert err.value.code == "T372"
    assert "mxm_pass_cycles" in err.value.hint


def test_override_changes_one_value_and_says_so() -> None:
    new = LP30.with_fact("vxm_func_cycles", 100)
    changed = [a.name for a, b in zip(LP30.facts, new.facts, strict=True) if a != b]
    assert changed == ["vxm_func_cycles"]
    got = new.fact("vxm_func_cycles")
    assert (got.value, got.low, got.high, got.grade) == (100, 8, 100, "assumed")
    assert got.source.startswith("overridden (the catalog has 16")
    assert LP30.value("vxm_func_cycles") == 16


@pytest.mark.parametrize(
    ("name", "value"), [("vxm_func_cycles", 0), ("clock_hz", -1), ("mxm_double_buffer", 2), ("mem_groups", 0)]
)
def test_override_out_of_bounds_is_refused(name: str, value: int) -> None:
    with pytest.raises(InputError) as err:
        LP30.with_fact(name, value)
    assert err.value.code == "T371"
    assert name in err.value.where


@pytest.mark.parametrize(
    ("facts", "code", "words"),
    [
        (LP30.facts[1:], "T370", "vector_bytes"),
        ((*LP30.facts, LP30.facts[0]), "T370", "twice"),
        ((*LP30.facts, fact()), "T372", "x_cycles"),
        ((replace(LP30.facts[0], unit="vectors"), *LP30.facts[1:]), "T371", "unit bytes"),
    ],
    ids=["missing", "twice", "unknown", "unit"],
)
def test_chip_needs_exactly_its_facts(facts: tuple[Fact, ...], code: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as err:
        Chip("x", facts, ())
    assert err.value.code == code


def test_format_named_twice_is_refused() -> None:
    with pytest.raises(InputError, match="format once"):
        Chip("x", LP30.facts, LP30.mxm_formats * 2)


def test_present_format_gives_its_grade() -> None:
    assert formats_allowed(LP30, "fp8", hypothetical=False) == "published"
    assert formats_allowed(LP30, "bf16", hypothetical=True) == "assumed"


@pytest.mark.parametrize(("chip", "fmt"), [(LP30, "f32"), (TSP, "bf16"), (TSP, "fp8")])
def test_absent_format_needs_hypothetical(chip: Chip, fmt: str) -> None:
    with pytest.raises(InputError) as err:
        formats_allowed(chip, fmt, hypothetical=False)
    assert err.value.code == "T373"
    assert "--hypothetical" in err.value.hint
    assert formats_allowed(chip, fmt, hypothetical=True) == "assumed"


def test_format_that_the_chip_does_not_mention_is_always_refused() -> None:
    with pytest.raises(InputError) as err:
        formats_allowed(LP30, "bf61", hypothetical=True)
    assert err.value.code == "T373"
    assert "bf16" in err.value.hint


def test_chip_is_a_value() -> None:
    again = load_system("groq3-lpx").chip
    assert again == LP30
    assert hash(again) == hash(LP30)
    assert pickle.loads(pickle.dumps(LP30)) == LP30
