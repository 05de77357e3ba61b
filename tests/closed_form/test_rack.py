"""A gather of two hops by hand, on the tiny rack: trays of 4 chips, links of 20 cycles (slot 7) inside them; to the chip of equal
index in another tray 30 cycles (slot 14) in the same half of the rack, 90 to the other half.
"""

from dataclasses import replace

import pytest
from tests.models import SPEC
from tests.unit.sim.timetables import chain, program, row, scratch, timed

from ticktrue.compile import Options, compile_image
from ticktrue.compile.pipeline import unproved_timetable
from ticktrue.hw import load_system
from ticktrue.isa import Op
from ticktrue.program import StepKind, expand
from ticktrue.program import columns as col
from ticktrue.verify.links import check_links
from ticktrue.verify.scope import Scope
from ticktrue.verify.verdict import Findings

RACK = load_system("tiny-rack")
STRIDE = 16
REGIONS = (scratch("own", 64), scratch("inbox", 64, group=1, stride=STRIDE))


def steps(events, pace, trays=1):
    """Fields of rows with `events` vectors of each of `trays` sources, all `pace` cycles apart."""
    out = {"n": events, "p": pace} if events > 1 else {}
    if trays > 1:
        out |= {"m": trays, "q": events * pace} if events > 1 else {"n": trays, "p": pace}
    return out


def walk(events, trays=1):
    """Address steps of the same rows in the inbox: vectors of a source, then sources of equal index, a tray apart."""
    apart = 4 * STRIDE
    if trays == 1:
        return {"step": 1} if events > 1 else {}
    return {"step": 1, "step2": apart} if events > 1 else {"step": apart}


def two_hops(events, trays, link, start):
    """Keep, rail and relay chains of an all-gather of `events` vectors; the relay starts at `start`."""
    rail = {"peers": 1, "pattern": col.RAIL + col.PATTERN_ALL}
    tray = {"peers": 1, "pattern": col.TRAY + col.PATTERN_ALL}
    slow, fast = steps(events, 14), steps(events, 7, trays)
    place = {"region": 1, "group": 1, "rank_stride": STRIDE}
    keep = [
        row(Op.LOAD, 0, region=0, port=1, **steps(events, 1), **walk(events)),
        row(Op.STORE, 5, s0=0, port=1, rank_fn=col.RANK_OWN, **place, **steps(events, 1), **walk(events)),
    ]
    first = [
        row(Op.LOAD, 0, region=0, **slow, **walk(events)),
        row(Op.SEND, 5, s0=0, **rail, **slow),
        row(Op.RECEIVE, 5 + link + 8, s0=1, **rail, **slow),
        row(Op.STORE, 5 + link + 8, s0=2, rank_fn=col.RANK_FROM, **place, **rail, **slow, **walk(events)),
    ]
    then = [
        row(
            Op.LOAD,
            0,
            rank_fn=col.RANK_OWN,
            **(place | {"pattern": tray["pattern"]}),
            **fast,
            **walk(events, trays),
        ),
        row(Op.SEND, 5, s0=0, **tray, **fast),
        row(Op.RECEIVE, 33, s0=1, **tray, **fast),
        row(Op.STORE, 33, s0=2, rank_fn=col.RANK_FROM, **place, **tray, **fast, **walk(events, trays)),
    ]
    return [chain("keep", 0, *keep), chain("rail", 0, *first), chain("relay", start, *then)]


@pytest.mark.parametrize(("trays", "link"), [(2, 30), (4, 30), (16, 90)])
@pytest.mark.parametrize("events", [1, 3])
def test_a_gather_of_two_hops(events, trays, link):
    """Along rails: read 5, link L to the slowest of the trays, guard 8, n - 1 further slots of 14, the last peer's
    copy (trays - 2) div 2 later (two write ports), store 1, write 3: the relay reads at
    17 + L + 14 (n - 1) + (trays - 2) div 2. Inside the tray it passes on the n vectors of each of the trays' sources:
    a gather of n * trays vectors, 41 + 7 (n * trays - 1)."""
    system = RACK.subset(4 * trays)
    ready = 17 + link + 14 * (events - 1) + (trays - 2) // 2
    chains = two_hops(events, trays, link, ready)
    timing = timed(chains, REGIONS, chips=4 * trays, tray=4, system=system)
    assert timing.mismatches == ()
    assert timing.recomputed_cycles == ready + 41 + 7 * (events * trays - 1)
    made = program(chains, REGIONS, chips=4 * trays, tray=4, system=system)
    findings = Findings()
    flat = expand(made.image, made.timetables[0], system)
    check_links(Scope(made.image, made.timetables[0], system, flat, findings))
    assert findings.kept == ()


def test_the_compiled_gather_is_that_one():
    """The greedy choice gathers one vector a chip: on 4 trays its relay starts 17 + 30 + 1 cycles after its rail chain."""
    system = RACK.subset(16).with_fact("sram_bytes", 64_000_000)
    image = compile_image(replace(SPEC, layers=1), system, Options(max_context=64))
    made = unproved_timetable(replace(SPEC, layers=1), system, image, StepKind(1, 1, 1, "last", "chip"))
    start = dict(zip(made.labels, made.chains[:, 1].tolist(), strict=True))
    assert start["greedy.relay"] - start["greedy.gather"] == 48
    # the pick reads 4 x 4 candidates when the last of the tray's is written: read 5 to write 3, three further slots, a late copy
    assert start["greedy.pick"] - start["greedy.relay"] == 5 + 20 + 8 + 21 + 1 + 1 + 3


def test_a_faster_link_of_a_tier_fills_the_queue_longer():
    """Across the halves every rail waits for 90 cycles. On a link of 30, D = 60 + 4 + 8 + 16 = 88:
    ceil(88 / 14) + 1 = 8 vectors."""
    for depth, expected in ((7, {"V115"}), (8, set())):
        system = RACK.with_fact("c2c_fifo_vectors", depth)
        rail = {"peers": 1, "pattern": col.RAIL + col.PATTERN_ALL, "n": 20, "p": 14}
        rows = [
            row(Op.LOAD, 0, region=0, n=20, p=14, step=1),
            row(Op.SEND, 5, s0=0, **rail),
            row(Op.RECEIVE, 103, s0=1, **rail),
            row(
                Op.STORE, 103, s0=2, region=1, group=1, rank_fn=col.RANK_FROM, rank_stride=20, step=1, **rail
            ),
        ]
        made = program([chain("rail", 0, *rows)], (scratch("own", 64), scratch("inbox", 64, group=1, stride=20)),
                       chips=64, tray=4, system=system)  # fmt: skip
        findings = Findings()
        flat = expand(made.image, made.timetables[0], system)
        check_links(Scope(made.image, made.timetables[0], system, flat, findings))
        assert {v.code for v in findings.kept} == expected
