"""Whatever integers stand in a program, there is a verdict and no exception; what is found legal expands."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.verify import programs as p

from ticktrue.hw import load_system
from ticktrue.program import Plan, Program, expand, output_progression
from ticktrue.verify import verify

GOOD, SYSTEM = p.good()
INT32 = st.one_of(
    st.integers(-5, 12),
    st.integers(-(2**31), 2**31 - 1),
    st.sampled_from([2**31 - 1, -(2**31), 2**30, 65_536, 999, 1 << 24]),
)
INT64 = st.one_of(INT32, st.integers(-(2**63), 2**63 - 1), st.sampled_from([2**63 - 1, -(2**63), 1 << 44]))
HUGE = st.one_of(INT64, st.sampled_from([10**30, -(10**30)]))
TABLES = ("templates", "template_start", "chains", "rows")


@st.composite
def damaged(draw: st.DrawFn) -> Program:
    """The good program with a few numbers replaced anywhere."""
    program = GOOD
    for _ in range(draw(st.integers(1, 4))):
        program = draw(st.sampled_from(CHANGES))(draw, program)
    return program


def _table(draw: st.DrawFn, program: Program) -> Program:
    name = draw(st.sampled_from(TABLES))
    table = getattr(program.timetables[0], name).copy()
    at = tuple(draw(st.integers(0, size - 1)) for size in table.shape)
    table[at] = draw(INT64 if table.dtype == np.int64 else INT32)
    return p.with_timetable(program, **{name: table})


def _pieces(draw: st.DrawFn, program: Program) -> Program:
    table = program.image.pieces.copy()
    table[draw(st.integers(0, len(table) - 1)), draw(st.integers(0, table.shape[1] - 1))] = draw(INT32)
    return p.with_image(program, pieces=table)


def _region(draw: st.DrawFn, program: Program) -> Program:
    regions = program.image.regions + program.timetables[0].scratch
    name = draw(st.sampled_from([r.name for r in regions]))
    field = draw(st.sampled_from(["group", "base", "stride", "count", "tensor", "p0", "p1"]))
    return p.with_region(program, name, **{field: draw(HUGE)})


def _key(draw: st.DrawFn, program: Program) -> Program:
    if draw(st.booleans()):
        field = draw(st.sampled_from(["max_context", "slots", "t_max", "vocab"]))
        return p.with_key(program, **{field: draw(HUGE)})
    if draw(st.booleans()):
        return _attention(draw, program)
    plan, field = program.image.key.plan, draw(st.sampled_from(["chips", "tray", "h", "cp", "grids"]))
    if field in {"chips", "tray"}:
        return p.with_key(program, plan=replace(plan, **{field: draw(HUGE)}))
    grids = (
        plan.grids * draw(st.integers(0, 2))
        if field == "grids"
        else (replace(plan.grids[0], **{field: draw(HUGE)}),)
    )
    return p.with_key(program, plan=replace(plan, grids=grids))


def _attention(draw: st.DrawFn, program: Program) -> Program:
    """A field of a kind of attention, a layer's kind, or no kinds or layers at all."""
    key = program.image.key
    field = draw(st.sampled_from(["heads", "kv_heads", "head_dim", "window", "ring", "layers", "kinds"]))
    if field == "layers":
        kinds = draw(st.lists(st.one_of(st.sampled_from([-1, 0, 1]), HUGE), max_size=3))
        return p.with_key(program, layer_kinds=tuple(kinds))
    if field == "kinds":
        return p.with_key(program, attention=key.attention * draw(st.integers(0, 2)))
    of = GOOD.image.key.attention[0]
    return p.with_key(program, attention=(replace(of, **{field: draw(HUGE)}),))


def _tensor(draw: st.DrawFn, program: Program) -> Program:
    tensors = list(program.image.tensors)
    at = draw(st.integers(0, len(tensors) - 1))
    tensors[at] = replace(tensors[at], **{draw(st.sampled_from(["outputs", "inputs", "shard"])): draw(HUGE)})
    return p.with_image(program, tensors=tuple(tensors))


