"""The ordered product: numpy against scalar code, numba against numpy, and the traps of a wrong order."""

import numpy as np
import pytest

from ticktrue.graph.oracle_fast import fast_matmul
from ticktrue.graph.oracle_matmul import ordered_column_sum, ordered_matmul

F = np.float32
SHAPES = [(1, 1, 1), (1, 160, 3), (3, 161, 5), (9, 576, 130), (70, 33, 1100), (8, 346, 128), (13, 80, 256)]


def operands(rows, depth, outs, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((rows, depth)).astype(F), rng.standard_normal((depth, outs)).astype(F)


def scalar_matmul(x, w, tile):
    out = np.empty((x.shape[0], w.shape[1]), F)
    for r, o in np.ndindex(out.shape):
        acc = F(0)
        for start in range(0, x.shape[1], tile):
            t = F(0)
            for k in range(start, min(start + tile, x.shape[1])):
                t = t + x[r, k] * w[k, o]
            acc = acc + t
        out[r, o] = acc
    return out


@pytest.mark.parametrize("tile", [80, 160])
@pytest.mark.parametrize("depth", [1, 79, 80, 81, 160, 218, 346])
def test_numpy_form_is_the_scalar_form(depth, tile, equal_bits):
    x, w = operands(3, depth, 4)
    assert equal_bits(ordered_matmul(x, w, tile), scalar_matmul(x, w, tile))


@pytest.mark.parametrize("tile", [80, 160])
@pytest.mark.parametrize("shape", SHAPES)
def test_numba_form_is_the_numpy_form(shape, tile, equal_bits):
    x, w = operands(*shape)
    assert equal_bits(fast_matmul(x, w, tile), ordered_matmul(x, w, tile))


@pytest.mark.parametrize("matmul", [ordered_matmul, fast_matmul])
def test_rows_and_outputs_are_independent(matmul, equal_bits):
    """Cuts over rows or outputs, as chips and chunks make them, change nothing."""
    x, w = operands(150, 170, 1500)
    whole = matmul(x, w, 160)
    assert equal_bits(matmul(x[37:38], w, 160), whole[37:38])
    assert equal_bits(matmul(x, np.ascontiguousarray(w[:, 511:1300]), 160), whole[:, 511:1300])


def test_zero_padding_adds_nothing(equal_bits):
    x, w = operands(9, 218, 7)
    padded_x = np.concatenate([x, np.zeros((9, 102), F)], axis=1)
    padded_w = np.concatenate([w, np.zeros((102, 7), F)])
    assert equal_bits(ordered_matmul(padded_x, padded_w, 160), ordered_matmul(x, w, 160))


def test_wrong_orders_have_other_bits(equal_bits):
    """The traps: k descending, no tiles, tiles of another depth, tiles descending, a library product."""
    x, w = operands(9, 480, 40)
    right = ordered_matmul(x, w, 160)
    backwards = np.ascontiguousarray(x[:, ::-1]), np.ascontiguousarray(w[::-1])
    tiles_descending = np.r_[320:480, 160:320, 0:160]
    assert not equal_bits(ordered_matmul(*backwards, 160), right)
    assert not equal_bits(ordered_matmul(x, w, 480), right)
    assert not equal_bits(ordered_matmul(x, w, 80), right)
    assert not equal_bits(ordered_matmul(x[:, tiles_descending], w[tiles_descending], 160), right)
    assert not equal_bits(x @ w, right)


def test_column_sum_is_ascending(equal_bits):
    p = np.random.default_rng(2).random((64, 30)).astype(F)
    expected = np.zeros(30, F)
    for i in range(64):
        expected = expected + p[i]
    assert equal_bits(ordered_column_sum(p), expected)
    assert not equal_bits(ordered_column_sum(np.ascontiguousarray(p[::-1])), expected)
