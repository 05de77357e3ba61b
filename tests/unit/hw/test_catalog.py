"""The shipped catalog: every number has source, date, grade and range, and the derivations hold."""

import re

import pytest

from ticktrue.errors import UsageError
from ticktrue.hw import CHIP_FACTS, Fact, System, formats_allowed, list_systems, load_system

NAMES = (
    "groq-tsp-v1-dragonfly",
    "groq-tsp-v1-node",
    "groq3-lpx",
    "groq3-lpx-32x8",
    "groq3-lpx-32x8-two-hop",
    "groq3-lpx-tray",
    "groq3-lpx-tray8",
    "groq3-lpx-two-hop",
    "tiny-16",
    "tiny-4",
    "tiny-rack",
)
SYSTEMS = {name: load_system(name) for name in NAMES}
FACTS = [
    pytest.param(fact, id=f"{name}-{owner}-{fact.name}")
    for name, system in SYSTEMS.items()
    for owner, fact in system.facts()
]


def chip_of(name: str):
    return SYSTEMS[name].chip


def test_catalog_lists_exactly_the_shipped_systems() -> None:
    assert tuple(item.name for item in list_systems()) == NAMES
    chips = {item.name: item.chips for item in list_systems()}
    assert chips["groq3-lpx"] == 256
    assert chips["groq-tsp-v1-node"] == chips["groq3-lpx-tray8"] == 8
    assert next(item for item in list_systems() if item.name == "groq3-lpx").sram_bytes == 128_000_000_000


def test_unknown_system_is_a_usage_error_with_the_near_names() -> None:
    with pytest.raises(UsageError) as err:
        load_system("groq3-lpx-trey")
    assert err.value.code == "T110"
    assert "groq3-lpx-tray" in err.value.hint


@pytest.mark.parametrize("fact", FACTS)
def test_every_shipped_number_has_source_date_grade_range_and_reason(fact: Fact) -> None:
    assert re.fullmatch(r"[A-Z0-9]+: .{10,}", fact.source)
    assert re.fullmatch(r"20\d\d(-\d\d){0,2}", fact.date)
    assert fact.grade in {"published", "derived", "assumed"}
    assert fact.low <= fact.value <= fact.high
    assert len(fact.why) >= 5
    assert isinstance(fact.value, int)
    if fact.grade == "assumed":
        assert fact.source.startswith(("ASSUMED", "TINY"))
    else:
        assert not fact.source.startswith(("ASSUMED", "TINY"))


@pytest.mark.parametrize("name", NAMES)
def test_facts_of_a_system_are_those_of_its_chip_and_its_layout(name: str) -> None:
    system = SYSTEMS[name]
    owners = {owner for owner, _ in system.facts()}
    assert owners == {system.name, system.chip.name}
    assert [fact.name for fact in system.chip.facts] == [spec.name for spec in CHIP_FACTS]
    assert len(system.facts()) == len(CHIP_FACTS) + len(system.layout.facts)


def test_assumed_fact_without_a_range_gets_half_and_double() -> None:
    fact = chip_of("groq3-lpx").fact("vxm_func_cycles")
    assert (fact.low, fact.value, fact.high) == (8, 16, 32)
    assert fact.grade == "assumed"


def test_ranges_of_the_facts_file() -> None:
    chip = chip_of("groq3-lpx")
    for name, low, best, high in (
        ("mxm_weight_load_bytes_per_cycle", 10_240, 18_182, 100_000),
        ("streams", 32, 64, 128),
        ("clock_hz", 1_400_000_000, 1_500_000_000, 1_530_000_000),
    ):
        fact = chip.fact(name)
        assert (fact.low, fact.value, fact.high) == (low, best, high)


def flops_per_second(system: System) -> int:
    value = system.chip.value
    return 2 * value("mxm_byte_planes") * value("mxm_rows_8bit") * value("mxm_cols") * value("clock_hz")


def sram_bytes_per_second(system: System) -> int:
    value = system.chip.value
    vectors = value("mem_wide_read_vectors") + value("mem_narrow_read_ports") * value("mem_narrow_vectors")
    return value("mem_groups") * vectors * value("vector_bytes") * value("clock_hz")


