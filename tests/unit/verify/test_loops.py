"""Loops: what is malformed, faults between iterations, and the few iterations that stand for all against all of them."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from tests.models import SPEC
from tests.unit.verify import programs as p

from ticktrue.compile import Options, compile_image, compile_timetable
from ticktrue.hw import System, load_system
from ticktrue.program import Loop, Program, StepKind, expand, unroll
from ticktrue.program import columns as col
from ticktrue.schedule.clock import deskew_period
from ticktrue.sim import simulate
from ticktrue.verify import verify
from ticktrue.verify.dataflow import rows_digest
from ticktrue.verify.legal import check_rows, compact_scope
from ticktrue.verify.scope import Scope
from ticktrue.verify.verdict import Findings

COUNT = 12


# ---- the hand-written program with a loop -----------------------------------------------------------------------------------


def start_of(g: Program, label: str, row: int = 0) -> int:
    """Cycle at which a row of the first iteration is issued."""
    (t,) = g.timetables
    return int(t.chains[t.labels.index(label), 1]) + p.template_field(g, label, row, "offset")


def apart(g: Program, this: tuple[str, int], following: tuple[str, int], by: int = 0) -> int:
    """The period at which a row of the following iteration is issued `by` cycles after a row of this one."""
    return start_of(g, *this) - start_of(g, *following) + by


def looped(
    g: Program,
    system: System,
    labels: tuple[str, str],
    period: int,
    count: int = COUNT,
    strides: tuple[tuple[int, int], ...] = (),
) -> Program:
    """Chains from one label to another repeated, and what follows them as much later; the duration is that of its rows."""
    (t,) = g.timetables
    first, last = (t.labels.index(label) for label in labels)
    chains = t.chains.copy()
    chains[last + 1 :, 1] += (count - 1) * period
    made = p.with_duration(
        p.with_timetable(g, chains=chains, loops=(Loop(first, last, count, period, strides),)), system
    )
    deskew = deskew_period(system.chip, g.image.key.plan.chips, made.timetables[0].duration)
    return p.with_timetable(made, deskew=deskew)


def loop(g: Program, **changes: object) -> Program:
    """Fields of the first loop changed, nothing else."""
    (t,) = g.timetables
    return p.with_timetable(g, loops=(replace(t.loops[0], **changes), *t.loops[1:]))


def far(g: Program, label: str, by: int) -> Program:
    """A chain and all after it that much later."""
    (t,) = g.timetables
    chains = t.chains.copy()
    chains[t.labels.index(label) :, 1] += by
    return p.with_timetable(g, chains=chains)


@pytest.fixture(scope="module")
def good() -> tuple[Program, System]:
    program, system = p.good()
    return program, system


def codes_of(program: Program, system: System, *, compact: bool) -> tuple[str, ...] | None:
    """Codes of the checks in time, of few iterations or of all; None where nothing can be left out."""
    (t,) = program.timetables
    if compact:
        scope = compact_scope(program.image, t, system, expand(program.image, replace(t, loops=()), system))
        if scope is None:
            return None
    else:
        scope = Scope(program.image, unroll(t), system, expand(program.image, t, system), Findings())
    scope = replace(scope, findings=Findings(1_000_000))
    check_rows(scope)
    return tuple(sorted({v.code for v in scope.findings.kept}))


@pytest.mark.parametrize("labels", [("pair", "round"), ("round", "fold"), ("pair", "combine"), ("embed", "append"),
                                    ("gather.a", "merge"), ("seed", "combine")])  # fmt: skip
def test_a_loop_of_bodies_apart_is_clean(good: tuple[Program, System], labels: tuple[str, str]) -> None:
    g, system = good
    (t,) = g.timetables
    after = t.labels.index(labels[1]) + 1
    program = looped(g, system, labels, int(t.chains[after, 1]) - start_of(g, labels[0]))
    verdict = verify(program, system)
    assert verdict.violations == ()
    assert verdict.rows == len(expand(program.image, program.timetables[0], system).rows)
    assert codes_of(program, system, compact=True) == ()
    assert codes_of(program, system, compact=False) == ()


# ---- faults between iterations ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Between:
    """A program that is legal iteration by iteration, and whose iterations get in each other's way."""

    code: str
    name: str
    plant: Callable[[Program, System], Program]
    culprits: tuple[str, ...] = ()


def on_a_unit(g: Program, s: System) -> Program:
    period = apart(g, ("combine", 2), ("score", 1))
    return looped(g, s, ("score", "combine"), period)


def on_a_memory_port(g: Program, s: System) -> Program:
    return looped(g, s, ("score", "seed"), apart(g, ("seed", 0), ("score", 0), by=10))


