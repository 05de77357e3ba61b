"""The replay against a naive one in plain Python, and against planted faults."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from tests.unit.sim.programs import compiled
from tests.unit.sim.timetables import chain, program, row, scratch, timed, weight

from ticktrue.errors import InputError, UsageError
from ticktrue.hw import load_system
from ticktrue.isa import Op, Unit
from ticktrue.program import Program, RegionClass, StepKind, expand
from ticktrue.program import columns as col
from ticktrue.sim import simulate

READ, WRITE = {Op.LOAD, Op.GATHER}, {Op.STORE, Op.SCATTER}


def naive_starts(program, system):
    """Earliest chain starts by comparing every two rows on every chip: no sweep, no sharing between chips.

    Rows that overlap on one port are left out: the program at hand has none (asserted).
    """
    flat = expand(program.image, program.timetables[0], system)
    rows, chain_of = flat.rows, flat.rows[:, col.C_CHAIN]
    offset = rows[:, col.C_ISSUE] - flat.start[chain_of]
    end = offset + rows[:, col.C_SPAN]
    held = end.copy()
    for r in np.flatnonzero(rows[:, col.C_OP] == Op.PASS):
        s = rows[r, col.C_S1]
        held[s] = max(held[s], end[r])
    least = defaultdict(lambda: -(10**9))
    for chip in range(flat.plan.chips):
        uses = _uses(flat, chip)
        touched = _touched(flat, chip)
        order = sorted(range(len(rows)), key=lambda r: (rows[r, col.C_ISSUE], r))
        for k, r in enumerate(order):
            for x in order[:k]:
                u, v = int(chain_of[x]), int(chain_of[r])
                if u == v:
                    continue
                bounds = [held[x] if name[0] == "plane" else end[x] for name in uses[x] & uses[r]]
                if touched[x][1] & touched[r][0]:
                    bounds.append(end[x] + flat.table.latency[Op.STORE])
                if (touched[x][1] | touched[x][0]) & touched[r][1]:
                    bounds.append(end[x])
                for b in bounds:
                    least[u, v] = max(least[u, v], int(b - offset[r]))
    return _settle(flat, least)


def _settle(flat, least):
    start, moved = np.zeros(len(flat.start), dtype=np.int64), True
    while moved:
        moved = False
        for (u, v), weight_cycles in least.items():
            if start[u] + weight_cycles > start[v]:
                start[v], moved = start[u] + weight_cycles, True
    return start


def _uses(flat, chip):
    """Names of everything a row holds on a chip."""
    out, peers = [], flat.peer(chip)
    for r, (op, unit, port, dtype) in enumerate(
        flat.rows[:, [col.C_OP, col.C_UNIT, col.C_PORT, col.C_DTYPE]].tolist()
    ):
        if op == Op.INSTALL:
            size = 4 if dtype == 1 else 2
            out.append({("load", 0)} | {("plane", port * size + k) for k in range(size)})
        elif op in {Op.SEND, Op.RECEIVE}:
            out.append({(op, int(peers[r]))})
        else:
            out.append({("port", unit, port)} if unit != Unit.MXM_PLANE else set())
    return out


def _touched(flat, chip):
    """(addresses read, addresses written) of each row."""
    out, address = [], flat.address(chip)
    for r, x in enumerate(flat.rows.tolist()):
        if x[col.C_OP] not in READ | WRITE:
            out.append((set(), set()))
            continue
        region = flat.regions[x[col.C_REGION]]
        base = region.group * flat.table.group_vectors + region.base
        if x[col.C_REGFN] or region.cls == RegionClass.STATE:
            cells = set(range(base, base + region.vectors))
        else:
            cells = {int(address[r]) + i * x[col.C_STEP] + j * x[col.C_STEP2] + v
                     for i in range(x[col.C_N]) for j in range(x[col.C_M]) for v in range(x[col.C_WIDTH])}  # fmt: skip
        out.append((cells, set()) if x[col.C_OP] in READ else (set(), cells))
    return out


@pytest.mark.parametrize(("chips", "tokens"), [(1, 1), (2, 1), (3, 4)])
def test_the_sweep_finds_what_a_naive_comparison_finds(chips, tokens):
    made, system = compiled(chips=chips, tokens=tokens)
    timing = simulate(made, system)
    assert timing.chains.earliest.tolist() == naive_starts(made, system).tolist()


@pytest.mark.parametrize(
    ("name", "chips", "tokens", "blocks"),
    [
        ("groq3-lpx-tray", 6, 1, 3),
        ("groq3-lpx-tray", 6, 4, 3),
        ("groq3-lpx-tray", 2, 1, 8),
        ("groq3-lpx-tray", 12, 1, 7),
    ],
)
def test_a_compiled_program_is_clean(name, chips, tokens, blocks):
    made, system = compiled(name, chips, tokens, blocks)
    timing = simulate(made, system)
    assert timing.mismatches == ()
    assert timing.recomputed_cycles == timing.duration_cycles == made.timetables[0].duration
    assert not timing.chains.late.any()


def changed(made, **fields):
    return Program(made.image, (replace(made.timetables[0], **fields),))


@pytest.mark.parametrize("by", [1, 7])
def test_every_chain_that_is_moved_is_found(by):
    """Later or earlier by a few cycles: the chain itself is always among the mismatches, with the right distance."""
    made, system = compiled()
    starts = made.timetables[0].chains
    for c in range(0, len(starts), 3):
        for shift in (by, -by):
            chains = starts.copy()
            chains[c, 1] += shift
            if chains[c, 1] < 0:
                continue
            timing = simulate(changed(made, chains=chains), system)
            assert not timing.clean
            if shift > 0 and timing.chains.earliest[c] == starts[c, 1]:
                assert any(m.chain == c and m.late_cycles == shift for m in timing.mismatches)


def test_a_moved_chain_does_not_move_the_earliest_starts():
    """The order is all that counts: the last chain moved far away is still due where it was."""
    made, system = compiled()
    last = int(np.argmax(made.timetables[0].chains[:, 1]))
    chains = made.timetables[0].chains.copy()
    chains[last, 1] += 10_000
    timing = simulate(changed(made, chains=chains), system)
    assert timing.chains.earliest.tolist() == made.timetables[0].chains[:, 1].tolist()
    mine = next(m for m in timing.mismatches if m.chain == last)
    assert (mine.code, mine.late_cycles) == ("V130", 10_000)
    assert made.timetables[0].labels[last] in mine.message


def test_a_wrong_duration_is_found():
    made, system = compiled()
    timing = simulate(changed(made, duration=made.timetables[0].duration - 1), system)
    assert [(m.code, m.chain, m.late_cycles) for m in timing.mismatches] == [("V130", -1, -1)]


def test_a_row_that_does_not_hear_its_operand_is_found():
    made, system = compiled()
    t = made.timetables[0]
    victims = np.flatnonzero(t.templates[:, col.T_S0] >= 0)[::5]
    for victim in victims:
        templates = t.templates.copy()
        templates[victim, col.T_OFFSET] += 1
        timing = simulate(changed(made, templates=templates), system)
        assert any("but hears row" in m.message for m in timing.mismatches)


def copier(label, start, source, target, *, port=0, late=0):
    """Reads one vector of region 0, writes one of region 1: 5 + 1 cycles, readable after 3 more."""
    read = row(Op.LOAD, 0, region=0, base=source, port=port)
    return chain(
        label, start, read, row(Op.STORE, 5, s0=0, region=1, group=1, base=target, port=port), late=late
    )


REGIONS = (weight("w", 8), scratch("out", 8, group=1))


def test_a_chain_marked_late_keeps_its_place():
    marked = copier("late", 20, 0, 0, late=col.LATE_STREAMS)
    follower = chain(
        "next", 29, row(Op.LOAD, 0, region=1, group=1), row(Op.STORE, 5, s0=0, region=1, base=4, group=1)
    )
    timing = timed([marked, follower], REGIONS)
    assert timing.clean
    assert timing.chains.late.tolist() == [20, 0]
    assert {s.name: s.cycles for s in timing.causes}["waiting: streams"] == 20


def test_a_chain_marked_late_without_being_late_is_found():
    timing = timed([copier("early", 0, 0, 0, late=col.LATE_STREAMS)], REGIONS)
    assert [m.message for m in timing.mismatches] == [
        "chain early is stated at cycle 0, its earliest start is 0, yet it is marked late"
    ]


def test_a_pass_before_its_plane_is_ready_is_found():
    rows = (
        row(Op.LOAD, 0, wide=1, width=8, region=0),
        row(Op.INSTALL, 5, width=8, s0=0),
        row(Op.LOAD, 7, region=0),
        row(Op.PASS, 12, s0=2, s1=1),  # ready at 5 + 1 + 7 = 13
        row(Op.STORE, 23, s0=3, region=1, group=1),
    )
    timing = timed([chain("tile", 0, *rows)], REGIONS)
    assert [m.message for m in timing.mismatches] == [
        "chain tile: row 3 (PASS) is issued at 12, but its plane is ready at 13"
    ]


def test_idle_cycles_within_a_chain_are_found():
    """Two copies in one chain; the second, all its rows 4 cycles later than anything asks for."""
    rows = (
        row(Op.LOAD, 0, region=0), row(Op.STORE, 5, s0=0, region=1, group=1),
        row(Op.LOAD, 4, region=0, port=1), row(Op.STORE, 9, s0=2, region=1, group=1, base=1, port=1),
    )  # fmt: skip
    timing = timed([chain("two", 0, *rows)], REGIONS)
    assert [m.message for m in timing.mismatches] == [
        "chain two: row 2 (LOAD) is issued at 4, its ties allow 0"
    ]


def test_chains_that_wait_for_each_other_are_found():
    """Each one's second row follows the other's first on a port, closer than either chain allows."""

    def woven(label, start, near, far, base):
        rows = (row(Op.LOAD, 0, region=0, base=base, n=6, p=1, step=1, port=near),
                row(Op.STORE, 5, s0=0, region=1, group=1, base=base, n=6, p=1, step=1, port=far))  # fmt: skip
        return chain(label, start, *rows)

    overlap = [woven("a", 0, 0, 0, 0), woven("b", 3, 1, 0, 0)]
    timing = timed(overlap, REGIONS)
    assert not timing.clean
    assert timing.chains.earliest.tolist() == [0, 6]


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [(col.T_N, 0, "n from 1"), (col.T_WIDTH, -1, "width from 0"), (col.T_DTYPE, 9, "dtype from 0 to 3"),
     (col.T_Q, -5, "q from 0"), (col.T_PATTERN, -1, "pattern from 0 to 8")],
)  # fmt: skip
def test_what_is_no_row_is_refused(column, value, expected):
    made, system = compiled()
    templates = made.timetables[0].templates.copy()
    templates[20, column] = value
    with pytest.raises(InputError, match=f"T361: expected {expected}"):
        simulate(changed(made, templates=templates), system)


def test_counts_beyond_reason_end_in_time():
    """A row of 2^30 events on ports that others use: found wrong, and not replayed event by event."""
    made, system = compiled()
    t = made.timetables[0]
    templates = t.templates.copy()
    victims = np.flatnonzero(templates[:, col.T_N] > 1)
    templates[victims[0], [col.T_N, col.T_P]] = 1 << 30, 2
    assert not simulate(changed(made, templates=templates), system).clean


def test_no_rows_take_no_time():
    timing = simulate(program([], REGIONS), load_system("tiny-4"))
    assert (timing.recomputed_cycles, timing.path, timing.clean) == (0, (), True)


def test_the_step_kind_must_exist():
    made, system = compiled()
    kind = made.timetables[0].kind
    assert simulate(made, system, kind).duration_cycles == simulate(made, system).duration_cycles
    with pytest.raises(UsageError, match=r"T130.*T1\.S1\.B3\.last\.chip.*found T2\.S1\.B3\.last\.chip"):
        simulate(made, system, StepKind(2, 1, 3, "last", "chip"))
    with pytest.raises(UsageError, match="one of several"):
        simulate(Program(made.image, made.timetables * 2), system)
