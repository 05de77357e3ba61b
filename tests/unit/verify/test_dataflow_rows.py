"""Every op of the rows side, each in a chain by hand, against the element that docs/dataflow.md says."""

import numpy as np
import pytest
from tests.unit.graph import slow
from tests.unit.graph.slow import base, leaf, mix, tag
from tests.unit.verify.dataflow_bench import (
    BF16,
    F32,
    HEAD_DIM,
    KV_HEADS,
    ROWS,
    VOCAB,
    WIDTH,
    Bench,
    g,
    with_row,
)

from ticktrue.compile.chains import Keep, progress
from ticktrue.isa import Op
from ticktrue.program import columns as col


def one(op, *firsts, x=(0, 0), a=(), width=4, rounded=False, lanes=320, tokens=1):
    """The result of a map op on beats of `g` that start at vectors `firsts`; one chain, stored as float32."""
    b = Bench(tokens)
    c = b.chain()
    sources = []
    for first in firsts:
        r = c.load(b.at("g", first), progress(1), F32, width)
        sources.append(c.op(Op.CONVERT, r, dtype=BF16) if rounded else r)
    c.store(c.op(op, *sources, x=x, a=a), b.at("s"), F32, 4)
    c.end()
    return b.run()("s", 0, lanes)


def float_bits(value):
    return int(np.float32(value).view(np.int32))


def test_load_and_store_keep_the_element():
    b = Bench()
    c = b.chain()
    c.store(c.load(b.at("g", 4), progress(1), F32, 4), b.at("s", 3), F32, 4)
    c.end()
    assert b.run()("s", 3, 320) == [g(320 + i) for i in range(320)]
    assert g(329) != 0
    assert g(330) == 0


def test_map_ops_lane_by_lane():
    half = range(80)
    assert one(Op.CONVERT, 0, width=1) == [slow.convert(g(i)) for i in half] + [0] * 240
    assert one(Op.ADD, 0, 1, width=1, lanes=80) == [slow.add(g(i), g(80 + i)) for i in half]
    assert one(Op.ADD, 0, 4, width=1, lanes=80) == [slow.add(g(i), g(320 + i)) for i in half]
    assert one(Op.MUL, 0, 4, width=1, lanes=80) == [slow.product(g(i), g(320 + i)) for i in half]
    assert one(Op.SCALE, 4, x=(float_bits(-0.25), 0), lanes=20) == [
        slow.scale(g(320 + i), -0.25) for i in range(20)
    ]
    got = one(Op.MEAN_RSQRT, 4, x=(float_bits(576.0), float_bits(1e-5)), lanes=12)
    assert got == [slow.mean_rsqrt(g(320 + i), 576.0, 1e-5) for i in range(12)]
    assert one(Op.EXP, 0, 1, width=1, lanes=80) == [slow.exponential(g(i), g(80 + i)) for i in half]
    assert one(Op.SILU_MUL, 0, 4, width=1, lanes=80) == [slow.silu_mul(g(i), g(320 + i)) for i in half]


def test_rope_ops():
    d = 8
    pairs = [slow.cmul(g(i), g(4 + i), g(80 + i), g(84 + i)) for i in range(4)]
    want = [c for c, _ in pairs] + [s for _, s in pairs] + [0] * 4
    assert one(Op.CMUL, 0, 1, x=(d, 0), width=1, lanes=12) == want
    out = []
    for head in range(2):
        turned = [slow.rotate(g(320 + 8 * head + i), g(324 + 8 * head + i), g(i), g(4 + i)) for i in range(4)]
        out += [x for x, _ in turned] + [y for _, y in turned]
    assert one(Op.ROPE, 4, 0, x=(d, 2), width=1, lanes=16) == out
    assert out[8] != 0 == out[10]  # lanes 328, 329 hold the last elements of `g`
    assert one(Op.ROPE, 4, 0, x=(d, 3), width=1, lanes=24)[16:] == [0] * 8


