"""Which row follows which: overlap of nested progressions against brute force, memory and links exact on every chip."""

import numpy as np
import pytest
from tests.unit.sim.timetables import cache, chain, program, row, scratch, timed, weight

from ticktrue.hw import load_system
from ticktrue.isa import Op, RegFn
from ticktrue.program import columns as col
from ticktrue.program import expand
from ticktrue.sim.order import order_of
from ticktrue.sim.order_kernel import INTERLEAVE, PORT, READ_AFTER_WRITE, REUSE, collide


def held(s, n, p, m, q, w):
    return {s + j * q + i * p + k for j in range(m) for i in range(n) for k in range(w)}


def test_overlap_agrees_with_brute_force():
    """20,000 random pairs of nested progressions."""
    rng = np.random.default_rng(7)
    for _ in range(20_000):
        w = rng.integers(1, 4, 2)
        p = w + rng.integers(0, 5, 2)
        if rng.random() < 0.5:
            p[1] = p[0] = p.max()
        n, m = rng.integers(1, 6, 2), rng.integers(1, 4, 2)
        q = (n - 1) * p + w + rng.integers(0, 12, 2)
        s = int(rng.integers(-40, 40))
        rows = [held(0 if k == 0 else s, n[k], p[k], m[k], q[k], w[k]) for k in range(2)]
        assert collide(0, s, 0, 1, n, p, m, q, w) == bool(rows[0] & rows[1])


def pairs_of(chains, regions, **more):
    made = program(chains, regions, **more)
    order = order_of(expand(made.image, made.timetables[0], load_system("tiny-4")))
    out = set()
    for pairs in (order.between, order.inside, order.interleaved):
        out |= set(zip(pairs.first.tolist(), pairs.then.tolist(), pairs.kind.tolist(), strict=True))
    return out


def read(label, start, port=0, group=0, **fields):
    return chain(label, start, row(Op.LOAD, 0, group=group, port=port, **fields))


def write(label, start, port=0, **fields):
    """A store of whatever a wide load brings; chain rows 2k and 2k + 1."""
    return chain(
        label,
        start,
        row(Op.LOAD, 0, region=1, group=1, port=port),
        row(Op.STORE, 5, s0=0, port=port, **fields),
    )


S = (scratch("s", 64), weight("w", 64, group=1))


def test_a_read_follows_the_last_write_and_a_write_follows_all():
    chains = [
        write("w1", 0, region=0, base=3), read("r1", 20, region=0, base=2, n=4, p=1, step=1),
        read("r2", 40, region=0, base=3), write("w2", 60, region=0, base=3), read("r3", 90, region=0, base=3),
    ]  # fmt: skip
    found = {p for p in pairs_of(chains, S) if p[2] in {READ_AFTER_WRITE, REUSE}}
    w1, r1, r2, w2, r3 = 1, 2, 3, 5, 6
    assert found == {(w1, r1, READ_AFTER_WRITE), (w1, r2, READ_AFTER_WRITE), (w1, w2, REUSE), (r1, w2, REUSE),
                     (r2, w2, REUSE), (w2, r3, READ_AFTER_WRITE)}  # fmt: skip


def test_only_vectors_that_both_touch_count():
    chains = [write("w", 0, region=0, base=8, width=2), read("r", 20, region=0, base=1, n=5, p=1, step=3)]
    assert not {p for p in pairs_of(chains, S) if p[2] == READ_AFTER_WRITE}  # 1 4 7 10 13 against 8 9


def test_regions_that_share_an_address_are_one_memory():
    regions = (scratch("a", 8, base=16), weight("w", 64, group=1), scratch("b", 8, base=20))
    chains = [write("w", 0, region=0, base=5), read("r", 20, region=2, base=1)]
    assert (1, 2, READ_AFTER_WRITE) in pairs_of(chains, regions)


def test_a_rank_dependent_address_is_taken_on_every_chip():
    """Written at 2 * own rank, read at 6: only the last of four chips reads what it wrote, and that ties the class."""
    mine = {"rank_fn": col.RANK_OWN, "rank_stride": 2}
    chains = [write("w", 0, region=0, **mine), read("r", 20, region=0, base=6)]
    assert (1, 2, READ_AFTER_WRITE) in pairs_of(chains, S, chips=4)
    assert (1, 2, READ_AFTER_WRITE) not in pairs_of(chains, S, chips=3)


def test_a_scatter_touches_its_whole_region():
    regions = (cache("kv", 32), weight("w", 64, group=1))
    chains = [
        write("append", 0, region=0, reg_fn=RegFn.KV, reg_stride=1, pattern=col.PATTERN_CONTEXT),
        read("r", 20, region=0, base=31),
    ]
    assert (1, 2, READ_AFTER_WRITE) in pairs_of(chains, regions)


def test_rows_on_a_port_follow_their_neighbour_only():
    chains = [read(str(k), 10 * k, region=1, group=1) for k in range(4)]
    assert {p for p in pairs_of(chains, S) if p[2] == PORT} == {(0, 1, PORT), (1, 2, PORT), (2, 3, PORT)}


def test_interleaved_rows_both_bind_what_comes_after():
    pace = {"region": 1, "group": 1, "n": 4, "p": 2, "step": 1}
    chains = [read("a", 0, **pace), read("b", 1, **pace), read("c", 8, region=1, group=1)]
    assert {p for p in pairs_of(chains, S) if p[2] in {PORT, INTERLEAVE}} == {
        (0, 1, INTERLEAVE),
        (0, 2, PORT),
        (1, 2, PORT),
    }


def sender(label, start, pattern, base):
    peers = {"peers": 1, "pattern": pattern}
    rows = (row(Op.LOAD, 0, region=0, base=base), row(Op.SEND, 5, s0=0, **peers), row(Op.RECEIVE, 33, s0=1, **peers),
            row(Op.STORE, 33, s0=2, region=1, group=1, base=base, rank_fn=col.RANK_FROM, rank_stride=8, **peers))  # fmt: skip
    return chain(label, start, *rows)


@pytest.mark.parametrize(
    ("pattern", "start"), [(col.PATTERN_CONTEXT, 8), (col.PATTERN_HEADS, 7), (col.PATTERN_ALL, 7)]
)
def test_two_names_of_one_link_share_it(pattern, start):
    """Four chips, 2 head groups of 2 context lanes: the context peer is one chip on, or three, so it shares a link with the first
    peer of all on some chips and with the third on others; the peer of the other head group is two on, the second of all.

    A slot is 7, and the copy to the third peer leaves a cycle later: (3 - 1) // 2 write ports. So a context copy is due at 7 on
    even chips and at 8 on odd ones, and starts at 8 on all. A second gather to all meets each copy at its own distance of 7.
    """
    regions = (weight("w", 8), scratch("in", 64, group=1))
    chains = [sender("all", 0, col.PATTERN_ALL, 0), sender("few", 100, pattern, 1)]
    timing = timed(chains, regions, chips=4, cp=2)
    assert timing.chains.earliest.tolist() == [0, start]
