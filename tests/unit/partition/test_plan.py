"""Legal degrees, and the sizes that follow from a cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticktrue.errors import UsageError
from ticktrue.isa import Dtype
from ticktrue.partition import Cut, heads_degree, legal_degrees, make_plan
from ticktrue.program import Plan


def test_smollm2_degrees() -> None:
    """Three KV heads: h is 1 or 3, cp a power of two."""
    assert legal_degrees(3) == (1, 2, 3, 4, 6, 8, 12, 16)
    assert [make_plan(3, n) for n in (1, 2, 3, 6, 16)] == [
        Plan(1, 1, 1), Plan(2, 1, 2), Plan(3, 3, 1), Plan(6, 3, 2), Plan(16, 1, 16),
    ]  # fmt: skip


@pytest.mark.parametrize(("chips", "near"), [(5, "4 or 6"), (7, "6 or 8"), (17, "16"), (0, "1")])
def test_an_illegal_degree_names_its_neighbours(chips: int, near: str) -> None:
    with pytest.raises(UsageError, match=f"^T120: {chips} chips cannot share 3 KV heads.*") as e:
        make_plan(3, chips)
    assert e.value.hint.startswith(f"nearest legal: {near} ")


@given(st.integers(1, 64), st.integers(1, 16))
def test_a_plan_is_a_bijection_of_chips(kv_heads: int, chips: int) -> None:
    if not heads_degree(kv_heads, chips):
        return
    plan = make_plan(kv_heads, chips)
    assert plan.h * plan.cp == chips
    assert kv_heads % plan.h == 0
    for pattern in range(3):
        for chip in range(chips):
            members = [plan.member(pattern, chip, i) for i in range(plan.size(pattern))]
            assert members[plan.index(pattern, chip)] == chip
            assert len(set(members)) == len(members)


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