def test_moves():
    assert one(Op.MOVE, 0, a=(5, 300, 7), lanes=320) == [0] * 7 + [g(5 + i) for i in range(300)] + [0] * 13
    assert one(Op.BROADCAST, 4) == [g(320)] * 320
    got = one(Op.INSERT, 0, 1, x=(66, 0), width=1, lanes=80)
    assert got == [g(80 + 66) if i == 66 else g(i) for i in range(80)]


def test_transpose_and_spread():
    b = Bench()
    c = b.chain()
    x = c.load(b.at("g", 0, 1, 4), progress(3, 2), F32, 1)
    c.store(c.op(Op.TRANSPOSE, x, x=(5, 0)), b.at("s", 0, 1, 5), F32, 1)
    c.end()
    c = b.chain()
    c.store(c.op(Op.SPREAD, c.load(b.at("g", 1), progress(1), F32, 1), x=(6, 0)), b.at("s", 20, 1), F32, 1)
    c.end()
    read = b.run()
    for k in range(5):
        assert read("s", k, 4) == [g(k), g(80 + k), g(160 + k), 0]
        assert read("s", 5 + k, 4) == [g(320 + k), g(400 + k), 0, 0]
    for k in range(6):
        assert read("s", 20 + k, 80) == [g(80 + k)] * 80


def test_reductions():
    b = Bench()
    for at, op in ((0, Op.FOLD), (1, Op.MAX), (2, Op.LANE_SUM)):
        c = b.chain()
        c.store(c.op(op, c.load(b.at("g", 0, 1), progress(5), F32, 1)), b.at("s", at), F32, 1)
        c.end()
    read = b.run()
    column = [[g(80 * i + lane) for i in range(5)] for lane in range(80)]
    assert read("s", 0, 80) == [slow.add_all(x) for x in column]
    assert read("s", 1, 80) == [slow.largest(x) for x in column]
    sums = [slow.add_all(x) for x in column]
    want = mix(tag("LANE_SUM"), slow.total(mix(s, lane) for lane, s in enumerate(sums)))
    assert read("s", 2, 3) == [want, 0, 0]


def test_lane_sum_of_a_row_is_that_of_the_numerics():
    b = Bench()
    c = b.chain()
    c.store(c.op(Op.LANE_SUM, c.load(b.at("g", 0, 4), progress(2), F32, 4)), b.at("s"), F32, 1)
    c.end()
    assert b.run()("s", 0, 1) == [slow.lane_sum([g(i) for i in range(330)])]