def in_memory(g: Program, s: System) -> Program:
    g = p.stored(g, "seed", 1, port=1)
    return looped(g, s, ("seed", "combine"), apart(g, ("combine", 0), ("seed", 1), by=21))


def on_a_link(g: Program, s: System) -> Program:
    g = far(g, "gather.b", 400)
    return looped(g, s, ("gather.a", "gather.b"), apart(g, ("gather.b", 1), ("gather.a", 1)))


def on_a_plane(g: Program, s: System) -> Program:
    g = p.stored(far(g, "tile.b", 400), "tile.b", 1, port=0)
    return looped(g, s, ("tile.a", "tile.b"), apart(g, ("tile.b", 1), ("tile.a", 1), by=50))


def before_it_is_written(g: Program, s: System) -> Program:
    """What iteration 1 reads, iteration 0 wrote; iteration 0 reads what nobody wrote."""
    return looped(p.shifted(far(g, "pair", 300), "round", -392), s, ("pair", "round"), 400)


def more_code(g: Program, s: System) -> Program:
    return looped(g, s, ("pair", "round"), 300, count=600)


def another_duration(g: Program, s: System) -> Program:
    made = looped(g, s, ("pair", "round"), 300)
    return p.with_timetable(made, duration=made.timetables[0].duration + 1)


BETWEEN = [
    Between("V101", "a unit", on_a_unit, ("combine COMBINE row 2", "score[i1] SCALE")),
    Between("V102", "a memory port", on_a_memory_port, ("seed LOAD row 0", "score[i1] LOAD row 0")),
    Between("V104", "memory", in_memory, ("combine LOAD row 0", "seed[i1] STORE row 1")),
    Between("V107", "a link", on_a_link, ("gather.b SEND", "gather.a[i1] SEND")),
    Between("V110", "a plane", on_a_plane, ("tile.b INSTALL", "tile.a[i1] INSTALL")),
    Between("V103", "memory before it is written", before_it_is_written, ("round LOAD row 0",)),
    Between("V109", "code for all iterations", more_code),
    Between("V100", "the end of the last iteration", another_duration),
]


@pytest.mark.parametrize("fault", BETWEEN, ids=lambda f: f"{f.code} {f.name}")
def test_a_fault_between_iterations_gives_exactly_its_code(
    good: tuple[Program, System], fault: Between
) -> None:
    g, system = good
    program = fault.plant(g, system)
    verdict = verify(program, system)
    assert verdict.codes == (fault.code,), "\n".join(map(str, verdict.violations))
    told = " ".join(f"{v} {v.first} {v.second}" for v in verdict.violations)
    for culprit in fault.culprits:
        assert culprit in told, told
    assert codes_of(program, system, compact=True) == (fault.code,)
    assert codes_of(program, system, compact=False) == (fault.code,)


def test_streams_of_two_iterations_are_summed(good: tuple[Program, System]) -> None:
    g, system = good
    narrow = system.with_fact("streams", 13)
    g = p.on(g, narrow)
    assert verify(g, narrow).clean
    period = apart(g, ("turn", 0), ("score", 0), by=8)
    program = looped(g, narrow, ("score", "turn"), period)
    assert verify(program, narrow).codes == ("V111",)
    assert codes_of(program, narrow, compact=True) == ("V111",)
    assert verify(looped(g, narrow, ("score", "turn"), period + 200), narrow).clean


def test_clocks_drift_over_all_iterations(good: tuple[Program, System]) -> None:
    """60 ppm allow 50,000 cycles between alignments: the good program takes 15,000, all iterations together more."""
    g, system = good
    drifting = system.with_fact("drift_ppm", 60).with_fact("epoch_cycles", 200_000)
    g = p.on(g, drifting)
    assert verify(g, drifting).clean
    program = p.with_timetable(looped(g, drifting, ("pair", "round"), 20_000, 8), deskew=0)
    assert verify(program, drifting).codes == ("V113",)
    assert codes_of(program, drifting, compact=True) == ("V113",)


def two_loops(g: Program, system: System) -> Program:
    """`pair` and `round` repeated, then `seed` and `combine`."""
    one = looped(g, system, ("pair", "round"), 300)
    (t,) = one.timetables
    first, last = t.labels.index("seed"), t.labels.index("combine")
    chains = t.chains.copy()
    chains[last + 1 :, 1] += 9 * 260
    both = p.with_timetable(one, chains=chains, loops=(*t.loops, Loop(first, last, 10, 260, ())))
    return p.with_duration(both, system)


