"""Legal degrees, and the sizes that follow from a cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticktrue.errors import UsageError
from ticktrue.isa import Dtype
from ticktrue.partition import Cut, legal_degrees, make_plan
from ticktrue.program import Plan
from ticktrue.program import columns as col


def test_smollm2_degrees() -> None:
    """Three KV heads: h is 1 or 3, cp a power of two."""
    assert legal_degrees(3, 16) == (1, 2, 3, 4, 6, 8, 12, 16)
    assert legal_degrees(3) == (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
    assert legal_degrees(3, tray=16) == (1, 2, 3, 4, 6, 8, 12, 16, 32, 48, 64, 96, 128, 192, 256)
    assert legal_degrees(3, 64, tray=8) == (1, 2, 3, 4, 6, 8, 16, 24, 32, 48, 64)
    assert [make_plan(3, n) for n in (1, 2, 3, 6, 16)] == [
        Plan(1, 1, 1), Plan(2, 1, 2), Plan(3, 3, 1), Plan(6, 3, 2), Plan(16, 1, 16),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("chips", "near"), [(5, "4 or 6"), (7, "6 or 8"), (17, "16 or 24"), (300, "256"), (0, "1")]
)
def test_an_illegal_degree_names_its_neighbours(chips: int, near: str) -> None:
    with pytest.raises(UsageError, match=f"^T120: {chips} chips cannot share 3 KV heads.*") as e:
        make_plan(3, chips)
    assert e.value.hint.startswith(f"nearest legal: {near} ")


@pytest.mark.parametrize(("chips", "near"), [(24, "16 or 32"), (20, "16 or 32"), (40, "32 or 48")])
def test_beyond_one_tray_trays_are_whole(chips: int, near: str) -> None:
    with pytest.raises(
        UsageError, match=f"^T120: {chips} chips .* up to 256, .*beyond 16 in whole trays of 16"
    ) as e:
        make_plan(3, chips, tray=16)
    assert e.value.hint.startswith(f"nearest legal: {near} ")


def test_gathers_do_not_reach_further_than_the_links() -> None:
    with pytest.raises(UsageError, match=r"T120: 16 chips .* up to 8,"):
        make_plan(3, 16, limit=8)


@given(st.integers(1, 64), st.integers(1, 64), st.sampled_from([0, 2, 4, 8, 16]))
def test_a_plan_is_a_bijection_of_chips(kv_heads: int, chips: int, tray: int) -> None:
    if chips not in legal_degrees(kv_heads, tray=tray):
        return
    plan = make_plan(kv_heads, chips, tray=tray)
    assert plan.h * plan.cp == chips
    assert kv_heads % plan.h == 0
    for pattern in range(col.PATTERNS):
        for chip in range(chips):
            members = [plan.member(pattern, chip, i) for i in range(plan.size(pattern))]
            assert members[plan.index(pattern, chip)] == chip
            assert len(set(members)) == len(members)
            ranks = [plan.rank(pattern, member) for member in members]
            assert len(set(ranks)) == len(ranks)
            assert max(ranks) < plan.ranks(pattern)


@given(st.integers(1, 64), st.integers(1, 64), st.sampled_from([2, 4, 8, 16]))
def test_rails_then_trays_bring_every_source_to_its_place(kv_heads: int, chips: int, tray: int) -> None:
    """What each chip knows after each step, and where in its inbox: all of its group, by index, in two steps of direct links."""
    if chips not in legal_degrees(kv_heads, tray=tray):
        return
    plan = make_plan(kv_heads, chips, tray=tray)
    for base in col.BASES:
        groups = [[plan.member(base, chip, i) for i in range(plan.size(base))] for chip in range(chips)]
        joined = all(
            a // tray == b // tray or a % tray == b % tray for a, group in enumerate(groups) for b in group
        )
        assert plan.split(base) == (not joined)
        inbox = [{plan.index(base, chip): chip} for chip in range(chips)]
        for pattern in (col.RAIL + base, col.TRAY + base):
            before = [dict(known) for known in inbox]
            for chip, sources in enumerate(plan.reach(pattern, back=True).tolist()):
                for source in sources[1:]:
                    assert source // tray == chip // tray or source % tray == chip % tray
                    assert (source // tray == chip // tray) == (pattern >= col.TRAY)
                    for place, what in before[source].items():
                        if pattern < col.TRAY:
                            assert place == plan.rank(pattern, source)
                        inbox[chip][place] = what
        if plan.split(base):
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
