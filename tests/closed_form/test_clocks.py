"""Clocks and receive FIFOs by hand: alignments of a step around an epoch, the skew bound of a message, the depth of a queue.

Facts of the tiny chip, in cycles: epoch 30,000, hold 16, guard 8, skew 2 after an alignment, drift 100 ppm, jitter 4; a link of
20 with a slot of 7 in it.
"""

import pytest
from tests.unit.sim.timetables import chain, program, row, scratch, timed

from ticktrue.hw import load_system
from ticktrue.isa import Op
from ticktrue.program import columns as col
from ticktrue.program import expand
from ticktrue.verify.clocks import check_clocks
from ticktrue.verify.links import check_links
from ticktrue.verify.scope import Scope
from ticktrue.verify.verdict import Findings

TINY = load_system("tiny-4")
REGIONS = (scratch("own", 64), scratch("inbox", 4, group=1, stride=64))
RECEIVED = 33  # cycles from the start of a gather to its RECEIVE: read 5, link 20, guard 8
LENGTH = 41  # of a gather of one vector (test_hand.py)


def gather(label, start, events=1, pace=7, late=0):
    """A gather of `events` vectors, `pace` cycles apart."""
    steps = {"n": events, "p": pace} if events > 1 else {}
    walk = {"step": 1} if events > 1 else {}
    peers = {"peers": 1, "pattern": col.PATTERN_ALL}
    rows = [
        row(Op.LOAD, 0, region=0, **walk, **steps),
        row(Op.SEND, 5, s0=0, **peers, **steps),
        row(Op.RECEIVE, RECEIVED, s0=1, **peers, **steps),
        row(Op.STORE, RECEIVED, s0=2, region=1, group=1, rank_fn=col.RANK_FROM, rank_stride=64, **peers, **walk, **steps),
    ]  # fmt: skip
    return chain(label, start, *rows, late=late)


def codes(made, check, system=TINY):
    """Codes that one check finds in a program of one timetable."""
    (timetable,) = made.timetables
    findings = Findings()
    check(Scope(made.image, timetable, system, expand(made.image, timetable, system), findings))
    return tuple(v.code for v in findings.kept)


def two_gathers(duration, deskew, system=TINY):
    """A step of `duration` cycles: a gather at its entry, another at its end."""
    chains = [gather("a", 0), gather("b", duration - LENGTH, late=1)]
    return program(chains, REGIONS, chips=4, deskew=deskew, system=system)


@pytest.mark.parametrize(
    ("duration", "deskew", "holds"),
    [(29_999, 0, 1), (30_000, 30_000, 2), (30_001, 30_000, 2), (60_001, 30_000, 3)],
)
def test_a_step_around_an_epoch(duration, deskew, holds):
    """L + (floor(L / epoch) + 1) * 16: a step one cycle shorter than an epoch aligns at its entry only, one of an epoch or a
    cycle more twice. Rows keep their cycles: g does not count the hold."""
    chains = [gather("a", 0), gather("b", duration - LENGTH, late=1)]
    timing = timed(chains, REGIONS, chips=4, deskew=deskew)
    assert timing.mismatches == ()
    assert timing.duration_cycles == duration
    assert timing.elapsed_cycles == duration + holds * 16
    assert codes(two_gathers(duration, deskew), check_clocks) == ()


@pytest.mark.parametrize(
    ("duration", "stated", "expected"), [(30_001, 0, 30_000), (29_999, 20_000, 0), (40_000, 20_000, 30_000)]
)
def test_alignments_are_as_rare_as_the_machine_allows(duration, stated, expected):
    """An alignment that is missing, or that is made though none is due, is a stated cycle that differs."""
    chains = [gather("a", 0), gather("b", duration - LENGTH, late=1)]
    (found,) = timed(chains, REGIONS, chips=4, deskew=stated).mismatches
    assert (found.code, found.stated, found.earliest) == ("V130", stated, expected)


def test_an_alignment_later_than_an_epoch():
    """V114: no alignment in a step of 30,001 cycles; one every 30,001 cycles; none needed in 30,000. Clocks do not drift here."""
    still = TINY.with_fact("drift_ppm", 0)
    assert codes(two_gathers(30_001, 0, still), check_clocks, still) == ("V114",)
    assert codes(two_gathers(40_000, 30_001, still), check_clocks, still) == ("V114",)
    assert codes(two_gathers(30_000, 0, still), check_clocks, still) == ()
    # an alignment of 16 cycles cannot be made every 16
    assert codes(two_gathers(40_000, 16, still), check_clocks, still) == ("V114",)
    assert codes(two_gathers(40_000, 17, still), check_clocks, still) == ()


