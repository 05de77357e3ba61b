"""Groq TSP v1 as ISCA 2022 describes it: a node of eight, and a dragonfly of 33 nodes with routes of at most three hops."""

import itertools
from collections import Counter

import numpy as np
import pytest
from tests.models import SPEC

from ticktrue.compile import Options, compile_image
from ticktrue.errors import InputError, UsageError
from ticktrue.hw import load_system

NODE = load_system("groq-tsp-v1-node")
FLY = load_system("groq-tsp-v1-dragonfly")


def ns(cycles: int) -> float:
    return FLY.clock.seconds(cycles) * 1e9


def test_the_latency_of_a_hop_is_its_link_and_its_ends() -> None:
    """217 cycles of link and 433 of both ends are the 650 cycles of 722 ns at 900 MHz: fitted figures, no check of a model."""
    for system in (NODE, FLY):
        link, ends = system.layout.value("link_cycles"), system.layout.value("endpoint_cycles")
        assert (link, ends) == (217, 433)
        assert link + ends == system.link(0, 1).latency_cycles == 650
        assert ns(649) < 722 < ns(650)
        fact = next(f for f in system.layout.facts if f.name == "endpoint_cycles")
        assert fact.grade == "derived"
        least, most = 650 - 228, 650 - 209  # the measured range of the link
        assert (fact.low, fact.high) == (least, most)


def test_three_hops_are_an_identity() -> None:
    """2,166 ns is 3 x 722, derived from the fitted hop."""
    fact = next(f for f in FLY.layout.facts if f.name == "three_hops_ns")
    assert fact.grade == "derived"
    assert fact.value == 3 * FLY.layout.value("hop_latency_ns") == 2166
    assert "no check" in fact.why
    worst = max(len(FLY.route(0, chip)) - 1 for chip in range(FLY.chips))
    assert worst == 3
    assert ns(worst * 650) == pytest.approx(2166, abs=1)


def test_reference_figures_change_no_result() -> None:
    """Figures kept beside the links are not part of what a program is made for."""
    assert NODE.with_fact("link_cycles", 218).fact_digest() == NODE.fact_digest()
    assert NODE.with_fact("node_latency_ns", 700).fact_digest() != NODE.fact_digest()


def test_every_two_nodes_have_one_link() -> None:
    hops, classes = FLY.hop_matrix(), FLY.hop_classes
    assert classes == ("node", "global")
    assert np.array_equal(hops, hops.T)
    pairs = Counter((a // 8, b // 8) for a, b in np.argwhere(hops == 1).tolist())
    assert len(pairs) == 33 * 32
    assert set(pairs.values()) == {1}
    assert ((hops == 0).sum(axis=1) == 7).all()
    assert ((hops == 1).sum(axis=1) == 4).all()
    assert int((hops == 1).sum()) // 2 == 528  # cables between nodes
    assert int((FLY.subset(8).hop_matrix() == 0).sum()) // 2 == 28  # cables of a node
    assert 264 * 220 // 1024 == 56  # GiB of SRAM, as published


def test_a_link_by_hand() -> None:
    """Port 0 of node 0, on chip 0, leads to node 1; there node 0 is 32 places on: port 31, on chip 31 // 4 = 7, number 15."""
    assert FLY.link(0, 15) is not None
    assert FLY.link(0, 15).hop_class == FLY.link(15, 0).hop_class == "global"
    assert FLY.link(1, 15) is None
    assert FLY.route(0, 15) == (0, 15)
    assert FLY.route(3, 9) == (3, 0, 15, 9)
    assert FLY.route(0, 8) == (0, 15, 8)
    assert FLY.route(3, 15) == (3, 0, 15)
    assert FLY.route(3, 5) == (3, 5)
    assert FLY.route(7, 7) == (7,)


def test_routes_go_over_links_and_are_shortest() -> None:
    joined = FLY.hop_matrix() >= 0
    two = (joined.astype(int) @ joined.astype(int)) > 0
    for src, dst in itertools.product(range(0, 264, 11), range(264)):
        way = FLY.route(src, dst)
        assert (way[0], way[-1]) == (src, dst)
        assert all(joined[a, b] for a, b in itertools.pairwise(way))
        assert len(way) - 1 == (0 if src == dst else 1 if joined[src, dst] else 2 if two[src, dst] else 3)


@pytest.mark.parametrize("chips", [9, 12, 263])
def test_a_part_of_a_node_has_no_way_to_others(chips: int) -> None:
    with pytest.raises(
        UsageError, match=f"T111: expected up to 8 chips or a multiple of that, found {chips}"
    ):
        FLY.subset(chips)
    assert FLY.subset(16).link(0, 15) is not None
    assert FLY.subset(5).route(0, 4) == (0, 4)


@pytest.mark.parametrize(("fact", "value"), [("global_links", 3), ("node_chips", 4), ("chips", 256)])
def test_a_dragonfly_that_does_not_close_is_refused(fact: str, value: int) -> None:
    with pytest.raises(InputError, match="T374"):
        FLY.with_fact(fact, value)


def test_gathers_stay_in_a_node() -> None:
    assert (FLY.tray_chips, FLY.gather_chips) == (0, 8)
    options = Options(max_context=64, hypothetical=True)
    assert compile_image(SPEC, FLY.subset(8), options).key.plan.chips == 8
    for chips in (16, 264):
        with pytest.raises(UsageError) as e:
            compile_image(SPEC, FLY.subset(chips), options)
        assert (
            f"T120: expected chips of one node of {FLY.name}, at most 8, found {chips} in {chips // 8} nodes"
            in str(e.value)
        )
        assert "joined by one link" in str(e.value)
        assert "up to 8 chips" in e.value.hint


def test_no_link_between_nodes_joins_chips_of_equal_index() -> None:
    """Why gathers stay in a node: port j of a node is on chip j div 4, its far end on chip 7 - j div 4. No rail is whole."""
    ends = np.argwhere(FLY.hop_matrix() == 1)
    assert len(ends) == 33 * 32
    assert (ends[:, 0] % 8 + ends[:, 1] % 8 == 7).all()
