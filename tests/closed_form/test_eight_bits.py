"""Cycles of products in 8 bits by hand, on the tiny chip (its Facts stand in `test_hand.py`)."""

from tests.unit.sim.timetables import F32, chain, row, scratch, timed, weight

from ticktrue.isa import Dtype, Op

INT8 = Dtype.INT8
TILE = 320  # vectors of a full 8-bit tile: 320 rows of 1 vector
REGIONS = (
    weight("w", TILE),
    scratch("x", 64, group=1),
    scratch("scale", 64, group=3),
    scratch("partial", 512, group=2),
)


def test_an_int8_tile_with_its_scale():
    """As a tile of 16 bits up to the pass, for 320 rows of one vector take the same 40 cycles.

    Read 5, weight load 40, install 7, pass 11, move 4. Then the product with the scale of the tile of x, which was read (5) and
    spread (5) in time for it: map 2. Store 1, write 3. 5 + 40 + 7 + 11 + 4 + 2 + 1 + 3 = 73.
    """
    rows = [
        row(Op.LOAD, 0, wide=1, width=TILE, region=0, dtype=INT8),
        row(Op.INSTALL, 5, width=TILE, s0=0, x0=1, dtype=INT8),
        row(Op.LOAD, 47, region=1, group=1, dtype=INT8),
        row(Op.PASS, 52, s0=2, s1=1),
        row(Op.MOVE, 63, s0=3),
        row(Op.LOAD, 57, region=2, group=3, dtype=F32),
        row(Op.BROADCAST, 62, s0=5),
        row(Op.MUL, 67, s0=4, s1=6),
        row(Op.STORE, 69, s0=7, region=3, width=4, dtype=F32, group=2),
    ]
    timing = timed([chain("tile", 0, *rows)], REGIONS)
    assert timing.clean
    assert timing.recomputed_cycles == 73
    assert {s.name: s.cycles for s in timing.causes} == {
        "SRAM": 5 + 1 + 3,
        "weight load": 40 + 7,
        "MXM": 11,
        "SXM": 4,
        "VXM": 2,
    }


def test_a_tile_quantised():
    """x is read twice, for its scale and for what is divided by it; the second reading is issued 12 cycles after the first.

    Read 5, lane tree 12, func 6 for the quotient, store 1, write 3: 27.
    """
    regions = (scratch("h", 64), scratch("q", 64, group=1), scratch("scale", 64, group=2))
    rows = [
        row(Op.LOAD, 0, region=0, width=2),
        row(Op.TILE_SCALE, 5, s0=0, dtype=INT8),
        row(Op.LOAD, 12, region=0, width=2),
        row(Op.QUANTISE, 17, s0=2, s1=1, dtype=INT8),
        row(Op.STORE, 17, s0=1, region=2, dtype=F32, group=2),
        row(Op.STORE, 23, s0=3, region=1, dtype=INT8, group=1),
    ]
    timing = timed([chain("quantise", 0, *rows)], regions)
    assert timing.clean
    assert timing.recomputed_cycles == 27
