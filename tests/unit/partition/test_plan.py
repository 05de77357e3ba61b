"""Legal degrees, and the sizes that follow from a cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticktrue.errors import UsageError
from ticktrue.isa import Dtype
from ticktrue.partition import Cut, legal_degrees, make_plan
from ticktrue.program import Grid, Plan
from ticktrue.program import columns as col


def test_smollm2_degrees() -> None:
    """Three KV heads: h is 1 or 3, cp a power of two."""
    assert legal_degrees((3,), 16) == (1, 2, 3, 4, 6, 8, 12, 16)
    assert legal_degrees((3,)) == (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
    assert legal_degrees((3,), tray=16) == (1, 2, 3, 4, 6, 8, 12, 16, 32, 48, 64, 96, 128, 192, 256)
    assert legal_degrees((3,), 64, tray=8) == (1, 2, 3, 4, 6, 8, 16, 24, 32, 48, 64)
    assert [make_plan((3,), n) for n in (1, 2, 3, 6, 16)] == [
        Plan.of(1, 1), Plan.of(2, 1), Plan.of(3, 3), Plan.of(6, 3), Plan.of(16, 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("chips", "near"), [(5, "4 or 6"), (7, "6 or 8"), (17, "16 or 24"), (300, "256"), (0, "1")]
)
def test_an_illegal_degree_names_its_neighbours(chips: int, near: str) -> None:
    with pytest.raises(UsageError, match=f"^T120: {chips} chips cannot share 3 KV heads.*") as e:
        make_plan((3,), chips)
    assert e.value.hint.startswith(f"nearest legal: {near} ")


@pytest.mark.parametrize(("chips", "near"), [(24, "16 or 32"), (20, "16 or 32"), (40, "32 or 48")])
def test_beyond_one_tray_trays_are_whole(chips: int, near: str) -> None:
    with pytest.raises(
        UsageError, match=f"^T120: {chips} chips .* up to 256, .*beyond 16 in whole trays of 16"
    ) as e:
        make_plan((3,), chips, tray=16)
    assert e.value.hint.startswith(f"nearest legal: {near} ")


def test_gathers_do_not_reach_further_than_the_links() -> None:
    with pytest.raises(UsageError, match=r"T120: 16 chips .* up to 8,"):
        make_plan((3,), 16, limit=8)


KINDS = (16, 4)
"""KV heads of the two kinds of attention of Gemma 4 31B: sliding layers, full layers."""


def test_each_kind_of_attention_has_the_grid_that_it_would_have_alone() -> None:
    assert legal_degrees(KINDS) == (1, 2, 4, 8, 16, 32, 64, 128, 256)
    assert legal_degrees((6, 4), 64) == (1, 2, 4, 8, 16, 32, 64)  # 12 would suit 6 KV heads but not 4
    for chips in legal_degrees(KINDS, tray=16):
        plan = make_plan(KINDS, chips, tray=16)
        assert plan.grids == tuple(make_plan((kv,), chips, tray=16).grids[0] for kv in KINDS)
    assert make_plan(KINDS, 16).grids == (Grid(16, 1), Grid(4, 4))
    assert make_plan(KINDS, 64).grids == (Grid(16, 4), Grid(4, 16))


def test_head_groups_can_be_chosen() -> None:
    assert make_plan(KINDS, 16, heads=(4,)).grids == (Grid(4, 4), Grid(4, 4))
    assert make_plan(KINDS, 16, heads=(8, 1)).grids == (Grid(8, 2), Grid(1, 16))
    # 24 chips, h = 6 by default, whose 4 lanes fit trays of 8; h = 3 of 8 lanes fits as well
    assert make_plan((6,), 24, tray=8).grids == (Grid(6, 4),)
    assert make_plan((6,), 24, heads=(3,), tray=8).grids == (Grid(3, 8),)


@pytest.mark.parametrize(
    ("kv_heads", "chips", "heads", "tray", "said"),
    [
        (KINDS, 16, (16,), 0, "T126: 16 head groups cannot share 4 KV heads on 16 chips: expected one of 1, 2, 4"),
        (KINDS, 16, (3, 1), 0, "T126: 3 head groups cannot share 16 KV heads"),
        (KINDS, 16, (0, 1), 0, "T126: 0 head groups"),
        (KINDS, 16, (4, 4, 4), 0, "T126: expected head groups of 2 kinds of attention, or one number for all, found 3"),
        ((6,), 24, (2,), 0, "T126: 2 head groups cannot share 6 KV heads on 24 chips: expected one of 3, 6"),
        (KINDS, 12, (4, 4), 0, "T120: 12 chips cannot share 4 and 16 KV heads"),
        (KINDS, 512, (4,), 0, "T120: 512 chips"),
        (KINDS, 24, (4,), 16, "T120: 24 chips .* whole trays of 16"),
    ],
)  # fmt: skip
def test_head_groups_that_cannot_be(
    kv_heads: tuple[int, ...], chips: int, heads: tuple[int, ...], tray: int, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        make_plan(kv_heads, chips, heads=heads, tray=tray)


HEADS = st.lists(st.integers(1, 64), min_size=1, max_size=3).map(tuple)


@given(HEADS, st.integers(1, 64), st.sampled_from([0, 2, 4, 8, 16]))
def test_a_plan_is_a_bijection_of_chips(kv_heads: tuple[int, ...], chips: int, tray: int) -> None:
    if chips not in legal_degrees(kv_heads, tray=tray):
        return
    plan = make_plan(kv_heads, chips, tray=tray)
    for kind, grid in enumerate(plan.grids):
        assert grid.h * grid.cp == chips
        assert kv_heads[kind] % grid.h == 0
        sizes = [plan.size(plan.pattern(base, kind)) for base in col.BASES]
        assert sizes == [chips, grid.cp, grid.h]
    for pattern in range(plan.patterns):
        for chip in range(chips):
            members = [plan.member(pattern, chip, i) for i in range(plan.size(pattern))]
            if not plan.has(pattern):
                assert len(members) == 1
                continue
            assert members[plan.index(pattern, chip)] == chip
            assert len(set(members)) == len(members)
            ranks = [plan.rank(pattern, member) for member in members]
            assert len(set(ranks)) == len(ranks)
            assert max(ranks) < plan.ranks(pattern)


def test_patterns_by_number() -> None:
    """Those of the second kind follow those of the first, without ALL; equal grids share the patterns of the first of them."""
    plan = Plan.of(16, 16, 4, 16)
    assert [plan.pattern(base, 1) for base in col.BASES] == [0, 10, 11]
    assert [plan.pattern(base, 2) for base in col.BASES] == [0, 1, 2]
    assert [k for k in range(-1, plan.patterns + 9) if plan.has(k)] == [*range(9), 10, 11, 13, 14, 16, 17]
    assert plan.member(10, 6, 3) == 7  # chip 6 = 1 * 4 + 2: its context lanes are chips 4 to 7
    assert plan.member(11, 6, 3) == 14  # and chips 2, 6, 10, 14 have its place in other head groups
    assert plan.reach(10)[6].tolist() == [6, 7, 4, 5]
    two = Plan.of(32, 8, 2, tray=16)
    split = [[two.split(two.pattern(base, kind)) for base in col.BASES] for kind in range(2)]
    assert split == [[True, False, True], [True, False, False]]


@given(HEADS, st.integers(1, 64), st.sampled_from([2, 4, 8, 16]))
def test_rails_then_trays_bring_every_source_to_its_place(
    kv_heads: tuple[int, ...], chips: int, tray: int
) -> None:
    """What each chip knows after each step, and where in its inbox: all of its group, by index, in two steps of direct links."""
    if chips not in legal_degrees(kv_heads, tray=tray):
        return
    plan = make_plan(kv_heads, chips, tray=tray)
    for whole in {plan.pattern(base, kind) for base in col.BASES for kind in range(len(kv_heads))}:
        _brings_every_source(plan, whole, chips, tray)


def _brings_every_source(plan: Plan, whole: int, chips: int, tray: int) -> None:
    groups = [[plan.member(whole, chip, i) for i in range(plan.size(whole))] for chip in range(chips)]
    joined = all(
        a // tray == b // tray or a % tray == b % tray for a, group in enumerate(groups) for b in group
    )
    assert plan.split(whole) == (not joined)
    inbox = [{plan.index(whole, chip): chip} for chip in range(chips)]
    for part in (col.RAIL, col.TRAY):
        pattern = part + whole
        before = [dict(known) for known in inbox]
        for chip, sources in enumerate(plan.reach(pattern, back=True).tolist()):
            for source in sources[1:]:
                assert source // tray == chip // tray or source % tray == chip % tray
                assert (source // tray == chip // tray) == (part == col.TRAY)
                for place, what in before[source].items():
                    if part == col.RAIL:
                        assert place == plan.rank(pattern, source)
                    inbox[chip][place] = what
    if plan.split(whole):
        assert [[known[i] for i in sorted(known)] for known in inbox] == groups


@given(st.integers(1, 5_000), st.integers(1, 16), st.sampled_from([Dtype.BF16, Dtype.F32]), st.data())
def test_a_span_holds_exactly_the_columns_asked_for(
    columns: int, sources: int, dtype: Dtype, data: st.DataObject
) -> None:
    """Every column of the window lies in a source beat of the span, and the first and last beat are needed."""
    cut = Cut.of(columns, sources, dtype)
    first = data.draw(st.integers(0, columns - 1))
    count = data.draw(st.integers(1, min(320, columns - first)))
    u0, n = cut.span(first, count)
    beats = {
        r * cut.beats + (c - r * cut.shard) // 320
        for c in range(first, first + count)
        for r in [c // cut.shard]
    }
    assert min(beats) == u0
    assert max(beats) == u0 + n - 1
