"""The text form gives the program back exactly, and an error names its line."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.program.programs import KINDS, compiled

from ticktrue.errors import InputError
from ticktrue.program import Loop, Program, encode, program_digest
from ticktrue.program import columns as col
from ticktrue.program.text import from_text, to_text

GOLDEN = Path(__file__).parents[2] / "golden"
I32 = st.integers(-(2**31), 2**31 - 1)


@pytest.mark.parametrize("name", KINDS)
def test_text_gives_the_program_back(name):
    program = compiled(name)
    text = to_text(program)
    again = from_text(text)
    assert encode(again) == encode(program)
    assert to_text(again) == text


@pytest.mark.parametrize("name", KINDS)
def test_comments_and_blank_lines_mean_nothing(name):
    text = to_text(compiled(name))
    lines = [line for line in text.split("\n") if line.strip() and not line.startswith("#")]
    assert program_digest(from_text("\n".join(lines))) == program_digest(compiled(name))


def test_ops_and_regions_have_names():
    text = to_text(compiled("decode"))
    assert "\n  row 0 LOAD " in text
    assert "reg_fn=TOKEN" in text
    assert "dtype=F32" in text
    chain = next(line for line in text.split("\n") if line.startswith("chain 0 "))
    assert chain.startswith("chain 0 embed")
    assert " : embed" in chain


def changed(table: str, row: int, column: int, value: int) -> Program:
    """The program with one stored number replaced."""
    program = compiled("decode")
    if table == "pieces":
        array = program.image.pieces.copy()
        array[row % len(array), column % array.shape[1]] = value
        return Program(replace(program.image, pieces=array), program.timetables)
    t = program.timetables[0]
    array = getattr(t, table).copy()
    array[row % len(array), column % array.shape[1]] = value
    return Program(program.image, (replace(t, **{table: array}),))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["pieces", "templates", "rows"]), st.integers(0, 10**6), st.integers(0, 30), I32)
def test_any_number_in_any_table_survives(table, row, column, value):
    program = changed(table, row, column, value)
    assert encode(from_text(to_text(program))) == encode(program)


@pytest.mark.parametrize("region", [-9, -1, 0, 10**6])
@pytest.mark.parametrize("base", [-3, 0, 3])
def test_any_region_and_base_survive(region, base):
    program = changed("rows", 1, col.V_REGION, region)
    rows = program.timetables[0].rows.copy()
    rows[1, col.V_BASE] = base
    program = Program(program.image, (replace(program.timetables[0], rows=rows),))
    assert encode(from_text(to_text(program))) == encode(program)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(-(2**63), 2**63 - 1))
def test_any_start_survives(row, value):
    program = changed("chains", row, 1, value)
    assert encode(from_text(to_text(program))) == encode(program)


@settings(max_examples=40, deadline=None)
@given(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), min_size=1), st.data())
def test_any_name_survives(name, data):
    program = compiled("decode")
    image, t = program.image, program.timetables[0]
    at = data.draw(st.integers(0, len(image.regions) - 1))
    regions = tuple(replace(r, name=name) if i == at else r for i, r in enumerate(image.regions))
    image = replace(image, regions=regions, key=replace(image.key, model=name))
    t = replace(t, labels=(name, *t.labels[1:]), kind=replace(t.kind, logits=name), dataflow=name)
    changed_program = Program(image, (t,))
    assert encode(from_text(to_text(changed_program))) == encode(changed_program)


def test_loops_and_late_chains_survive():
    program = compiled("decode")
    t = program.timetables[0]
    chains = t.chains.copy()
    chains[3, 2] = 1
    t = replace(t, chains=chains, loops=(Loop(1, 2, 3, 4, ((5, 6), (7, -8))), Loop(0, 0, 1, 1, ())))
    program = Program(program.image, (t,))
    assert encode(from_text(to_text(program))) == encode(program)


def test_tables_that_contradict_each_other_are_refused():
    program = compiled("decode")
    t = program.timetables[0]
    start = t.template_start.copy()
    start[-1] -= 1
    chains = t.chains.copy()
    chains[0, 0] = 10**6
    for wrong in (
        replace(t, template_start=start),
        replace(t, chains=chains),
        replace(t, labels=t.labels[1:]),
        replace(t, rows=t.rows[1:]),
        replace(t, template_start=np.zeros(0, dtype=np.int32)),
    ):
        with pytest.raises(InputError, match="T355"):
            to_text(Program(program.image, (wrong,)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ticktrue program text v1", "ticktrue program text v9"),
        ("\nregion 1 ", "\nregion 2 "),
        ("\nregion 1 ", "\nregoin 1 "),
        (" stride=", " stridee="),
        (" CODE ", " CODEX "),
        ("\n  row 1 ", "\n  row 7 "),
        ("dtype=F32", "dtype=F33"),
        ("\ntimetable ", "\n# timetable "),
        ("\ntemplate 0", "\n# template 0"),
        ("\nchain 0 ", "\nchain 1 "),
        (" template=0 ", " template=9999 "),
        (" : embed", " : no.such.region"),
        (" : embed", " : embed embed embed embed embed embed"),
        (" : embed", " embed"),
        ("\nkey fmt ", "\nkey format "),
        ('\nkey fmt "bf16"', '\nkey fmt "bf16'),
        ("\npiece region=", "\npiece region=99999999999"),
    ],
)
def test_what_is_not_understood_names_its_line(old, new):
    text = to_text(compiled("decode"))
    assert old in text
    with pytest.raises(InputError, match=r"T354: .* line \d+\]"):
        from_text(text.replace(old, new, 1))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_damaged_text_is_an_input_error_or_another_program(data):
    text = to_text(compiled("decode"))
    at = data.draw(st.integers(0, len(text) - 1))
    mark = data.draw(st.sampled_from(["", " ", "\n", "=", "9", "-", "x", '"', "[", ","]))
    try:
        from_text(text[:at] + mark + text[at + 1 :])
    except InputError as problem:
        assert problem.code == "T354"  # noqa: PT017 - any other outcome is a program


def test_golden_text():
    text = (GOLDEN / "text_small.txt").read_text(encoding="utf-8")
    program = from_text(text)
    assert to_text(program) == text
    assert program_digest(program) == "b7bab30e980da4f2cc459b9766deb55c0cc2981bd4b129d5766b2e11242f013a"
    assert [r.name for r in program.image.regions] == ["arena.0", "x y"]
    assert program.timetables[0].rows.tolist() == [
        [1, 0, 0, 0, 0, 0, 0],
        [2, -4, 1, 1, 0, 0, 2],
        [-1, 0, 0, 0, 0, 0, 0],
    ]
