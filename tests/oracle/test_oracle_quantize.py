"""Eight-bit grids of the oracle: e4m3 by its table of values, scales by exact arithmetic, products by hand."""

import math

import numpy as np
import pytest
from tests.families import write_family
from tests.oracle.scalar_model import E4M3, e4m3

from ticktrue.errors import InputError
from ticktrue.graph import oracle_quantize as oq
from ticktrue.graph.oracle_fast import fast_matmul
from ticktrue.graph.oracle_matmul import ordered_matmul
from ticktrue.model import load_model
from ticktrue.model.weights import in_eight_bits

F = np.float32


def neighbours():
    """Every e4m3 value, every middle between two, and the float32 next to each, of both signs."""
    values = np.array(E4M3, F)
    middles = (values[1:] + values[:-1]) / F(2)
    middle_of_top = np.array([464.0, 480.0], F)
    points = np.concatenate([values, middles, middle_of_top])
    up, down = np.nextafter(points, F(np.inf)), np.nextafter(points, F(-np.inf))
    points = np.concatenate([points, up, down])
    return np.concatenate([points, -points])


def test_the_table_is_that_of_e4m3():
    """127 magnitudes: 0, steps of 2^-9 to 2^-6, eight a binade to 448."""
    assert len(E4M3) == len(set(E4M3)) == 127
    assert sorted(E4M3) == E4M3
    assert E4M3[1] == 2.0**-9
    assert E4M3[8] == 2.0**-6
    assert E4M3[-2:] == [416.0, 448.0]


def test_every_value_middle_and_neighbour_is_rounded_as_the_table_says(equal_bits):
    x = neighbours()
    assert equal_bits(oq.e4m3_nearest(x), np.array([e4m3(v) for v in x], F))


def test_random_values_are_rounded_as_the_table_says(equal_bits):
    rng = np.random.default_rng(3)
    x = (rng.standard_normal(20_000) * 2.0 ** rng.integers(-14, 11, 20_000)).astype(F)
    assert equal_bits(oq.e4m3_nearest(x), np.array([e4m3(v) for v in x], F))


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (-0.0, -0.0), (2.0**-10, 0.0), (1.5 * 2.0**-9, 2.0**-8), (-(2.0**-149), -0.0), (1.0625, 1.0), (1.1875, 1.25),
        (464.0, 448.0), (3.4e38, 448.0), (-1e9, -448.0), (np.inf, 448.0),
    ],
)  # fmt: skip
def test_special_values_of_e4m3(x, expected, equal_bits):
    assert equal_bits(oq.e4m3_nearest(np.array([x], F)), [expected])


def bf16_magnitudes():
    """Every finite bf16 above 0: a tile's largest magnitude is one of them."""
    return (np.arange(1, 0x7F80, dtype=np.uint32) << np.uint32(16)).view(F)


def test_the_scale_of_an_e4m3_tile_is_the_least_power_of_two_that_fits():
    """For every bf16: 2^e with a <= 448 · 2^e, and 2^(e-1) does not fit unless e = -126."""
    for a, s in zip(bf16_magnitudes().tolist(), oq.e4m3_scale(bf16_magnitudes()).tolist(), strict=True):
        fraction, e = math.frexp(s)
        assert fraction == 0.5
        assert a <= 448 * s
        assert a > 224 * s or e - 1 == -126


def test_dividing_by_the_scale_of_e4m3_is_exact_or_rounds_to_zero():
    a = bf16_magnitudes()[::37]
    for largest, scale in zip(a, oq.e4m3_scale(a), strict=True):
        x = bf16_magnitudes()[5::61]
        x = x[x <= largest]
        true = x.astype(np.float64) / float(scale)
        normal = true >= 2.0**-126
        quotient = x / scale
        assert (quotient == true)[normal].all()
        assert (oq.e4m3_nearest(quotient)[~normal] == 0).all()


def test_the_scale_of_an_int8_tile_is_one_division(equal_bits):
    a = bf16_magnitudes()
    assert equal_bits(oq.int8_scale(a), a / F(127))
    with np.errstate(over="ignore"):
        assert (np.abs(oq.int8_nearest(a / oq.int8_scale(a))) == 127).all()


def test_a_tile_of_zeros_has_scale_one():
    zero = np.zeros(1, F)
    assert oq.int8_scale(zero) == oq.e4m3_scale(zero) == 1


@pytest.mark.parametrize(
    ("x", "expected"), [(0.5, 0), (1.5, 2), (2.5, 2), (-2.5, -2), (127.6, 127), (-900, -127)]
)
def test_integers_are_nearest_even_and_clamped(x, expected):
    assert oq.int8_nearest(np.array([x], F)) == expected


