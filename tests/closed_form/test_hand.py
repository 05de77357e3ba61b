"""Cycle counts derived by hand from the Facts of the tiny chip equal the replay exactly, on hand-written timetables.

Facts used (hw/catalog/chip/tiny.toml, system/tiny-4.toml), in cycles: read 5, write 3, install 7, pass 11, map 2, func 6,
fold 3, combine 13, move 4, transpose 9, spread 5, lane tree 12, link latency 20 with a slot of 7 in it, guard 8. A wide port
moves 8 vectors per cycle, a narrow one 4; the weight-load port takes 2,560 bytes = 8 vectors per cycle.
A timetable's stated starts are given wrong on purpose where the order alone must be enough.
"""

import pytest
from tests.unit.sim.timetables import BF16, F32, cache, chain, row, scratch, timed, weight

from ticktrue.hw import load_system
from ticktrue.isa import Op, RegFn
from ticktrue.program import StepKind
from ticktrue.program import columns as col
from ticktrue.sim import deskew_cycles

TILE = 320  # vectors of a full 16-bit tile: 160 rows of 2 vectors
WEIGHTS = weight("w", 2 * TILE)
X = scratch("x", 64, group=1)
PARTIAL = scratch("partial", 512, group=2)


def tile_rows(pieces=1, *, base=0, plane=0, port=0):
    """LOAD and INSTALL a full tile, then per piece LOAD x, PASS, MOVE, STORE; passes one cycle apart on one plane."""
    rows = [
        row(Op.LOAD, 0, wide=1, width=TILE, region=0, base=base),
        row(Op.INSTALL, 5, width=TILE, s0=0, x0=2, port=plane),
    ]
    for k in range(pieces):
        x = len(rows)
        rows += [
            row(Op.LOAD, 47 + k, region=1, base=k, group=1, port=port),
            row(Op.PASS, 52 + k, s0=x, s1=1),
            row(Op.MOVE, 63 + k, s0=x + 1, port=port),
            row(Op.STORE, 67 + k, s0=x + 2, region=2, base=4 * k, width=4, dtype=F32, group=2, port=port),
        ]
    return rows


REGIONS = (WEIGHTS, X, PARTIAL)


def test_a_tile():
    """One tile: read 5; 320 vectors through the weight-load port at 8 per cycle 40; install 7; pass 11; move 4; the store's own
    cycle 1; write 3. 5 + 40 + 7 + 11 + 4 + 1 + 3 = 71."""
    timing = timed([chain("tile", 0, *tile_rows())], REGIONS)
    assert timing.clean
    assert timing.recomputed_cycles == 71
    assert {s.name: s.cycles for s in timing.causes} == {
        "SRAM": 5 + 1 + 3,
        "weight load": 40 + 7,
        "MXM": 11,
        "SXM": 4,
    }


def test_a_packed_install_of_two_pieces():
    """Two pieces side by side in one tile cost one install and two passes: 71 as above, and one cycle for the second pass.
    Apart, each would install 40 cycles on its own."""
    timing = timed([chain("tile", 0, *tile_rows(2))], REGIONS)
    assert timing.clean
    assert timing.recomputed_cycles == 72
    load = next(u for u in timing.use if u.unit == "MXM weight load")
    assert load.busy_cycles == 40


def test_two_tiles_share_the_weight_load_port():
    """The second install follows the first on the one weight-load port: 40 + 71 = 111, though it has a plane of its own. Stated
    at 999, recomputed from the order alone."""
    late = chain("second", 999, *tile_rows(base=TILE, plane=1, port=1))
    timing = timed([chain("first", 0, *tile_rows()), late], REGIONS)
    assert timing.chains.earliest.tolist() == [0, 40]
    assert timing.recomputed_cycles == 111
    assert [m.code for m in timing.mismatches] == ["V130", "V130"]  # the chain and the duration


def test_a_plane_is_held_until_its_last_pass():
    """On the same plane the second install waits for the pass of the first: it may issue at 52 + 1 = 53, its own offset being
    5, so the chain starts at 48 and ends at 48 + 71 = 119."""
    second = chain("second", 48, *tile_rows(base=TILE, plane=0, port=1))
    timing = timed([chain("first", 0, *tile_rows()), second], REGIONS)
    assert timing.clean
    assert timing.recomputed_cycles == 119
    assert timing.chains.earliest.tolist() == [0, 48]


