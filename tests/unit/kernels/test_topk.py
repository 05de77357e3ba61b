"""The router's choice (numerics row 27) against a plain statement of it."""

import numpy as np
import pytest

from ticktrue.kernels.functions import exp_f32
from ticktrue.kernels.topk import topk


def chosen(logits: np.ndarray, k: int) -> tuple[list[int], list[np.float32]]:
    """Larger value, then lower index; weights by rank, summed in order of rank."""
    ids = sorted(range(len(logits)), key=lambda c: (-float(logits[c]), c))[:k]
    e = [exp_f32(logits[i] - logits[ids[0]]) for i in ids]
    total = np.float32(0)
    for x in e:
        total = np.float32(total + x)
    return ids, [np.float32(x / total) for x in e]


def run(rows: np.ndarray, k: int, lanes: int = 320) -> np.ndarray:
    """Float32[rows, 320] of logits [rows, columns], in beats of 320 with other numbers behind them."""
    count, columns = rows.shape
    beats = -(-columns // 320)
    pool = np.full(count * (beats + 1) * 320, 1e9, np.float32)
    for j, row in enumerate(rows):
        pool[j * beats * 320 : j * beats * 320 + columns] = row
    out = count * beats * 320
    pool[out:] = 7
    topk(
        pool,
        0,
        320,
        out,
        320,
        beats,
        count,
        columns,
        k,
        lanes,
        np.empty(160, np.int64),
        np.empty(160, np.float32),
    )
    return pool[out:].reshape(count, 320)


@pytest.mark.parametrize(("columns", "k"), [(8, 2), (1, 1), (5, 5), (320, 8), (331, 7), (700, 160)])
def test_it_is_row_27(columns: int, k: int) -> None:
    rows = np.random.default_rng(columns).normal(0, 3, (4, columns)).astype(np.float32)
    found = run(rows, k)
    for row, lanes in zip(rows, found, strict=True):
        ids, weights = chosen(row, k)
        assert lanes[k : 2 * k].view(np.int32).tolist() == ids
        assert lanes[:k].tolist() == weights
        assert (lanes[2 * k :] == 7).all()


def test_of_equal_logits_the_lower_column_comes_first() -> None:
    rows = np.array(
        [[0.5, 2, 2, -1, 2, 0.5], [-3, -3, -3, -3, -3, -3], [-0.0, 0.0, -1, 0.0, -0.0, -2]], np.float32
    )
    found = run(rows, 4)
    assert found[:, 4:8].copy().view(np.int32).tolist() == [[1, 2, 4, 0], [0, 1, 2, 3], [0, 1, 3, 4]]
    assert found[1, :4].tolist() == [0.25] * 4


def test_a_weight_may_vanish_and_nothing_else_does() -> None:
    rows = np.array([[100, 0, -100, 99]], np.float32)
    found = run(rows, 3)[0]
    assert found[2] == 0
    assert found[0] + found[1] == 1


def test_ids_are_columns_whatever_the_logits_are() -> None:
    """Not a number is never larger, so ids stay different and in range: an address made of them is legal."""
    rows = np.array([[np.nan, 1, np.nan, 3], [np.nan] * 4, [np.inf, -np.inf, np.inf, 0]], np.float32)
    for ids in run(rows, 4)[:, 4:8].copy().view(np.int32):
        assert sorted(ids.tolist()) == [0, 1, 2, 3]


def test_no_more_lanes_are_written_than_are_read() -> None:
    rows = np.array([[1, 2, 3]], np.float32)
    assert (run(rows, 2, 3)[0, 3:] == 7).all()
    assert (run(rows, 2, 1)[0, 1:] == 7).all()