def test_weights_by_hand(equal_bits):
    """max 2.54 / 127 is the scale; a row of zeros has scale 1; e4m3 divides by max / 448."""
    w = np.array([[2.54, -1.27, 0.011], [0, 0, 0]], F)
    q, s = oq.quantised_weights(w, oq.INT8)
    assert equal_bits(s, [F(2.54) / F(127), 1])
    assert equal_bits(q, [[127, -64, 1], [0, 0, 0]])  # 1.27 / s = 63.5, to even
    q, s = oq.quantised_weights(w, oq.E4M3)
    assert equal_bits(s, [F(2.54) / F(448), 1])
    assert equal_bits(q, [[448, -224, e4m3(F(0.011) / s[0])], [0, 0, 0]])


@pytest.mark.parametrize("grid", [oq.INT8, oq.E4M3])
def test_a_row_too_small_for_a_scale_is_refused(grid):
    w = np.array([[1, 0], [2.0**-149, 0]], F)
    with pytest.raises(InputError, match="row 1 has no weight above"):
        oq.quantised_weights(w, grid)


@pytest.mark.parametrize("matmul", [ordered_matmul, fast_matmul])
def test_int8_tiles_are_exact_integer_sums(matmul, equal_bits):
    """Row 8 at its limit: 320 products of 127 · 127 in a tile, and a last tile of 7."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((9, 647)).astype(F)
    w = rng.integers(-127, 128, (647, 131)).astype(F)
    x[0], w[:, 0] = 1, 127
    expected = np.zeros((9, 131), F)
    for at in range(0, 647, 320):
        tile = x[:, at : at + 320]
        scale = np.abs(tile).max(axis=1) / F(127)
        q = np.rint(tile / scale[:, None]).astype(np.int64)
        expected = expected + (q @ w[at : at + 320].astype(np.int64)).astype(F) * scale[:, None]
    assert equal_bits(oq.quantised_product(x, w, oq.INT8, matmul), expected)


def test_tiles_have_their_own_scales(equal_bits):
    """A large value in the first tile does not coarsen the second."""
    x = np.zeros((1, 321), F)
    x[0, 0], x[0, 320] = 1000, 1
    w = np.ones((321, 1), F)
    for grid in (oq.INT8, oq.E4M3):
        both = oq.quantised_product(x, w, grid, ordered_matmul)
        first = oq.quantised_product(x[:, :320], w[:320], grid, ordered_matmul)
        assert equal_bits(both, first + F(127) * (F(1) / F(127)) if grid is oq.INT8 else first + F(1))


def test_e4m3_product_by_hand(equal_bits):
    """x = (3, 0.3): a = 3 = 1.5 · 2, e = 1 - 8; 0.3 · 128 = 38.4 rounds to 40; w = (2, 0.5)."""
    x = np.array([[3, 0.3]], F)
    assert oq.e4m3_scale(np.array([3], F)) == 2.0**-7
    got = oq.quantised_product(x, np.array([[2], [0.5]], F), oq.E4M3, ordered_matmul)
    assert equal_bits(got, [[(384 * 2 + 40 * 0.5) / 128]])


def test_cache_by_hand(equal_bits):
    x = np.array([[[1.0625, -3.0], [500.0, 0.001]]], F)
    assert equal_bits(oq.stored_e4m3(x, np.ones(2, F)), [[[1, -3], [448, 0.001953125]]])
    assert equal_bits(oq.stored_e4m3(x, np.array([1, 2], F)), [[[1, -3], [512, 0]]])


@pytest.mark.parametrize(("fmt", "grid"), [("int8", oq.INT8), ("fp8", oq.E4M3)])
def test_the_loader_quantises_to_the_same_bits(fmt, grid, tmp_path, equal_bits):
    """`Weights.quantised` and the oracle share no code; a tied head, attention and experts."""
    table = np.array([*E4M3, 0, *(-v for v in E4M3)], F)  # by bits: 0x7F and 0xFF are not numbers
    for family in ("gemma3", "qwen3_moe"):
        weights = load_model(str(write_family(tmp_path / f"{family} {fmt}", family, 4))).weights()
        names = [name for name in (*weights.names(), "lm_head") if in_eight_bits(name)]
        assert len(names) > 14
        for name in names:
            q, scale = oq.quantised_weights(weights.values(name), grid)
            other = weights.quantised(name, fmt)
            assert equal_bits(scale, other.scale)
            if fmt == "int8":
                assert (q == other.q).all()
            else:
                assert equal_bits(q, table[other.q.view(np.uint8)])
