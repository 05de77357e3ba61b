"""Equal layers as one loop: the same cycles, ports, bits and digest as written out, in a fraction of the rows."""

from dataclasses import replace

import numpy as np
import pytest
from tests.models import SPEC
from tests.unit.place.test_image import SMOLLM2

from ticktrue.compile import Options, compile_image, compile_program, compile_timetable, unproved_timetable
from ticktrue.compile.loops import LEAST_BODIES, Repeat, find_repeat
from ticktrue.graph.build import build_graph
from ticktrue.graph.types import Graph
from ticktrue.hw import System, load_system
from ticktrue.model import ModelSpec
from ticktrue.place import fill
from ticktrue.program import Image, Program, StepKind, Timetable, image_digest, unroll
from ticktrue.program import columns as col
from ticktrue.sim import assumed_constants, masked_cycles, simulate
from ticktrue.verify import verify
from ticktrue.verify.dataflow import rows_digest

DEEP = replace(SPEC, layers=9)
KIND = StepKind(1, 1, 3, "last", "chip")


def on(chips: int) -> System:
    return load_system("groq3-lpx-tray").subset(chips)


def both(spec: ModelSpec, system: System, image: Image, kind: StepKind) -> tuple[Timetable, Timetable]:
    """The timetable as compiled, and the one of all layers scheduled freely."""
    return tuple(unproved_timetable(spec, system, image, kind, loops=loops) for loops in (True, False))  # type: ignore[return-value]


def same(a: Timetable, b: Timetable) -> bool:
    """Whether two timetables without loops are one: templates, chains with their cycles, rows with their ports, labels."""
    columns = ("templates", "template_start", "chains", "rows")
    return all(np.array_equal(getattr(a, c), getattr(b, c)) for c in columns) and replace(
        a, **{c: getattr(b, c) for c in columns}
    ) == b  # fmt: skip


@pytest.mark.parametrize("chips", [1, 2, 3, 6, 16])
@pytest.mark.parametrize("kind", [KIND, StepKind(4, 1, 3, "all", "chip"), StepKind(64, 1, 5, "last", "chip")],
                         ids=StepKind.label)  # fmt: skip
def test_a_loop_written_out_is_the_freely_scheduled_program(chips: int, kind: StepKind) -> None:
    system = on(chips)
    image = compile_image(DEEP, system, Options(max_context=300))
    looped, free = both(DEEP, system, image, kind)
    assert [(loop.count, free.loops) for loop in looped.loops] == [(9, ())]
    assert len(looped.rows) < 0.3 * len(free.rows)
    assert same(unroll(looped), free)
    program = Program(image, (looped,))
    assert verify(program, system).violations == ()
    timing = simulate(program, system)
    assert timing.mismatches == ()
    assert timing.recomputed_cycles == free.duration


def test_smollm2_is_one_loop_of_thirty_layers() -> None:
    """Same cycles, same digest as the graph's, and a twelfth of the rows."""
    system, kind = on(8), StepKind(1, 1, 24, "last", "chip")
    image = compile_image(SMOLLM2, system, Options())
    looped = compile_timetable(SMOLLM2, system, image, kind)
    free = unproved_timetable(SMOLLM2, system, image, kind, loops=False)
    (loop,) = looped.loops
    assert loop.count == 30
    assert len(looped.rows) * 12 < len(free.rows)
    assert same(replace(unroll(looped), dataflow=""), free)
    program = Program(image, (looped,))
    assert verify(program, system).clean
    assert simulate(program, system).clean
    assert rows_digest(program, looped, system) == looped.dataflow
    unrolled = unroll(looped)
    assert rows_digest(Program(image, (unrolled,)), unrolled, system) == looped.dataflow


@pytest.mark.parametrize("tokens", [1, 64])
def test_chains_late_for_want_of_streams_are_late_in_every_iteration(tokens: int) -> None:
    """With 24 streams some chains wait for others' results to end: marked in the body, and the replay agrees each time."""
    system = on(1).with_fact("streams", 24)
    image = compile_image(DEEP, system, Options(max_context=300))
    looped, free = both(DEEP, system, image, StepKind(tokens, 1, 5, "last", "chip"))
    (loop,) = looped.loops
    marks = int((looped.chains[loop.first : loop.last + 1, 2] == col.LATE_STREAMS).sum())
    assert marks > 0
    assert int((free.chains[:, 2] == col.LATE_STREAMS).sum()) == 9 * marks
    assert same(unroll(looped), free)
    program = Program(image, (looped,))
    assert verify(program, system).clean
    timing = simulate(program, system)
    assert timing.mismatches == ()
    assert timing.chains.late.max() > 0


