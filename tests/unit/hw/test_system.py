"""Links, matrices and routes of every system, against numbers derived by hand."""

import itertools
from fractions import Fraction
from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticktrue.errors import DoesNotFit, InputError, UsageError
from ticktrue.hw import Link, System, load_system, slot_cycles

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
RACKS = tuple(name for name in NAMES if SYSTEMS[name].chips == 256)
PER_TRAY = {"groq3-lpx": 16, "groq3-lpx-two-hop": 16, "groq3-lpx-32x8": 8, "groq3-lpx-32x8-two-hop": 8}


@pytest.mark.parametrize(
    ("name", "lanes", "cycles"),
    [
        ("groq3-lpx", 4, 9),
        ("groq3-lpx", 2, 18),
        ("groq3-lpx", 1, 36),
        ("groq-tsp-v1-node", 4, 24),
        ("tiny-4", 4, 7),
    ],
)
def test_slot_table(name: str, lanes: int, cycles: int) -> None:
    assert slot_cycles(SYSTEMS[name].chip, lanes) == cycles


@given(st.integers(1, 96), st.integers(1, 2_000_000_000), st.integers(1, 2**40))
def test_slot_is_the_exact_ceiling(lanes: int, hertz: int, bits_per_second: int) -> None:
    chip = SYSTEMS["tiny-4"].chip.with_fact("clock_hz", hertz)
    chip = chip.with_fact("c2c_lane_bits_per_second", bits_per_second)
    bytes_per_cycle = Fraction(bits_per_second, 8 * hertz)
    assert slot_cycles(chip, lanes) == ceil(Fraction(328) / (lanes * bytes_per_cycle))


