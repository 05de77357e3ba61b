"""Differences are named in the reader's terms, and there are none exactly where the sha256 is one."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.program.programs import KINDS, compiled
from tests.unit.program.test_text import changed

from ticktrue.program import Program, program_digest
from ticktrue.program import columns as col
from ticktrue.program.diff import diff


def lines(a: Program, b: Program) -> list[str]:
    return [str(d) for d in diff(a, b)]


@pytest.mark.parametrize("name", KINDS)
def test_a_program_does_not_differ_from_itself(name):
    assert diff(compiled(name), compiled(name)) == ()


def test_a_moved_chain_is_one_line():
    program = compiled("decode")
    t = program.timetables[0]
    label, start = t.labels[5], int(t.chains[5, 1])
    moved = changed("chains", 5, 1, start + 7)
    assert lines(program, moved) == [f"T1.S1.B1.last.chip chain {label} start: {start:,} -> {start + 7:,}"]


def test_a_changed_attribute_is_one_line_with_row_and_name():
    program = compiled("decode")
    t = program.timetables[0]
    rows = t.rows.copy()
    rows[0, col.V_BASE] += 3
    found = lines(program, Program(program.image, (replace(t, rows=rows),)))
    assert len(found) == 1
    assert f"chain {t.labels[0]} row 0 base: " in found[0]


def test_a_changed_template_shows_in_each_chain_that_uses_it():
    program = compiled("decode")
    t = program.timetables[0]
    users = int((t.chains[:, 0] == 0).sum())
    found = lines(program, changed("templates", 0, col.T_OP, 2))
    assert len(found) == users
    assert "row 0 op: " in found[0]
    assert found[0].endswith(" -> STORE")


def test_regions_key_and_timetables():
    program = compiled("two")
    image = program.image
    region = image.regions[3]
    regions = (*image.regions[:3], replace(region, base=region.base + 1), *image.regions[4:])
    other = Program(replace(image, regions=regions, key=replace(image.key, slots=2)), program.timetables[:1])
    found = lines(program, other)
    assert f"region {region.name} base: {region.base:,} -> {region.base + 1:,}" in found
    assert "key slots: 1 -> 2" in found
    assert any(line.startswith("timetable T4.S1.B3.all.chip: only in the first: ") for line in found)
    assert any("only in the second" in line for line in lines(other, program))


def test_order_alone_is_a_difference():
    program = compiled("two")
    swapped = Program(program.image, program.timetables[::-1])
    assert len(lines(program, swapped)) == 1
    image = program.image
    regions = (image.regions[1], image.regions[0], *image.regions[2:])
    assert lines(program, Program(replace(image, regions=regions), ()))[0].startswith("region order")


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["pieces", "templates", "rows", "chains"]),
    st.integers(0, 10**6),
    st.integers(0, 30),
    st.integers(-(2**31), 2**31 - 1),
)
def test_no_difference_exactly_where_the_sha256_is_one(table, row, column, value):
    program, other = compiled("decode"), changed(table, row, column, value)
    assert (diff(program, other) == ()) == (program_digest(program) == program_digest(other))
    assert len(diff(program, other)) == len(diff(other, program))