def test_a_message_further_from_an_alignment_than_the_guard_covers():
    """V113: 2 + 2 * 100e-6 * g <= 8 holds up to g = 30,000, counted from the alignment before, for every SEND and RECEIVE. The
    last RECEIVE of a step is copy 3, one cycle after the others, LENGTH - 34 cycles before the end."""
    long = TINY.with_fact("epoch_cycles", 90_000)
    last = LENGTH - RECEIVED - 1
    assert codes(two_gathers(30_000 + last, 0, long), check_clocks, long) == ()
    assert codes(two_gathers(30_001 + last, 0, long), check_clocks, long) == ("V113",)  # copy 3 alone
    assert codes(two_gathers(30_002 + last, 0, long), check_clocks, long) == ("V113",) * 3
    # aligned at 40,000: 29,999 cycles later is fine; at 40,001 it would be 39,999 after the first
    assert codes(two_gathers(69_999 + last, 40_000, long), check_clocks, long) == ()
    assert codes(two_gathers(70_001 + last, 40_000, long), check_clocks, long) == ("V113",)
    # an alignment that the step never reaches is none
    assert codes(two_gathers(40_000, 40_001, long), check_clocks, long) == ("V100",)


def need(events, pace, *, system=TINY):
    """The least FIFO with which a gather of `events` vectors `pace` cycles apart is legal."""
    for depth in range(1, 40):
        shallow = system.with_fact("c2c_fifo_vectors", depth)
        made = program([gather("g", 0, events, pace)], REGIONS, chips=4, system=shallow)
        found = codes(made, check_links, shallow)
        if not found:
            return depth
        assert set(found) == {"V115"}
    raise AssertionError


@pytest.mark.parametrize(
    ("events", "pace", "depth"),
    [(20, 7, 5), (20, 13, 4), (20, 14, 3), (20, 27, 3), (20, 28, 2), (20, 40, 2), (3, 7, 3), (1, 7, 1)],
)
def test_the_depth_of_a_receive_queue(events, pace, depth):
    """D = jitter 4 + guard 8 + hold 16 = 28 cycles: ceil(28 / p) + 1 vectors wait, and no more than are sent: at a vector per
    slot of 7 five, two slots apart three, a cycle less than two slots apart four."""
    assert need(events, pace) == depth


def test_a_hold_counts_in_the_depth():
    """Without holds D = 12: ceil(12 / 7) + 1 = 3."""
    assert need(20, 7, system=TINY.with_fact("deskew_hold_cycles", 0)) == 3


def test_messages_of_two_chains_wait_in_one_queue():
    """Five gathers of one vector, a slot apart on the same links: five vectors wait, as if one SEND had sent them."""
    chains = [gather(f"g{i}", 7 * i) for i in range(9)]
    for depth, expected in ((4, {"V115"}), (5, set())):
        shallow = TINY.with_fact("c2c_fifo_vectors", depth)
        made = program(chains, REGIONS, chips=4, system=shallow)
        assert set(codes(made, check_links, shallow)) == expected


def test_a_receive_port_takes_one_message_at_a_time() -> None:
    """A message of two vectors is taken when both are there, a slot after its first came, and takes two slots; one of a single
    vector right behind it on the link is due a slot later, while the port is busy. A slot more between them is enough."""
    for gap, expected in ((14, ("V107",) * 3), (21, ())):
        wide = {"peers": 1, "pattern": col.PATTERN_ALL, "width": 2}
        narrow = {"peers": 1, "pattern": col.PATTERN_ALL}
        store = {"region": 1, "group": 1, "rank_fn": col.RANK_FROM, "rank_stride": 64}
        first = [
            row(Op.LOAD, 0, region=0, width=2),
            row(Op.SEND, 5, s0=0, **wide),
            row(Op.RECEIVE, RECEIVED + 7, s0=1, **wide),
            row(Op.STORE, RECEIVED + 7, s0=2, **store, **wide),
        ]
        then = [
            row(Op.LOAD, 0, region=0, base=4),
            row(Op.SEND, 5, s0=0, **narrow),
            row(Op.RECEIVE, RECEIVED, s0=1, **narrow),
            row(Op.STORE, RECEIVED, s0=2, base=4, **store, **narrow),
        ]
        made = program([chain("wide", 0, *first), chain("narrow", gap, *then)], REGIONS, chips=4)
        assert codes(made, check_links) == expected