def test_two_loops_are_shortened_one_after_the_other(good: tuple[Program, System]) -> None:
    g, system = good
    program = two_loops(g, system)
    (t,) = program.timetables
    assert verify(program, system).violations == ()
    scope = compact_scope(program.image, t, system, expand(program.image, replace(t, loops=()), system))
    assert scope is not None
    assert scope.more_cycles == 9 * 300 + 7 * 260
    assert scope.timetable.duration + scope.more_cycles == t.duration
    close = p.with_timetable(program, loops=(t.loops[0], replace(t.loops[1], period=130)))
    assert "V104" in verify(close, system).codes
    assert codes_of(close, system, compact=True) == codes_of(close, system, compact=False)


def test_a_chain_beside_a_loop_is_held_against_the_iteration_it_meets(good: tuple[Program, System]) -> None:
    """Only iterations before it can be left out then: what runs beside the sixth still does."""
    g, system = good
    program = looped(g, system, ("pair", "round"), 300)
    sixth = start_of(program, "round") + 5 * 300
    beside = p.with_duration(p.shifted(program, "seed", sixth + 20 - start_of(program, "seed")), system)
    assert verify(beside, system).violations == ()
    (t,) = beside.timetables
    scope = compact_scope(beside.image, t, system, expand(beside.image, replace(t, loops=()), system))
    assert scope is not None
    assert scope.more_cycles == 3 * 300
    meets = p.with_duration(p.shifted(program, "seed", sixth - 198 - start_of(program, "seed")), system)
    meets = p.stored(meets, "seed", 1, port=0)
    assert codes_of(meets, system, compact=True) == ("V102",)
    verdict = verify(meets, system)
    assert verdict.codes == ("V102",)
    assert "pair[i5] STORE" in f"{verdict.violations[0].first} {verdict.violations[0].second}"


def moved(rng: np.random.Generator, program: Program) -> Program:
    """Some chains moved by a little, and the periods of the loops."""
    (t,) = program.timetables
    chains = t.chains.copy()
    for _ in range(int(rng.integers(1, 3))):
        chains[int(rng.integers(len(chains))), 1] += int(
            rng.choice([-200, -90, -40, -11, -4, -1, 1, 3, 17, 60, 150])
        )
    loops = tuple(
        replace(x, period=x.period + int(rng.choice([0, 0, 0, -150, -90, -60, -30, -10, 10])))
        for x in t.loops
    )
    return p.with_timetable(program, chains=np.maximum(chains, 0), loops=loops)


def test_few_iterations_of_two_loops_find_what_all_find(good: tuple[Program, System]) -> None:
    g, system = good
    base, rng, looked, clean = two_loops(g, system), np.random.default_rng(5), 0, 0
    for _ in range(300):
        program = p.with_duration(moved(rng, base), system)
        verdict = verify(program, system)
        short = codes_of(program, system, compact=True) if verdict.rows else None
        if short is None:
            continue
        looked += 1
        assert short == codes_of(program, system, compact=False), (
            program.timetables[0].chains,
            program.timetables[0].loops,
        )
        assert (short == ()) == verdict.clean
        clean += verdict.clean
    assert looked > 150
    assert 20 < clean < looked - 50


# ---- loops that are none ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wrong:
    """Fields of a legal loop over `pair` and `round`, changed."""

    code: str
    name: str
    plant: Callable[[Program], Program]


def strides(*pairs: tuple[int, int]) -> Callable[[Program], Program]:
    return lambda g: loop(g, strides=pairs)


def also(*others: Loop) -> Callable[[Program], Program]:
    return lambda g: p.with_timetable(g, loops=(*g.timetables[0].loops, *others))


WRONG = [
    Wrong("V112", "a first chain before all", lambda g: loop(g, first=-1)),
    Wrong("V112", "a last chain after all", lambda g: loop(g, last=99)),
    Wrong("V112", "a last chain before the first", lambda g: loop(g, first=3)),
    Wrong("V112", "one iteration", lambda g: loop(g, count=1)),
    Wrong("V112", "iterations without end", lambda g: loop(g, count=1 << 40)),
    Wrong("V112", "more rows than any chip has code for", lambda g: loop(g, count=1 << 20)),
    Wrong("V112", "no period", lambda g: loop(g, period=0)),
    Wrong("V112", "a period after the end of time", lambda g: loop(g, period=1 << 43)),
    Wrong("V112", "a number that is none", lambda g: loop(g, count="many")),
    Wrong("V112", "a stride of no region", strides((99, 1))),
    Wrong("V112", "a stride of a scratch region", strides((11, 1))),
    Wrong("V112", "a stride beyond all numbers", strides((0, 1 << 40))),
    Wrong("V100", "a stride of nothing", strides((0, 0))),
    Wrong("V119", "a loop in a loop", also(Loop(2, 2, 2, 100, ()))),
    Wrong("V119", "loops that share a chain", also(Loop(2, 3, 2, 1000, ()))),
    Wrong("V119", "loops in another order", also(Loop(0, 0, 2, 100, ()))),
    Wrong("V119", "a body of three periods", lambda g: loop(g, period=60)),
]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda w: f"{w.code} {w.name}")
def test_a_loop_that_is_none_gives_exactly_its_code(good: tuple[Program, System], wrong: Wrong) -> None:
    g, system = good
    program = wrong.plant(looped(g, system, ("pair", "round"), 300, count=4))
    verdict = verify(program, system)
    assert verdict.codes == (wrong.code,), "\n".join(map(str, verdict.violations))
    assert "loops" in verdict.violations[0].where