def gather_rows(events, start=0, *, base=0):
    """LOAD, SEND to all peers, RECEIVE from all, STORE by rank, `events` vectors one slot apart."""
    pace = {"n": events, "p": 7} if events > 1 else {}
    peers = {"peers": 1, "pattern": col.PATTERN_ALL}
    return [
        row(Op.LOAD, start, region=0, step=1 if events > 1 else 0, base=base, **pace),
        row(Op.SEND, start + 5, s0=0, **peers, **pace),
        row(Op.RECEIVE, start + 33, s0=1, **peers, **pace),
        row(Op.STORE, start + 33, s0=2, region=1, group=1, base=base, step=1 if events > 1 else 0,
            rank_fn=col.RANK_FROM, rank_stride=16, **peers, **pace),
    ]  # fmt: skip


GATHER = (scratch("own", 16), scratch("inbox", 4, group=1, stride=16))


@pytest.mark.parametrize("events", [1, 2, 5])
def test_a_gather_in_a_tray(events):
    """All-gather of n vectors per chip in a full mesh of 4: read 5; link 20 with one slot in it; guard 8; n - 1 further slots
    of 7; the third peer's copy is 1 later, two write ports being taken by the others; the receiver's port is held for the
    last slot of 7, longer than the store's 1 and the write's 3: 41 + 7 (n - 1)."""
    timing = timed([chain("gather", 0, *gather_rows(events))], GATHER, chips=4)
    assert timing.clean
    assert timing.recomputed_cycles == 41 + 7 * (events - 1)
    shares = {s.name: s.cycles for s in timing.causes}
    assert shares == {
        "SRAM": 5,
        "first-bit latency": 20 - 7 + 8,
        "serialization": 7 + 7 * (events - 1) + 7 + 1,
    }


def test_two_gathers_follow_each_other_on_the_links():
    """The second all-gather starts when the first one's three vectors have left: 3 slots of 7 = 21; two vectors take 48."""
    second = gather_rows(2, base=8)
    timing = timed([chain("a", 0, *gather_rows(3)), chain("b", 21, *second)], GATHER, chips=4)
    assert timing.clean
    assert timing.recomputed_cycles == 21 + 48


def norm_chains(beats):
    """Two chains: r of `beats` beats of x, then x * r * g, rounded."""
    e = {"n": beats, "p": 1, "step": 4, "width": 4, "dtype": F32}
    n = {"n": beats, "p": 1}
    end = beats - 1
    first = [
        row(Op.LOAD, 0, region=0, **e),
        row(Op.MUL, 5, s0=0, s1=0, **n),
        row(Op.LANE_SUM, 7, s0=1, **n),
        row(Op.MEAN_RSQRT, 19 + end, s0=2, port=1),
        row(Op.STORE, 25 + end, s0=3, region=1, group=1, dtype=F32),
    ]
    second = [
        row(Op.LOAD, 5, region=0, port=1, **e),
        row(Op.LOAD, 0, region=1, group=1, dtype=F32, **n),
        row(Op.BROADCAST, 5, s0=1, **n),
        row(Op.MUL, 10, s0=0, s1=2, **n),
        row(Op.LOAD, 7, region=2, group=2, **e),
        row(Op.MUL, 12, s0=3, s1=4, port=1, **n),
        row(Op.CONVERT, 14, s0=5, port=2, **n),
        row(Op.STORE, 16, s0=6, region=3, group=3, width=2, step=2, **n),
    ]
    return first, second


@pytest.mark.parametrize("beats", [2, 9])
def test_a_norm_barrier(beats):
    """A norm of b beats cannot start to scale before the sum is known. r: read 5, b - 1 further beats, square 2, lane tree 12,
    rsqrt 6, store 1, write 3 = 28 + b. Then scale: read r 5, broadcast 5, two products 2 + 2, convert 2, b - 1 further beats,
    store 1, write 3 = 19 + b. Together 47 + 2 b, all of it `waiting: norm`."""
    first, second = norm_chains(beats)
    regions = (
        scratch("x", 64),
        scratch("r", 1, group=1),
        weight("g", 64, group=2),
        scratch("h", 64, group=3),
    )
    timing = timed([chain("L0.norm.r", 0, *first), chain("L0.norm.scale", 28 + beats, *second)], regions)
    assert timing.clean
    assert timing.recomputed_cycles == 47 + 2 * beats
    assert [(p.name, p.cycles) for p in timing.phases] == [("waiting: norm", 47 + 2 * beats)]