def test_what_moves_the_time_is_the_same_with_a_loop() -> None:
    system = on(3)
    image = compile_image(DEEP, system, Options(max_context=300))
    looped, free = both(DEEP, system, image, KIND)
    found = []
    for t in (looped, free):
        program = Program(image, (t,))
        timing = simulate(program, system)
        found.append((timing, assumed_constants(program, system, timing), masked_cycles(program, system, 70)))
    assert found[0][1:] == found[1][1:]
    assert found[0][0].path == found[1][0].path
    assert found[0][0].use == found[1][0].use


def test_layers_that_lie_alike_in_threes_are_a_loop_of_three_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a full chip, or a model of several kinds of layers, needs: a body of several layers, and some left over."""
    monkeypatch.setattr(fill, "_PERIODS", (3,))
    spec, system = replace(SPEC, layers=20), on(3)
    image = compile_image(spec, system, Options(max_context=300))
    assert find_repeat(build_graph(spec, KIND, "bf16"), image) == Repeat(0, 3, 6)
    looped, free = both(spec, system, image, KIND)
    (loop,) = looped.loops
    assert loop.count == 6
    assert {label.split(".")[0] for label in looped.labels[loop.first : loop.last + 1]} == {"L0", "L1", "L2"}
    assert same(unroll(looped), free)
    program = compile_program(spec, system, Options(max_context=300), [KIND])
    assert verify(program, system).clean
    assert simulate(program, system).clean
    assert rows_digest(program, program.timetables[0], system) == program.timetables[0].dataflow


def test_layers_that_lie_apart_are_no_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fill, "_PERIODS", ())
    system = on(2)
    image = compile_image(DEEP, system, Options(max_context=300))
    assert find_repeat(build_graph(DEEP, KIND, "bf16"), image) is None
    assert unproved_timetable(DEEP, system, image, KIND).loops == ()


@pytest.mark.parametrize("layers", [1, 2, LEAST_BODIES - 1, LEAST_BODIES])
def test_few_layers_are_written_out(layers: int) -> None:
    spec, system = replace(SPEC, layers=layers), on(2)
    image = compile_image(spec, system, Options(max_context=300))
    looped, free = both(spec, system, image, KIND)
    assert len(looped.loops) == (layers >= LEAST_BODIES)
    assert same(unroll(looped), free)


def test_an_option_leaves_loops_out() -> None:
    program = compile_program(DEEP, on(2), Options(max_context=300, loops=False), [KIND])
    assert program.timetables[0].loops == ()
    looped = compile_program(DEEP, on(2), Options(max_context=300), [KIND])
    assert len(looped.timetables[0].loops) == 1
    assert image_digest(looped.image) == image_digest(program.image)


def other_kinds(graph: Graph, layers: set[int]) -> Graph:
    """The graph with other nodes in some layers."""
    return replace(graph, nodes=tuple(
        replace(n, outputs=n.outputs + 1) if n.layer in layers and n.name.endswith("x_ffn") else n for n in graph.nodes
    ))  # fmt: skip


@pytest.mark.parametrize(
    ("different", "expected"),
    [
        (set(), Repeat(0, 1, 30)),
        ({0, 1}, Repeat(2, 1, 28)),
        ({29}, Repeat(0, 1, 29)),
        ({5, 11, 17, 23, 29}, Repeat(0, 6, 5)),
        ({1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29}, Repeat(0, 2, 15)),
        ({12}, Repeat(13, 1, 17)),
    ],
)
def test_the_longest_run_of_equal_bodies_is_found(different: set[int], expected: Repeat) -> None:
    """Every sixth layer of another kind gives five bodies, too few; every second gives fifteen."""
    system = on(8)
    image = compile_image(SMOLLM2, system, Options())
    graph = other_kinds(build_graph(SMOLLM2, KIND, "bf16"), different)
    found = find_repeat(graph, image)
    assert found == (expected if expected.bodies >= LEAST_BODIES else None)
