"""The critical path covers the step without gap or overlap, and waits carry the right reason."""

import pytest
from tests.unit.sim.programs import compiled
from tests.unit.sim.timetables import chain, row, scratch, timed, weight

from ticktrue.isa import Op
from ticktrue.program import columns as col
from ticktrue.sim import CAUSES, phase_of, simulate


@pytest.mark.parametrize(("chips", "tokens"), [(1, 1), (2, 4), (6, 1), (12, 4)])
def test_segments_cover_the_step(chips, tokens):
    made, system = compiled(chips=chips, tokens=tokens)
    timing = simulate(made, system)
    at = 0
    for segment in timing.path:
        assert segment.begin_cycle == at
        assert segment.cycles > 0
        assert segment.cause in CAUSES
        assert made.timetables[0].labels[segment.chain] == segment.label
        at += segment.cycles
    assert at == timing.duration_cycles
    assert sum(s.cycles for s in timing.causes) == sum(s.cycles for s in timing.phases) == at


def test_links_take_most_of_a_step_on_many_chips():
    """Seven exchanges of a layer pair less one are 350 ns each, so first-bit latency is the largest share."""
    made, system = compiled(chips=12)
    timing = simulate(made, system)
    assert max(timing.causes, key=lambda s: s.cycles).name == "first-bit latency"
    exchanges = sum(s.op == "SEND" and s.cause == "first-bit latency" for s in timing.path)
    link = system.link(0, 1)
    first_bit = link.latency_cycles - link.slot_cycles + system.chip.value("c2c_guard_cycles")
    share = next(s for s in timing.causes if s.name == "first-bit latency")
    assert share.cycles == exchanges * first_bit


@pytest.mark.parametrize(
    ("label", "phase"),
    [
        ("L3.attn_norm.r", "waiting: norm"), ("final_norm.scale", "waiting: norm"), ("L12.gu.tile[4]", "gu.tile"),
        ("L0.attn.score[0.1]", "attn.score"), ("L0.attn.partial.gather", "attn.partial"), ("logits.1.fold[3]", "logits.fold"),
        ("embed[0].keep", "embed.keep"), ("rope", "rope"), ("#7", "other"),
    ],
)  # fmt: skip
def test_phases_come_from_labels(label, phase):
    assert phase_of(label) == phase


def copy(label, start, source, target, *, read_port=0, write_port=0, n=1):
    """Reads from region `source`, writes to `target` (regions lie in groups of their own number); n vectors."""
    (s, base), (t, to) = source, target
    pace = {"n": n, "p": 1, "step": 1} if n > 1 else {}
    return chain(
        label, start, row(Op.LOAD, 0, region=s, group=s, base=base, port=read_port, **pace),
        row(Op.STORE, 5, s0=0, region=t, group=t, base=to, port=write_port, **pace),
    )  # fmt: skip


REGIONS = (weight("w", 64), scratch("a", 64, group=1), scratch("b", 64, group=2))


def waits(chains, **more):
    timing = timed(chains, REGIONS, **more)
    assert timing.clean
    return {s.name: s.cycles for s in timing.causes if s.name.startswith("waiting")}


def test_a_wait_for_a_port():
    """c has its data at 9, but the port that it reads by is taken by b for 20 cycles."""
    a = copy("a", 0, (0, 0), (1, 0))
    b = copy("b", 0, (1, 20), (2, 20), n=20, write_port=1)
    c = copy("c", 20, (1, 0), (2, 0))
    d = copy("d", 29, (2, 0), (1, 1))
    assert waits([a, b, c, d]) == {"waiting: port": 20 - 9}


def test_a_wait_for_memory_to_be_free_again():
    """c overwrites what b reads from 9 to 29: its data is there at 9, its store waits for 29."""
    a = copy("a", 0, (0, 0), (1, 0), n=1)
    b = copy("b", 9, (1, 0), (2, 0), n=20)
    c = copy("c", 24, (1, 0), (1, 5), read_port=1, write_port=1)
    d = copy("d", 33, (1, 5), (2, 40), write_port=1)
    assert waits([a, b, c, d]) == {"waiting: memory reuse": 24 - 9}


def test_a_wait_for_a_link():
    """b's vector is there at 9; the link is taken by a's twelve, 7 cycles each: 84 cycles from 5 on."""
    peers = {"peers": 1, "pattern": col.PATTERN_ALL}

    def gather(label, start, source, n):
        pace = {"n": n, "p": 7} if n > 1 else {}
        step = {"step": 1} if n > 1 else {}
        return chain(
            label, start, row(Op.LOAD, 0, region=source, group=source, port=source, **pace, **step),
            row(Op.SEND, 5, s0=0, **peers, **pace), row(Op.RECEIVE, 33, s0=1, **peers, **pace),
            row(Op.STORE, 33, s0=2, region=2, group=2, base=source * 20, rank_fn=col.RANK_FROM, rank_stride=12,
                **peers, **pace, **step),
        )  # fmt: skip

    first = copy("first", 0, (0, 40), (1, 0), read_port=1)
    assert waits([gather("a", 0, 0, 12), first, gather("b", 84, 1, 1)], chips=2) == {"waiting: link": 84 - 9}