def test_a_predicated_append():
    """KV append of one token: read 5, the scatter's cycle 1, write 3 = 9, whether this chip keeps it or not; the score's K
    stream, which may read any position, follows at 9 and its 64 events end at 9 + 5 + ... of their own."""
    append = [
        row(Op.LOAD, 0, region=0),
        row(
            Op.SCATTER, 5, s0=0, region=1, group=1, reg_fn=RegFn.KV, reg_stride=1, pattern=col.PATTERN_CONTEXT
        ),
    ]
    stream = [
        row(Op.LOAD, 0, region=1, group=1, n=64, p=1, step=1),
        row(Op.STORE, 5, s0=0, region=2, group=2, n=64, p=1, step=1),
    ]
    regions = (scratch("kr", 1), cache("kv.0", 128, group=1), scratch("out", 64, group=2))
    timing = timed([chain("append", 0, *append), chain("score", 500, *stream)], regions)
    assert timing.chains.earliest.tolist() == [0, 9]
    assert timing.recomputed_cycles == 9 + 5 + 63 + 1 + 3


D, HEADS = 64, 3  # head size, query rows of one KV head


def attention_chains(blocks):
    """Score, softmax numerators and values of one KV head of 64, three query rows, `blocks` blocks of 64 positions.

    A value tile is 64 vectors: hold 64 * 320 / 2560 = 8, install 7, three passes: a block every 8 + 7 + 3 = 18 cycles.
    """
    k = {"n": 64, "p": 1} | ({"m": blocks, "q": 64} if blocks > 1 else {})
    rows3 = {"n": HEADS, "p": 1}
    v = {"n": HEADS, "p": 1} | ({"m": blocks, "q": 18} if blocks > 1 else {})
    one = {"m": blocks, "q": 18} if blocks > 1 else {}
    out = {"n": blocks, "p": 64} if blocks > 1 else {}
    score = [
        row(Op.LOAD, 0, region=0, step=1, **rows3),
        row(Op.TRANSPOSE, 5, s0=0, x0=D, dtype=BF16, **rows3),
        row(Op.INSTALL, 16, s0=1, n=D, p=1),  # 5 + 2 further rows + 9
        row(Op.LOAD, 82, region=1, group=1, step=1, step2=64, **k),  # 16 + 64 + 7 = 87, less the read
        row(Op.PASS, 87, s0=3, s1=2, **k),
        row(Op.SCALE, 98, s0=4, **k),
        row(Op.MASK, 100, s0=5, port=1, **k),
        row(Op.MAX, 102, s0=6, port=2, **k),
        row(Op.STORE, 168, s0=7, region=3, group=3, step=1, dtype=F32, **out),  # 102 + 63 + 3
        row(Op.STORE, 102, s0=6, region=2, group=2, step=1, step2=64, dtype=F32, port=1, **k),
    ]
    softmax = [
        row(Op.LOAD, 0, region=2, group=2, step=1, step2=64, dtype=F32, **k),
        row(Op.LOAD, 0, region=3, group=3, step2=1, dtype=F32, **k),
        row(Op.EXP, 5, s0=0, s1=1, **k),
        row(Op.CONVERT, 11, s0=2, port=1, **k),
        row(Op.TRANSPOSE, 13, s0=3, x0=HEADS, dtype=BF16, **k),
        row(
            Op.STORE,
            85,
            s0=4,
            region=4,
            step=1,
            step2=HEADS,
            **(rows3 | ({"m": blocks, "q": 64} if blocks > 1 else {})),
        ),
    ]  # 13 + 63 + 9 = 85
    value = [
        row(Op.LOAD, 0, wide=1, width=64, region=5, group=1, step2=64, **one),
        row(Op.INSTALL, 5, s0=0, width=64, x0=1, **one),  # ready at 5 + 8 + 7 = 20
        row(Op.LOAD, 15, region=4, step=1, step2=HEADS, **v),
        row(Op.PASS, 20, s0=2, s1=1, **v),
        row(Op.STORE, 31, s0=3, region=6, group=2, width=4, dtype=F32, step=4, step2=12, **v),
    ]
    return score, softmax, value