# ---- compiled programs ------------------------------------------------------------------------------------------------------

KIND = StepKind(2, 1, 3, "last", "chip")


@dataclass(frozen=True)
class Compiled:
    """A program of one loop over eight layers on six chips, and the one that was never looped."""

    program: Program
    unrolled: Program
    system: System


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    system, spec = load_system("groq3-lpx-tray").subset(6), replace(SPEC, layers=8)
    image = compile_image(spec, system, Options(max_context=300))
    one, two = (compile_timetable(spec, system, image, KIND, loops=loops) for loops in (True, False))
    return Compiled(Program(image, (one,)), Program(image, (two,)), system)


def test_a_compiled_loop_is_clean_and_few_rows_are_looked_at(compiled: Compiled) -> None:
    (t,) = compiled.program.timetables
    (only,) = t.loops
    assert only.count == 8
    verdict = verify(compiled.program, compiled.system)
    assert verdict.violations == ()
    assert verdict.rows == verify(compiled.unrolled, compiled.system).rows
    once = expand(compiled.program.image, replace(t, loops=()), compiled.system)
    scope = compact_scope(compiled.program.image, t, compiled.system, once)
    assert scope is not None
    body = int(once.row_of_chain[only.last + 1] - once.row_of_chain[only.first])
    assert len(scope.rows) <= len(once.rows) + 2 * body  # three iterations stand for eight
    assert len(scope.rows) + scope.more_rows == verdict.rows


@pytest.mark.parametrize("region", ["L0.qkv", "L0.down", "L0.k0", "layers.0.attn_norm"])
def test_a_wrong_stride_is_seen(compiled: Compiled, region: str) -> None:
    """Left out, every iteration reads the first layer's; doubled or turned, it leads to other kinds of regions or out."""
    program, system = compiled.program, compiled.system
    (t,) = program.timetables
    assert rows_digest(program, t, system) == t.dataflow
    (only,) = t.loops
    of = p.region_id(program, region)
    left = loop(program, strides=tuple((r, s) for r, s in only.strides if r != of))
    # keys of one layer in every iteration are more heads than it has; of all else only the digest knows
    assert verify(left, system).codes == (("V117",) if region == "L0.k0" else ())
    assert rows_digest(left, left.timetables[0], system) != t.dataflow
    for step in (2, -1, 8):
        turned = loop(program, strides=tuple((r, step if r == of else s) for r, s in only.strides))
        assert set(verify(turned, system).codes) <= {"V100", "V112", "V119"}
        assert not verify(turned, system).clean
    out = loop(program, strides=tuple((r, 1_000 if r == of else s) for r, s in only.strides))
    assert verify(out, system).codes == ("V112",)


def test_layers_in_another_order_are_legal_and_seen_by_the_digest(compiled: Compiled) -> None:
    """From the last layer to the first: nothing but the digest can know that this is not the model."""
    program, system = compiled.program, compiled.system
    (t,) = program.timetables
    (only,) = t.loops
    of = [p.region_id(program, name) for name in ("L0.qkv", "L7.qkv")]
    rows = t.rows.copy()
    rows[rows[:, col.V_REGION] == of[0], col.V_REGION] = of[1]
    back = tuple(sorted((of[1], -s) if r == of[0] else (r, s) for r, s in only.strides))
    turned = loop(p.with_timetable(program, rows=rows), strides=back)
    assert verify(turned, system).violations == ()
    assert simulate(turned, system).clean
    assert rows_digest(turned, turned.timetables[0], system) != t.dataflow