def _timetable(draw: st.DrawFn, program: Program) -> Program:
    t = program.timetables[0]
    if draw(st.booleans()):
        return p.with_timetable(program, duration=draw(HUGE))
    if draw(st.booleans()):
        field = draw(st.sampled_from(["tokens", "slots", "blocks"]))
        return p.with_timetable(program, kind=replace(t.kind, **{field: draw(HUGE)}))
    field = draw(st.sampled_from(["region", "base", "rows", "vectors"]))
    return p.with_timetable(program, outputs=tuple(replace(o, **{field: draw(HUGE)}) for o in t.outputs))


CHANGES = [_table, _table, _table, _table, _pieces, _region, _region, _key, _tensor, _timetable]


@settings(
    max_examples=600,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example],
)
@given(damaged())
def test_there_is_always_a_verdict(program: Program) -> None:
    verdict = verify(program, SYSTEM)
    assert verdict.total >= len(verdict.violations)
    if verdict.clean:
        for timetable in program.timetables:
            flat = expand(program.image, timetable, SYSTEM)
            assert len(output_progression(flat)) == len(flat.rows)


@pytest.mark.parametrize("value", [0, -1, 1, 7, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("table", TABLES)
def test_tables_of_one_number(table: str, value: int) -> None:
    columns = np.full_like(getattr(GOOD.timetables[0], table), value)
    assert not verify(p.with_timetable(GOOD, **{table: columns}), SYSTEM).clean


@pytest.mark.parametrize("table", TABLES)
def test_empty_and_cut_tables(table: str) -> None:
    whole = getattr(GOOD.timetables[0], table)
    for cut in (whole[:0], whole[:-1], whole[1:]):
        assert not verify(p.with_timetable(GOOD, **{table: cut}), SYSTEM).clean


def test_a_program_without_timetables_is_legal() -> None:
    verdict = verify(replace(GOOD, timetables=()), SYSTEM)
    assert verdict.clean
    assert (verdict.rows, verdict.timetables) == (0, 0)


@pytest.mark.parametrize("p0", [-2, -1, 0, 1])
@pytest.mark.parametrize("kinds", [0, 1])
def test_a_program_without_layers_or_kinds_of_attention(kinds: int, p0: int) -> None:
    bare = p.with_key(GOOD, layer_kinds=(), attention=GOOD.image.key.attention[:kinds])
    assert not verify(p.with_region(bare, "k", p0=p0), SYSTEM).clean


def test_a_program_without_regions_and_pieces() -> None:
    bare = p.with_image(GOOD, regions=(), pieces=GOOD.image.pieces[:0])
    assert not verify(bare, SYSTEM).clean


def test_the_list_is_capped_and_the_count_is_not() -> None:
    columns = GOOD.timetables[0].templates.copy()
    columns[:, 3] = 9
    program = p.with_timetable(GOOD, templates=columns)
    columns[:, 5] = 0
    verdict = verify(program, SYSTEM)
    assert len(verdict.violations) == 100
    assert verdict.total > 100


def test_one_chip() -> None:
    """On one chip the copies for peers vanish; what depended on them is found, nothing fails."""
    system = load_system("tiny-4").subset(1)
    program, _ = p.good(system, Plan.of(1, 1))
    verdict = verify(program, system)
    assert not verdict.clean


def test_chains_that_only_speak_to_peers_are_nothing_on_one_chip() -> None:
    system = load_system("tiny-4").subset(1)
    program, _ = p.good(system, Plan.of(1, 1))
    alone = p.only(p.template(program, "gather.a", 0, peers=1), "gather.a", rows=(0, 1, 2, 3))
    (violation,) = verify(alone, system).violations
    assert violation.message == "expected rows, found chains that only speak to peers"


def test_chains_without_memory_or_links() -> None:
    """What nothing writes, sends or reads later needs no memory and no links."""
    alone = p.only(GOOD, "seed", rows=(0,))
    assert "V106" in verify(alone, SYSTEM).codes