def test_four_planes_at_the_clock_make_the_published_compute_rate() -> None:
    assert flops_per_second(SYSTEMS["groq3-lpx"]) == 1_228_800_000_000_000
    assert round(256 * flops_per_second(SYSTEMS["groq3-lpx"]) / 1e15) == 315
    # TSP v1: 820 TOPS at 1 GHz
    assert (
        round(flops_per_second(SYSTEMS["groq-tsp-v1-node"].with_fact("clock_hz", 1_000_000_000)) / 1e12)
        == 819
    )


def test_ports_of_the_bank_groups_make_the_published_sram_rate() -> None:
    assert sram_bytes_per_second(SYSTEMS["groq3-lpx"]) == 149_760_000_000_000
    # 2 x 44 slices of 2 banks of 320 bytes per cycle
    assert sram_bytes_per_second(SYSTEMS["groq-tsp-v1-node"]) == 2 * 44 * 2 * 320 * 900_000_000


@pytest.mark.parametrize("name", NAMES)
def test_a_bank_group_holds_whole_vectors(name: str) -> None:
    value = SYSTEMS[name].chip.value
    assert value("sram_bytes") % (value("mem_groups") * value("vector_bytes")) == 0


@pytest.mark.parametrize("name", NAMES)
def test_default_guard_covers_the_skew_of_an_epoch_and_the_fifo_its_need(name: str) -> None:
    system = SYSTEMS[name]
    value = system.chip.value
    drift = 2 * value("drift_ppm") * value("epoch_cycles")
    assert value("c2c_guard_cycles") * 1_000_000 >= value("skew0_cycles") * 1_000_000 + drift
    span = value("c2c_jitter_cycles") + value("c2c_guard_cycles") + value("deskew_hold_cycles")
    for hop in system.hops:
        assert -(-span // hop.slot_cycles) + 1 <= value("c2c_fifo_vectors")


@pytest.mark.parametrize(
    ("name", "links", "reserved"),
    [
        ("groq3-lpx", 15 * 4 + 15 * 2, 5),
        ("groq3-lpx-two-hop", 15 * 4 + 15 * 2, 5),
        ("groq3-lpx-32x8", 7 * 4 + 31 * 2, 5),
        ("groq3-lpx-32x8-two-hop", 7 * 4 + 31 * 2, 5),
        ("groq3-lpx-tray", 15 * 4, 30 + 5),
        ("groq3-lpx-tray8", 7 * 4, 62 + 5),
        ("groq-tsp-v1-dragonfly", 7 * 4 + 4 * 4, 0),
        ("groq-tsp-v1-node", 7 * 4, 16),
        ("tiny-4", 3 * 4, 0),
        ("tiny-16", 15 * 4, 0),
        ("tiny-rack", 3 * 4 + 15 * 2, 0),
    ],
)
def test_lanes_sum(name: str, links: int, reserved: int) -> None:
    system = SYSTEMS[name]
    lanes = system.lanes_matrix()
    assert set((lanes * (lanes > 0)).sum(axis=1).tolist()) == {links}
    assert system.lanes_used() == links + reserved <= system.chip.value("c2c_lanes")


@pytest.mark.parametrize("name", ["groq3-lpx", "groq3-lpx-32x8"])
def test_links_of_the_rack_sum_to_the_published_scale_up_rate(name: str) -> None:
    lanes = SYSTEMS[name].lanes_matrix()
    bits = int(lanes[lanes > 0].sum()) * SYSTEMS[name].chip.value("c2c_lane_bits_per_second")
    assert bits * 2 / 8 == pytest.approx(640e12, rel=0.01)  # both directions


def test_formats_of_the_chips() -> None:
    grades = {item.format: (item.grade, item.absent) for item in chip_of("groq3-lpx").mxm_formats}
    assert grades == {
        "fp8": ("published", False),
        "bf16": ("assumed", False),
        "int8": ("assumed", False),
        "f32": ("assumed", True),
    }
    absent = {item.format for item in chip_of("groq-tsp-v1-node").mxm_formats if item.absent}
    assert absent == {"bf16", "fp8", "f32"}
    for fmt in ("bf16", "int8", "fp8", "f32"):
        assert formats_allowed(chip_of("tiny-4"), fmt, hypothetical=False) == "assumed"