@pytest.mark.parametrize("blocks", [1, 2])
def test_an_attention_block(blocks):
    """One KV head over B blocks; each chain waits for the last word of the one before it.

    Score: read q 5, 2 further rows, transpose 9, 64 rows into the plane 64, install 7 = 87; K stream 64 B, of which the last
    vector enters at 87 + 64 B - 1; pass 11, scale 2, mask 2, store 1, write 3: s is readable at 105 + 64 B; its maxima at
    102 + 64 B - 1 + fold 3 + store 1 + write 3 = 108 + 64 B, when softmax starts.
    Softmax: read 5, exp 6, convert 2, 64 in and transpose 9, three out, store 1, write 3, a block every 64:
    13 + 63 + 9 + 2 + 1 + 3 + 64 (B - 1) = 91 + 64 (B - 1).
    Values: the probabilities are read 15 cycles into the chain, so it starts 15 before they are there; from there 20 - 15 + 2
    further passes + pass 11 + 1 + 3 + 18 (B - 1) = 22 + 18 (B - 1).
    In all 108 + 64 B + 91 + 64 (B - 1) + 22 + 18 (B - 1) = 139 + 146 B.
    """
    score, softmax, value = attention_chains(blocks)
    regions = (
        scratch("q", 8), cache("kv.0", 128, group=1), scratch("s", 128, group=2), scratch("m", 2, group=3),
        scratch("p", 8, base=64), cache("kv.1", 128, group=1, base=256), scratch("olm", 64, group=2, base=512),
    )  # fmt: skip
    a = 108 + 64 * blocks
    b = a + 91 + 64 * (blocks - 1) - 15
    chains = [chain("score", 0, *score), chain("softmax", a, *softmax), chain("value", b, *value)]
    timing = timed(chains, regions)
    assert timing.mismatches == ()
    assert timing.recomputed_cycles == 139 + 146 * blocks


def test_two_rows_interleave_on_one_port():
    """Two reads of every second cycle share a read port if one is odd and one even. The other reader of the port starts one
    cycle after the first, not after its end: 1 + 5 + 2 * 7 + 1 + 3 = 24 with eight events each."""

    def reader(label, start, base, port):
        pace = {"n": 8, "p": 2, "step": 1}
        rows = [
            row(Op.LOAD, 0, region=0, base=base, **pace),
            row(Op.STORE, 5, s0=0, region=1, group=1, base=base, port=port, **pace),
        ]
        return chain(label, start, *rows)

    regions = (weight("w", 64), scratch("out", 64, group=1))
    timing = timed([reader("even", 0, 0, 0), reader("odd", 1, 16, 1)], regions)
    assert timing.clean
    assert timing.recomputed_cycles == 24
    assert timed([reader("even", 0, 0, 0), reader("odd", 3, 16, 1)], regions).chains.earliest.tolist() == [
        0,
        1,
    ]


@pytest.mark.parametrize(("duration", "holds"), [(1, 1), (29_999, 1), (30_000, 2), (95_000, 4)])
def test_alignment_holds(duration, holds):
    """L cycles last L + (floor(L / epoch) + 1) * h: epoch 30,000 and h = 16 on the tiny chip; nothing on a single chip, and
    nothing with h = 0."""
    system = load_system("tiny-4")
    assert deskew_cycles(duration, system, 4) == holds * 16
    assert deskew_cycles(duration, system, 1) == 0
    assert deskew_cycles(duration, system.with_fact("deskew_hold_cycles", 0), 4) == 0


def test_an_interval_counts_holds_gap_and_host():
    """A gather of 41 cycles on four chips: one hold of 16, the step gap of 50, and 1,000 ns at 1 GHz where the host samples."""
    kind = StepKind(1, 1, 1, "last", "host")
    timing = timed([chain("gather", 0, *gather_rows(1))], GATHER, chips=4, kind=kind)
    assert timing.elapsed_cycles == 41 + 16
    assert timing.interval_cycles == 41 + 16 + 50 + 1000
    assert timing.sim_interval_us == pytest.approx(1.107)
