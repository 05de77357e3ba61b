"""A loop is closed only where the bodies around the gap are alike in cycles, ports, regions and reasons."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from tests.models import SPEC

from ticktrue.compile import Options, compile_image
from ticktrue.compile.build import build_layers
from ticktrue.graph.build import build_graph
from ticktrue.hw import System, load_system
from ticktrue.partition import partition
from ticktrue.program import Image, StepKind, Timetable
from ticktrue.program import columns as col
from ticktrue.program.loops import first_row
from ticktrue.schedule import schedule
from ticktrue.schedule.loops import Bodies, close_loop

LAYERS = 10
BUILT = (0, 1, 2, 7, 8, 9)


@dataclass(frozen=True)
class Short:
    """A scheduled timetable of six of ten layers."""

    image: Image
    timetable: Timetable
    bodies: Bodies
    system: System


@pytest.fixture(scope="module")
def short() -> Short:
    spec, system = replace(SPEC, layers=LAYERS), load_system("groq3-lpx-tray").subset(2)
    image = compile_image(spec, system, Options(max_context=300))
    sharded = partition(build_graph(spec, StepKind(1, 1, 3, "last", "chip"), "bf16"), image.key.plan)
    built, spans = build_layers(sharded, image, system, BUILT)
    bodies = Bodies(tuple(spans[layer] for layer in BUILT), BUILT, 3)
    return Short(image, schedule(image, built, system), bodies, system)


def closed(short: Short, timetable: Timetable) -> Timetable | None:
    return close_loop(short.image, timetable, short.system, short.bodies)


def chain(short: Short, body: int, column: int, by: int) -> Timetable:
    chains = short.timetable.chains.copy()
    chains[short.bodies.chains[body][0] + 3, column] += by
    return replace(short.timetable, chains=chains)


def whole_body(short: Short, body: int, by: int) -> Timetable:
    chains = short.timetable.chains.copy()
    first, last = short.bodies.chains[body]
    chains[first : last + 1, 1] += by
    return replace(short.timetable, chains=chains)


def row(short: Short, body: int, column: int, by: int) -> Timetable:
    rows = short.timetable.rows.copy()
    at = int(first_row(short.timetable)[short.bodies.chains[body][0]])
    rows[at, column] += by
    return replace(short.timetable, rows=rows)


def test_all_bodies_alike_are_one_loop(short: Short) -> None:
    t = closed(short, short.timetable)
    assert t is not None
    (loop,) = t.loops
    first, last = short.bodies.chains[0]
    assert (loop.first, loop.last, loop.count) == (first, last, LAYERS)
    assert t.duration == short.timetable.duration + 4 * loop.period
    assert all(step == 1 for _, step in loop.strides)
    assert len(t.chains) == len(short.timetable.chains) - 5 * (last - first + 1)


CHANGES: list[tuple[str, Callable[[Short, int], Timetable]]] = [
    ("a start", lambda s, body: chain(s, body, 1, 1)),
    ("a template", lambda s, body: chain(s, body, 0, 1)),
    ("a reason", lambda s, body: chain(s, body, 2, 1)),
    ("all starts", lambda s, body: whole_body(s, body, 3)),
    ("a port", lambda s, body: row(s, body, col.V_PORT, 1)),
    ("a base", lambda s, body: row(s, body, col.V_BASE, 4)),
    ("an attribute", lambda s, body: row(s, body, col.V_A0, 1)),
    ("a region", lambda s, body: row(s, body, col.V_REGION, 1)),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda c: c[0])
def test_unlike_bodies_stay_outside_and_at_the_gap_there_is_no_loop(
    short: Short, change: tuple[str, Callable[[Short, int], Timetable]]
) -> None:
    """Bodies 2 and 3 stand at the gap. The first and the last may differ: then they are written out."""
    plant = change[1]
    for body in (2, 3):
        assert closed(short, plant(short, body)) is None
    for body, first, count in ((0, 1, 9), (5, 0, 9)):
        t = closed(short, plant(short, body))
        assert t is not None
        (loop,) = t.loops
        assert (loop.first, loop.count) == (short.bodies.chains[first][0], count)
        if first:  # strides begin at the regions of the second layer
            names = {short.image.regions[r].name for r, _ in loop.strides}
            assert "L1.qkv" in names
            assert "L0.qkv" not in names


def test_what_runs_beside_the_bodies_left_out_prevents_a_loop(short: Short) -> None:
    """A chain of the end that starts beside an earlier body, or one of the beginning that lasts into a later one."""
    t = short.timetable
    for at, start in ((len(t.chains) - 1, int(t.chains[short.bodies.chains[3][0], 1])),
                      (0, int(t.chains[short.bodies.chains[5][1], 1]) + 10**6)):  # fmt: skip
        chains = t.chains.copy()
        chains[at, 1] = start
        assert closed(short, replace(t, chains=chains)) is None


def test_a_body_of_more_than_two_periods_is_no_loop(short: Short) -> None:
    chains = short.timetable.chains.copy()
    period = int(chains[short.bodies.chains[1][0], 1] - chains[short.bodies.chains[0][0], 1])
    for first, last in short.bodies.chains:
        chains[last, 1] += 2 * period
        assert first < last
    chains[short.bodies.chains[-1][1] + 1 :, 1] += 3 * period
    assert closed(short, replace(short.timetable, chains=chains)) is None