def by_hand(name: str, src: int, dst: int) -> tuple[int, int, int]:
    """Lanes, latency and slot in cycles of a link of a rack, written out pair by pair."""
    per_tray = PER_TRAY[name]
    (a, i), (b, j) = divmod(src, per_tray), divmod(dst, per_tray)
    if src == dst or (a != b and i != j):
        return -1, -1, -1
    if a == b:
        return 4, 525, 9  # 350 ns
    if name.endswith("two-hop"):
        return 2, 525, 18
    trays = 256 // per_tray
    same_half = (a < trays // 2) == (b < trays // 2)
    return 2, 600 if same_half else 1200, 18  # 400 ns, 800 ns


@pytest.mark.parametrize("name", RACKS)
def test_matrices_of_the_racks_match_the_pairs_by_hand(name: str) -> None:
    system = SYSTEMS[name]
    expected = np.array([[by_hand(name, s, d) for d in range(256)] for s in range(256)], dtype=np.int32)
    assert np.array_equal(system.lanes_matrix(), expected[..., 0])
    assert np.array_equal(system.latency_matrix(), expected[..., 1])
    assert np.array_equal(system.slot_matrix(), expected[..., 2])
    assert int((system.lanes_matrix() > 0).sum()) == 256 * (PER_TRAY[name] - 1 + 256 // PER_TRAY[name] - 1)


@pytest.mark.parametrize(
    ("name", "latency", "slot"),
    [
        ("groq3-lpx-tray", 525, 9),
        ("groq3-lpx-tray8", 525, 9),
        ("groq-tsp-v1-node", 650, 24),  # 722 ns at 900 MHz is 649.8
        ("tiny-4", 20, 7),
        ("tiny-16", 20, 7),
    ],
)
def test_matrices_of_the_full_meshes(name: str, latency: int, slot: int) -> None:
    system = SYSTEMS[name]
    off = ~np.eye(system.chips, dtype=bool)
    for matrix, value in (
        (system.latency_matrix(), latency),
        (system.slot_matrix(), slot),
        (system.lanes_matrix(), 4),
    ):
        assert matrix.dtype == np.int32
        assert not matrix.flags.writeable
        assert (np.diag(matrix) == -1).all()
        assert (matrix[off] == value).all()


def reach_us(system: System, chips: int) -> float:
    """Longest route latency from chip 0 among the first `chips` chips, in microseconds."""
    latency = system.latency_matrix()
    return max(
        system.clock.seconds(sum(int(latency[a, b]) for a, b in itertools.pairwise(system.route(0, dst))))
        * 1e6
        for dst in range(1, chips)
    )


def test_three_level_rack_follows_the_hot_chips_curve() -> None:
    system = SYSTEMS["groq3-lpx"]
    assert [round(reach_us(system, n), 9) for n in (16, 128, 256)] == [0.35, 0.75, 1.15]
    other = SYSTEMS["groq3-lpx-32x8"]
    assert [round(reach_us(other, n), 9) for n in (8, 128, 256)] == [0.35, 0.75, 1.15]


def test_two_hop_rack_reaches_everything_in_two_hops_of_350_ns() -> None:
    for name in ("groq3-lpx-two-hop", "groq3-lpx-32x8-two-hop"):
        assert round(reach_us(SYSTEMS[name], 256), 9) == 0.7


@pytest.mark.parametrize("name", NAMES)
def test_link_agrees_with_the_matrices(name: str) -> None:
    system = SYSTEMS[name]
    hop, latency, slot, lanes = (
        system.hop_matrix(),
        system.latency_matrix(),
        system.slot_matrix(),
        system.lanes_matrix(),
    )
    for src, dst in itertools.product(
        range(0, system.chips, max(1, system.chips // 16)), range(system.chips)
    ):
        link = system.link(src, dst)
        if link is None:
            assert hop[src, dst] == latency[src, dst] == slot[src, dst] == lanes[src, dst] == -1
        else:
            expected = Link(
                src,
                dst,
                system.hop_classes[hop[src, dst]],
                int(lanes[src, dst]),
                int(latency[src, dst]),
                int(slot[src, dst]),
            )
            assert link == expected
    assert system.link(0, 0) is None
    assert system.link(0, system.chips) is None
    assert system.link(-1, 0) is None


def check_route(system: System, src: int, dst: int) -> None:
    """Ends right, every hop a link, as few hops as any way can have, the same at every call."""
    way = system.route(src, dst)
    assert (way[0], way[-1]) == (src, dst)
    assert all(system.link(a, b) is not None for a, b in itertools.pairwise(way))
    joined = system.hop_matrix() >= 0
    hops = 0 if src == dst else 1 if joined[src, dst] else 2 if (joined[src] & joined[:, dst]).any() else 3
    assert len(way) == hops + 1
    assert way == system.route(src, dst)


@pytest.mark.parametrize("name", NAMES)
def test_routes_are_valid_and_minimal(name: str) -> None:
    system = SYSTEMS[name]
    for src in range(0, system.chips, max(1, system.chips // 13)):
        for dst in range(system.chips):
            check_route(system, src, dst)


@given(st.sampled_from(RACKS), st.integers(1, 256), st.data())
def test_routes_of_any_subset_are_valid_and_minimal(name: str, chips: int, data: st.DataObject) -> None:
    system = SYSTEMS[name].subset(chips)
    src, dst = (data.draw(st.integers(0, chips - 1)) for _ in range(2))
    check_route(system, src, dst)


def test_route_goes_through_the_own_tray_first() -> None:
    system = SYSTEMS["groq3-lpx"]
    assert system.route(5, 250) == (5, 10, 250)  # tray 0 index 5, tray 0 index 10, tray 15 index 10
    assert system.route(7, 7) == (7,)
    assert system.subset(24).route(23, 12) == (23, 7, 12)  # chip 28 is left out


@pytest.mark.parametrize("pair", [(0, 256), (-1, 0)])
def test_route_to_a_chip_that_is_not_there(pair: tuple[int, int]) -> None:
    with pytest.raises(InputError) as err:
        SYSTEMS["groq3-lpx"].route(*pair)
    assert err.value.code == "T375"


def test_subset_keeps_the_name_and_the_links() -> None:
    tray = SYSTEMS["groq3-lpx-tray"]
    half = tray.subset(8)
    assert (half.name, half.chips, half.full_chips) == (tray.name, 8, 16)
    assert np.array_equal(half.latency_matrix(), tray.latency_matrix()[:8, :8])
    assert half.subset(8) == half
    assert tray.subset(1).latency_matrix().tolist() == [[-1]]
    assert half.fact_digest() != tray.fact_digest()
    assert half.facts() == tray.facts()


def test_subset_of_too_many_or_no_chips_is_refused() -> None:
    with pytest.raises(DoesNotFit, match="at most 16"):
        SYSTEMS["groq3-lpx-tray"].subset(17)
    with pytest.raises(UsageError) as err:
        SYSTEMS["groq3-lpx-tray"].subset(0)
    assert err.value.code == "T111"


def test_digest_covers_every_value_and_nothing_else() -> None:
    system = SYSTEMS["groq3-lpx"]
    digests = {name: item.fact_digest() for name, item in SYSTEMS.items()}
    assert len(set(digests.values())) == len(NAMES)
    assert load_system("groq3-lpx").fact_digest() == digests["groq3-lpx"]
    for name in ("vxm_map_cycles", "sram_bytes", "tray_lanes", "halves_latency_ns", "fabric_lanes"):
        fact = next(fact for _, fact in system.facts() if fact.name == name)
        assert system.with_fact(name, fact.value - 1).fact_digest() != digests["groq3-lpx"]
        assert system.with_fact(name, fact.value).fact_digest() == digests["groq3-lpx"]


def test_override_of_a_layout_fact_moves_the_links() -> None:
    system = SYSTEMS["groq3-lpx"].with_fact("halves_latency_ns", 900).with_fact("backplane_lanes", 1)
    assert system.link(0, 128) == Link(0, 128, "halves", 1, 1350, 36)
    assert system.link(0, 16) == Link(0, 16, "backplane", 1, 600, 36)
    slower = SYSTEMS["groq3-lpx"].with_fact("clock_hz", 1_400_000_000)
    assert slower.link(0, 1) == Link(0, 1, "tray", 4, 490, 9)
    more = SYSTEMS["tiny-4"].with_fact("chips", 6)
    assert (more.chips, more.full_chips, more.link(0, 5) is not None) == (6, 6, True)


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("backplane_latency", 1, "T372"),
        ("tray_lanes", 0, "T374"),
        ("tray_lanes", 5, "T374"),  # 75 + 30 + 5 lanes of 96
        ("tray_latency_ns", 1, "T374"),  # less than a slot
        ("half_rack_chips", 100, "T374"),
        ("tray_chips", 300, "T374"),
    ],
)
def test_override_that_contradicts_the_rest_is_refused(name: str, value: int, code: str) -> None:
    with pytest.raises(InputError) as err:
        SYSTEMS["groq3-lpx"].with_fact(name, value)
    assert err.value.code == code


def test_unknown_fact_hint_covers_chip_and_layout() -> None:
    with pytest.raises(InputError) as err:
        SYSTEMS["groq3-lpx"].with_fact("backplane_latency", 1)
    assert "backplane_latency_ns" in err.value.hint