def test_merge_takes_each_column_from_where_it_was_gathered():
    """Sources of 7 columns, one beat each: columns 3 .. 19 from beats 1 .. 3 only."""
    b = Bench()
    c = b.chain()
    x = c.load(b.at("g", 1, 1), progress(3), F32, 1)
    c.store(c.op(Op.MERGE, x, x=(1, 0), a=(7, 1, 3, 17)), b.at("s"), F32, 1)
    c.end()
    want = [g(80 * (n // 7) + n % 7) if n >= 7 else 0 for n in range(3, 20)]
    assert b.run()("s", 0, 20) == [*want, 0, 0, 0]


def test_mask_knows_the_position_and_the_row():
    tokens, blocks = 4, 3
    b = Bench(tokens, blocks)
    c = b.chain()
    x = c.load(b.at("g", 0, 0, 0), progress(64, 2), F32, 1)
    y = c.op(Op.MASK, x, x=(tokens, 0), a=(0,))
    c.store(c.op(Op.MAX, y), b.at("s", 500, 1), F32, 1)
    c.store(y, b.at("s", 0, 1, 64), F32, 1)
    c.end()
    read = b.run()
    for chip in (0, 1):
        for j in (0, 1):
            column = []
            for i in (0, 5, 60, 61, 62, 63):
                p = 64 * (2 * j + chip) + i
                want = [slow.masked(g(lane), p, lane % 4, 64 * blocks - tokens) for lane in range(80)]
                assert read("s", 64 * j + i, 80, chip=chip) == want
                column.append(want[2])
            visible = 64 * (2 * j + chip) < 64 * blocks
            assert (read("s", 500 + j, 3, chip=chip)[2] == slow.SENTINEL) == (not visible)
            assert (slow.SENTINEL in column) == (2 * j + chip >= blocks - 1)


def test_combine_and_divide():
    d = 6

    def chain(a, other):
        b = Bench()
        c = b.chain()
        first = c.load(b.at("g", a), progress(1), F32, 1)
        c.store(
            c.op(Op.COMBINE, first, c.load(b.at("g", other), progress(1), F32, 1), x=(d, 0)),
            b.at("s"),
            F32,
            1,
        )
        c.end()
        c = b.chain()
        c.store(c.op(Op.DIVIDE, c.load(b.at("s"), progress(1), F32, 1), x=(d, 0)), b.at("s", 1), F32, 1)
        c.end()
        return b.run()

    read = chain(0, 1)
    m, e = slow.combine((g(7), [g(i) for i in range(7)]), (g(87), [g(80 + i) for i in range(7)]))
    assert read("s", 0, 10) == [*e, m, 0, 0]
    assert read("s", 0, 10) == chain(1, 0)("s", 0, 10)
    assert read("s", 1, 8) == [slow.divide(e[i], e[6]) for i in range(6)] + [0, 0]


def test_combine_leaves_out_the_absent_side():
    b = Bench(1, 1)
    c = b.chain()  # a sentinel in lane 3 of position 64: chip 1 of two holds no block of one
    x = c.op(Op.MASK, c.load(b.at("g"), progress(64), F32, 1), x=(1, 0), a=(0,))
    c.store(c.op(Op.MOVE, x, a=(0, 4, 0)), b.at("s", 0, 1), F32, 1)
    c.end()
    c = b.chain()
    a, other = (c.load(b.at(name, at), progress(1), F32, 1) for name, at in (("s", 0), ("g", 1)))
    c.store(c.op(Op.COMBINE, a, other, x=(2, 0)), b.at("s", 100), F32, 1)
    c.store(c.op(Op.COMBINE, other, a, x=(2, 0)), b.at("s", 101), F32, 1)
    c.end()
    read = b.run()
    assert read("s", 100, 5, chip=1) == [g(80), g(81), g(82), g(83), 0] == read("s", 101, 5, chip=1)
    assert read("s", 100, 5, chip=0) == read("s", 101, 5, chip=0) != read("s", 100, 5, chip=1)


def test_exp_of_the_sentinel_is_zero():
    b = Bench(1, 1)
    c = b.chain()
    masked = c.op(Op.MASK, c.load(b.at("g"), progress(64), F32, 1), x=(1, 0), a=(0,))
    c.store(c.op(Op.EXP, masked, c.load(b.at("g", 1), progress(64), F32, 1)), b.at("s", 0, 1), F32, 1)
    c.end()
    read = b.run()
    assert read("s", 63, 80, chip=1) == [0] * 80
    assert read("s", 63, 1) == [slow.exponential(slow.masked(g(0), 63, 0, 63), g(80))]


# ---- choice ------------------------------------------------------------------------------------------------------------------


def choice(a=(165, 330, 0), candidates=None):
    """LANE_ARGMAX over 2 beats of `g` on both chips, exchange of the best, PICK; the reader."""
    b = Bench()
    c = b.chain()
    best = c.op(Op.LANE_ARGMAX, c.load(b.at("g", 0, 4), progress(2), F32, 4), a=a)
    c.store(best, b.at("s"), F32, 1)
    c.end()
    c = b.chain()
    c.store(c.op(Op.PICK, c.load(candidates or b.at("s", 0), progress(1), F32, 1)), b.at("s", 1), F32, 1)
    c.end()
    return b.run()


def test_argmax_counts_the_columns_of_its_rank():
    read = choice()
    for chip in (0, 1):
        want = slow.argmax({165 * chip + i: g(i) for i in range(165)})
        assert read("s", 0, 3, chip=chip) == [*want, 0]
        assert read("s", 1, 2, chip=chip) == list(want)


def test_argmax_leaves_out_columns_beyond_the_end():
    read = choice((165, 200, 0))
    assert read("s", 0, 1, chip=1) == [slow.argmax({165 + i: g(i) for i in range(35)})[0]]


@pytest.mark.parametrize(("last", "row"), [(0, 1), (1, 0)])
def test_noise_names_column_and_row(last, row):
    b = Bench(2, 1)
    c = b.chain()
    z = c.op(Op.NOISE, c.load(b.at("g", 0, 4), progress(2), F32, 4), x=(last, 0), a=(325, 640, 0))
    c.store(z, b.at("s", 0, 4), F32, 4)
    c.end()
    read = b.run()
    for chip in (0, 1):
        want = slow.noise({325 * chip + i: g(i) for i in range(325)}, row)
        there = [want.get(325 * chip + i, 0) if 325 * chip + i < 640 else 0 for i in range(400)]
        assert read("s", 0, 320, chip=chip) == there[:320]
        assert read("s", 4, 80, chip=chip) == there[320:]


def test_noise_of_the_only_row_is_that_of_row_0_whatever_names_it():
    found = []
    for last in (0, 1):
        b = Bench(1, 1)
        c = b.chain()
        c.store(
            c.op(Op.NOISE, c.load(b.at("g"), progress(1), F32, 1), x=(last, 0), a=(80, 160, 0)),
            b.at("s"),
            F32,
            1,
        )
        c.end()
        found.append(b.run()("s", 0, 80))
    assert found[0] == found[1] == list(slow.noise({i: g(i) for i in range(80)}, 1).values())


def test_pick_is_poisoned_by_what_no_argmax_gave():
    b = Bench()
    c = b.chain()
    c.store(c.op(Op.PICK, c.load(b.at("g"), progress(1), F32, 1)), b.at("s"), F32, 1)
    c.end()
    s = mix(g(0), slow.BAD)
    assert b.run()("s", 0, 2) == [s, mix(tag("ARGMAX"), s)]


# ---- registers ---------------------------------------------------------------------------------------------------------------


def test_gather_of_tokens():
    b = Bench(3)
    c = b.chain()
    x = c.load(b.at("embed", reg_fn=1, reg_stride=1), progress(3), BF16, 1)
    c.store(x, b.at("s", 0, 1), BF16, 1)
    c.end()
    read = b.run()
    for chip in (0, 1):
        for t in range(3):
            want = [
                slow.gather(
                    "TOKEN", t, {v: leaf(base("embed"), 300 * v + 150 * chip + j) for v in range(VOCAB)}
                )
                for j in range(150)
            ]
            assert read("s", t, 160, BF16, chip) == want + [0] * 10


@pytest.mark.parametrize(("tokens", "blocks"), [(1, 3), (4, 3), (1, 9), (4, 9), (4, 8)])
def test_gather_of_rope_rows(tokens, blocks):
    b = Bench(tokens, blocks)
    c = b.chain()
    for at, fn, name in ((0, 2, "rope_a"), (10, 3, "rope_b")):
        x = c.load(b.at(name, reg_fn=fn, reg_stride=1), progress(tokens), F32, 1)
        c.store(x, b.at("s", at, 1), F32, 1)
    c.end()
    read = b.run()
    for t in range(tokens):
        places = range(t, 64 * blocks - tokens + t + 1)
        for at, fn, name, values in (
            (0, "P_DIV", "rope_a", {p // 512 for p in places}),
            (10, "P_MOD", "rope_b", {p % 512 for p in places}),
        ):
            want = [
                slow.gather(fn, t, {v: leaf(base(name), 8 * v + e) for v in sorted(values)}) for e in range(8)
            ]
            assert read("s", at + t, 9) == [*want, 0]


def test_gather_of_the_last_row():
    b = Bench(4)
    c = b.chain()
    c.store(c.load(b.at("g", 0, 1), progress(4), F32, 1), b.at("s", 0, 1), F32, 1)
    c.end()
    c = b.chain()
    c.store(c.load(b.at("s", reg_fn=5, reg_stride=1), progress(1), F32, 1), b.at("s", 10), F32, 1)
    c.end()
    want = [slow.gather("LAST", 0, {a: g(80 * a + lane) for a in range(4)}) for lane in range(80)]
    assert b.run()("s", 10, 80) == want


@pytest.mark.parametrize(
    ("fmt", "blocks", "tokens"), [("bf16", 3, 1), ("bf16", 3, 4), ("f32", 2, 4), ("bf16", 1, 64)]
)
def test_scatter_selects_old_or_new_where_the_chip_owns_the_position(fmt, blocks, tokens):
    b = Bench(tokens, blocks, fmt=fmt)
    dtype, width = (F32, KV_HEADS * HEAD_DIM) if fmt == "f32" else (BF16, KV_HEADS * HEAD_DIM)
    c = b.chain()
    x = c.load(b.at("g", 0, 1), progress(min(tokens, 4)), F32, 1)
    x = c.op(Op.MOVE, x, a=(0, width, 0))
    if fmt == "bf16":
        x = c.op(Op.CONVERT, x, dtype=BF16)
    c.store(x, b.at("k", reg_fn=4, reg_stride=1, pattern=col.PATTERN_CONTEXT), dtype, 1)
    c.end()
    read = b.run()
    assert read.stray == 0
    new = [[g(80 * t + e) for e in range(width)] for t in range(min(tokens, 4))]
    if fmt == "bf16":
        new = [[slow.convert(x) for x in row] for row in new]
    rows = slow.Slow(None, b.kind, fmt)
    want = rows.state("kv.0", new) if tokens <= 4 else None
    for p in range(64 * blocks):
        block, chip = p // 64 // 2, p // 64 % 2
        got = read("k", 64 * block + p % 64, width + 1, dtype, chip)
        assert got[width] == 0
        if want is not None:
            assert got[:width] == want[p]
        elif p > 3:
            assert got[:width] == [leaf(base("kv.0"), width * p + e) for e in range(width)]


# ---- links -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chips", [2, 4])
def test_exchange_brings_the_packet_of_each_peer(chips):
    b = Bench(chips=chips, blocks=chips)
    c = b.chain()
    x = c.load(b.at("embed"), progress(1), BF16, 1)  # differs by chip
    for peers, fn in ((False, col.RANK_OWN), (True, col.RANK_FROM)):
        there = b.at("in", rank_fn=fn, rank_stride=1)
        c.store(c.exchange(x, col.PATTERN_ALL, BF16, 1) if peers else x, there, BF16, 1, peers=peers)
    c.end()
    read = b.run()
    for chip in range(chips):
        for source in range(chips):
            first = 150 * source
            want = [leaf(base("embed"), first + j) if first + j < 300 else 0 for j in range(150)]
            assert read("in", source, 150, BF16, chip) == want


# ---- planes ------------------------------------------------------------------------------------------------------------------


def weight(chip, column, k):
    n = WIDTH * chip + column
    return leaf(base("w"), n * ROWS + k) if n < 300 and k < ROWS else 0


def activations(b, c, rows):
    x = c.load(b.at("g", 0, 1), progress(rows), F32, 1)
    return c.op(Op.CONVERT, x, dtype=BF16)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("whole", [True, False], ids=["whole tile", "in four events"])
def test_pass_through_a_weight_tile(whole, rows):
    """The first tile holds 150 columns from lane 20 on; activations fill 80 of its 160 rows."""
    b = Bench()
    c = b.chain()
    n, width = (1, 320) if whole else (4, 80)
    w = c.load(b.at("w", 0, width if n > 1 else 0), progress(n), BF16, width, wide=True)
    plane = c.install(w, BF16, Keep(0, 320), per_row=2)
    y = c.matmul(activations(b, c, rows), plane)
    c.store(c.op(Op.MOVE, y, a=(30, 70, 0)), b.at("s", 0, 4), F32, 4)
    c.store(y, b.at("s", 100, 4), F32, 4)
    c.end()
    read = b.run()
    for chip in (0, 1):
        for t in range(rows):
            x = [slow.convert(g(80 * t + k)) for k in range(80)] + [0] * 80
            want = [slow.dot(x, [weight(chip, n, k) for k in range(160)]) for n in range(WIDTH)]
            assert read("s", 100 + 4 * t, 171, chip=chip) == [0] * 20 + want + [0]
            assert read("s", 4 * t, 71, chip=chip) == [*want[10:80], 0]


@pytest.mark.parametrize("whole", [True, False], ids=["whole tile", "in two events"])
def test_pass_through_a_tile_of_two_pieces_of_unequal_height(whole):
    """150 columns need one vector per row; the second piece is shorter than the tile."""
    b = Bench()
    c = b.chain()
    n, width = (1, 58) if whole else (2, 29)
    w = c.load(b.at("w", 320, width if n > 1 else 0), progress(n), BF16, width, wide=True)
    plane = c.install(w, BF16, Keep(0, 160), per_row=1)
    c.store(c.matmul(activations(b, c, 1), plane), b.at("s"), F32, 4)
    c.end()
    x = [slow.convert(g(k)) for k in range(58)]
    want = [slow.dot(x[: 58 if n < 100 else 40], [weight(1, n, 160 + k) for k in range(58 if n < 100 else 40)])
            for n in range(WIDTH)]  # fmt: skip
    assert b.run()("s", 0, 151, chip=1) == [*want, 0]


def test_pass_through_state_with_a_column_of_ones():
    """V of two blocks: rows are positions, columns the second head's elements, then ones; x are 64 lanes."""
    b = Bench()
    c = b.chain()
    v = c.load(b.at("v", 0, 0, 64), progress(1, 2, q=200), BF16, 64, wide=True)
    plane = c.install(v, BF16, Keep(8, 16, ones=True), per_row=1)
    x = c.load(b.at("g", 0, 1), progress(3, 2, q=200), F32, 1)
    x = c.op(Op.MOVE, c.op(Op.CONVERT, x, dtype=BF16), a=(0, 64, 0))
    c.store(c.matmul(x, plane), b.at("s", 0, 1, 3), F32, 1)
    c.end()
    read = b.run()
    for chip in (0, 1):
        for j in (0, 1):
            first = 64 * (2 * j + chip)
            for i in range(3):
                p = [slow.convert(g(80 * i + k)) for k in range(64)]
                v = [[leaf(base("kv.1"), ((first + k) * 2 + 1) * 8 + e) for k in range(64)] for e in range(8)]
                want = [slow.dot(p, column) for column in v] + [slow.dot(p, [base("one")] * 64)]
                assert read("s", 3 * j + i, 18, chip=chip) == [0] * 8 + want + [0]


def test_pass_through_rows_of_a_stream_skips_zeros_on_either_side():
    """Rows 3, 4, 5 of the plane are beats 319 .. of `g`: columns with one, two or three elements, so ranks differ by column."""
    b = Bench()
    c = b.chain()
    beats = c.op(Op.CONVERT, c.load(b.at("g", 2, 1), progress(3), F32, 1), dtype=BF16)
    moved = c.op(Op.TRANSPOSE, c.op(Op.TRANSPOSE, beats, x=(80, 0), dtype=BF16), x=(3, 0), dtype=BF16)
    plane = c.install(moved, BF16, Keep(2, 14, row=3), per_row=0, width=2)
    x = c.op(Op.CONVERT, c.load(b.at("g", 4), progress(1), F32, 1), dtype=BF16)
    c.store(c.matmul(x, plane), b.at("s"), F32, 1)
    c.end()
    x = [slow.convert(g(323 + k)) for k in range(3)]
    want = [slow.dot(x, [slow.convert(g(160 + 80 * k + n)) for k in range(3)]) for n in range(2, 14)]
    assert b.run()("s", 0, 15) == [0, 0, *want, 0]
    assert len({g(160 + 80 * k + 12) == 0 for k in range(3)}) == 2


# ---- memory and types --------------------------------------------------------------------------------------------------------


def stored(dtype_in, dtype_out, *, rounded):
    """`g` stored as one type and loaded as another, both as float32 lanes afterwards."""
    b = Bench()
    c = b.chain()
    x = c.load(b.at("g"), progress(1), F32, 1)
    c.store(c.op(Op.CONVERT, x, dtype=BF16) if rounded else x, b.at("s"), dtype_in, 1)
    c.end()
    c = b.chain()
    c.store(c.load(b.at("s"), progress(1), dtype_out, 1), b.at("s", 1), F32, 2)
    c.end()
    return b.run()("s", 1, 80)


def test_bf16_elements_are_the_same_in_float32_lanes():
    assert stored(BF16, BF16, rounded=True) == [slow.convert(g(i)) for i in range(80)]


def test_a_float32_cut_to_bf16_is_another_element():
    assert stored(BF16, BF16, rounded=False) == [mix(tag("NARROW"), g(i)) for i in range(80)]


@pytest.mark.parametrize("types", [(BF16, F32), (F32, BF16)])
def test_reading_the_other_type_gives_no_element(types):
    got = set(stored(*types, rounded=True))
    assert not got & ({slow.convert(g(i)) for i in range(80)} | {g(i) for i in range(80)})


def test_reading_what_was_never_written_gives_no_element():
    b = Bench()
    c = b.chain()
    c.store(c.load(b.at("s", 7), progress(1), F32, 1), b.at("s"), F32, 1)
    c.store(c.load(b.at("code"), progress(1), F32, 1), b.at("s", 1), F32, 1)
    c.end()
    read = b.run()
    got = read("s", 0, 80) + read("s", 1, 80) + read("s", 0, 80, chip=1)
    assert len(set(got)) == 240


def test_scratch_at_equal_addresses_is_the_same_memory():
    b = Bench()
    c = b.chain()
    c.store(c.load(b.at("g"), progress(1), F32, 1), b.at("s", 1993), F32, 1)
    c.end()
    assert b.run()("alias", 3, 80) == [g(i) for i in range(80)]


@pytest.mark.parametrize("name", ["embed", "k", "code", "g"])
def test_a_store_outside_scratch_and_inbox_is_stray(name):
    b = Bench()
    c = b.chain()
    c.store(c.load(b.at("g"), progress(1), F32, 1), b.at(name), F32, 1)
    c.end()
    assert b.run().stray == 2
    assert b.parts()[-1].name == "stray"


def test_a_scatter_into_the_padding_of_state_is_stray():
    b = Bench()
    c = b.chain()
    x = c.op(Op.CONVERT, c.load(b.at("g"), progress(1), F32, 1), dtype=BF16)
    c.store(x, b.at("k", reg_fn=4, reg_stride=1, pattern=col.PATTERN_CONTEXT), BF16, 1)
    c.end()
    assert b.run().stray == 0
    assert b.parts()[-1].name == "stray"


def test_a_scatter_past_the_bucket_is_stray():
    b = Bench(1, 3)
    c = b.chain()
    x = c.op(Op.CONVERT, c.load(b.at("g"), progress(1), F32, 1), dtype=BF16)
    x = c.op(Op.MOVE, x, a=(0, 16, 0))
    c.store(x, b.at("k", 1, reg_fn=4, reg_stride=1, pattern=col.PATTERN_CONTEXT), BF16, 1)
    c.end()
    assert [p.name for p in b.parts()] == ["logits", "next_token", "L0.K", "L0.V", "stray"]


# ---- what cannot be evaluated ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"s0": 9},
        {"s0": 1},
        {"s0": -1},
        {"n": 2},
        {"m": 0},
        {"x0": -1},
        {"x0": 161},
        {"op": int(Op.PASS)},
        {"op": int(Op.RECEIVE)},
        {"op": int(Op.TRANSPOSE), "x0": 0},
        {"op": int(Op.MASK), "x0": 0},
        {"op": int(Op.MERGE)},
        {"op": int(Op.LANE_ARGMAX)},
        {"op": int(Op.NOISE)},
        {"op": int(Op.STORE), "dtype": 3, "width": 1, "region": 10},
        {"op": int(Op.INSTALL), "width": -1, "a2": 4},
        {"op": int(Op.CMUL), "s1": 0, "x0": 7},
    ],
    ids=str,
)
def test_a_row_that_means_nothing_is_poison_not_an_error(change):
    b = Bench()
    c = b.chain()
    x = c.load(b.at("g"), progress(1), F32, 1)
    c.store(c.op(Op.ROPE, x, x, x=(8, 1)), b.at("s"), F32, 1)
    c.end()
    good = b.run()
    bad = b.run(lambda t: with_row(t, 1, **change))
    assert good.stray == 0
    assert bad.stray > 0
    assert good("s", 0, 8) != bad("s", 0, 8)


def test_addresses_outside_everything_are_poison():
    b = Bench()
    c = b.chain()
    c.store(c.load(b.at("g"), progress(1), F32, 4), b.at("s"), F32, 4)
    c.end()
    for change in ({"base": 9}, {"base": -1}, {"base": 2**31 - 1}, {"region": -1}):
        assert b.run(lambda t, change=change: with_row(t, 0, **change))("s", 0, 320) != [
            g(i) for i in range(320)
        ]
        assert b.run(lambda t, change=change: with_row(t, 1, **change | {"base": 2**31 - 1})).stray > 0


def test_a_register_function_that_no_address_may_use_is_poison():
    b = Bench()
    c = b.chain()
    c.store(c.load(b.at("embed", reg_fn=1, reg_stride=1), progress(1), BF16, 1), b.at("s"), BF16, 1)
    c.end()
    values = [
        tuple(b.run(lambda t, fn=fn: with_row(t, 0, reg_fn=fn))("s", 0, 4, BF16)) for fn in (1, 0, 4, 9)
    ]
    assert all(values[0] != v for v in values[1:])


def test_a_choice_its_registers_and_what_they_name():
    """TOPK of two rows of five columns, LATCH, and a GATHER of each row's second expert: a record of five of the embedding."""
    b = Bench(tokens=2)
    c = b.chain()
    y = c.op(Op.TOPK, c.load(b.at("g", 0, 0, 2), progress(1, 2), F32, 1), x=(3, 0), a=(5,))
    c.latch(y, 0)
    c.store(y, b.at("s", 0, 1), F32, 1)
    c.end()
    c = b.chain()
    named = c.load(b.at("embed", reg_fn=6, reg_stride=1, rank=1), progress(1, 2), BF16, 1)
    c.store(named, b.at("s", 10, 0, 1), BF16, 1)
    c.end()
    read = b.run()
    for row in range(2):
        weights, ids = slow.topk([g(160 * row + i) for i in range(5)], 3)
        assert read("s", row, 8) == [*weights, *ids, 0, 0]
        of = [{v: leaf(base("embed"), v * 300 + j) for v in range(5)} for j in range(150)]
        want = [slow.gather("EXPERT", ids[1], elements) for elements in of]
        assert read("s", 10 + row, 150, BF16) == want
    assert len({read("s", 10 + row, 1, BF16)[0] for row in range(2)}) == 2


def test_a_register_that_nobody_wrote_poisons():
    b = Bench(tokens=2)
    c = b.chain()
    y = c.op(Op.TOPK, c.load(b.at("g", 0), progress(1), F32, 1), x=(1, 0), a=(5,))
    c.latch(y, 1)
    c.store(y, b.at("s", 0), F32, 1)
    c.end()
    for at, (row, rank) in enumerate(((1, 0), (0, 0), (1, 1))):
        c = b.chain()
        named = c.load(b.at("embed", reg_fn=6, reg_stride=1, row=row, rank=rank), progress(1), BF16, 1)
        c.store(named, b.at("s", 10 + at), BF16, 1)
        c.end()
    read = b.run()
    _, (name,) = slow.topk([g(i) for i in range(5)], 1)
    good = slow.gather("EXPERT", name, {v: leaf(base("embed"), v * 300) for v in range(5)})
    found = [read("s", 10 + at, 1, BF16)[0] for at in range(3)]
    assert found[0] == good
    assert good not in found[1:]