def test_strides_that_mean_nothing_or_meet(compiled: Compiled) -> None:
    program, system = compiled.program, compiled.system
    (only,) = program.timetables[0].loops
    first, unused, small = (p.region_id(program, n) for n in ("L0.qkv", "L1.qkv", "final_norm"))
    extra = loop(program, strides=tuple(sorted((*only.strides, (unused, 1)))))
    assert "V100" in verify(extra, system).codes
    assert "no row of the body names it" in " ".join(map(str, verify(extra, system).violations))
    twice = loop(program, strides=(*only.strides, only.strides[0]))
    assert verify(twice, system).codes == ("V100",)
    other_form = loop(program, strides=tuple((r, small - r if r == first else s) for r, s in only.strides))
    assert not verify(other_form, system).clean
    # keys are appended to a layer's region and read from the next one's: two iterations share it
    (t,) = program.timetables
    rows = t.rows.copy()
    own, following = (p.region_id(program, n) for n in ("L0.k0", "L1.k0"))
    rows[np.flatnonzero(rows[:, col.V_REGION] == own)[-1], col.V_REGION] = following
    verdict = verify(p.with_timetable(program, rows=rows), system)
    assert verdict.codes == ("V119",)
    assert "iterations meet in region L1.k0" in str(verdict.violations[0])


def test_a_layer_less_is_another_expression_and_one_more_does_not_exist(compiled: Compiled) -> None:
    program, system = compiled.program, compiled.system
    (t,) = program.timetables
    (only,) = t.loops
    assert verify(loop(program, count=9), system).codes == ("V100", "V119")  # other regions, and some twice
    less = loop(program, count=7)
    assert verify(less, system).codes == ("V117",)  # where the eighth layer was, nothing attends its heads
    assert simulate(less, system).mismatches[0].code == "V130"
    chains = t.chains.copy()
    chains[only.last + 1 :, 1] -= only.period
    told = p.with_duration(p.with_timetable(less, chains=chains), system)
    assert verify(told, system).codes == ("V117",)
    assert simulate(told, system).clean
    assert rows_digest(told, told.timetables[0], system) != t.dataflow


def test_a_period_longer_than_needed_is_late(compiled: Compiled) -> None:
    program, system = compiled.program, compiled.system
    (t,) = program.timetables
    (only,) = t.loops
    chains = t.chains.copy()
    chains[only.last + 1 :, 1] += only.count - 1
    slow = p.with_timetable(
        loop(program, period=only.period + 1), chains=chains, duration=t.duration + only.count - 1
    )
    assert verify(slow, system).violations == ()
    timing = simulate(slow, system)
    assert not timing.clean
    assert timing.chains.late.max() >= only.count - 1


def mutated(rng: np.random.Generator, program: Program) -> Program:
    """A period, or a cycle, port, base or offset of some row changed by a little."""
    (t,) = program.timetables
    (only,) = t.loops
    what = int(rng.integers(5))
    if what == 0:
        return loop(program, period=only.period + int(rng.integers(-40, 40)))
    chains, rows, templates = t.chains.copy(), t.rows.copy(), t.templates.copy()
    if what == 1:
        chains[int(rng.integers(len(chains))), 1] += int(
            rng.choice([-300, -40, -7, -3, -1, 1, 2, 5, 30, 200, 3_000])
        )
    elif what == 2:
        rows[int(rng.integers(len(rows))), col.V_PORT] = int(rng.integers(4))
    elif what == 3:
        at = int(rng.integers(len(rows)))
        rows[at, col.V_BASE] += int(rng.choice([-4, -1, 1, 2, 4])) * (rows[at, col.V_REGION] >= 0)
    else:
        templates[int(rng.integers(len(templates))), col.T_OFFSET] += int(rng.integers(-3, 4))
    return p.with_timetable(program, chains=np.maximum(chains, 0), rows=rows, templates=templates)


def test_few_iterations_find_a_fault_exactly_where_all_do(compiled: Compiled) -> None:
    """250 random changes: the compact checks give the codes that the flat ones give, and both outcomes are common."""
    rng, clean, looked = np.random.default_rng(3), 0, 0
    for _ in range(250):
        program = mutated(rng, compiled.program)
        (t,) = program.timetables
        sound = verify(program, compiled.system)
        short = codes_of(program, compiled.system, compact=True) if sound.rows else None
        if short is None:  # not looked at in time, or every iteration is
            continue
        looked += 1
        assert short == codes_of(program, compiled.system, compact=False), (t.chains, t.loops)
        assert (short == ()) == sound.clean
        clean += sound.clean
    print(f"{looked} of 250 compared, {clean} clean")  # noqa: T201 - shown by pytest -s
    assert looked > 150
    assert 20 < clean < looked - 50
