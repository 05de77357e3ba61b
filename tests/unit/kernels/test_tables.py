"""RoPE tables: each entry is the nearest float32 to the exact cosine or sine, also at the last position."""

from decimal import Decimal, localcontext

import numpy as np
import pytest
import ulp

from ticktrue.errors import InputError
from ticktrue.kernels.tables import LARGEST_ANGLE, cos_sin, rope_inv_freq, rope_tables

LAST = 262_143
FREQUENCIES = np.concatenate([rope_inv_freq(1_000_000.0, 128)[::9], [1.0, 0.75]])
TABLES = rope_tables(FREQUENCIES, LAST + 1)


def test_shapes() -> None:
    assert TABLES.coarse.shape == TABLES.fine.shape == (512, 2, len(FREQUENCIES))
    assert TABLES.coarse.dtype == TABLES.fine.dtype == np.float32
    assert not TABLES.coarse.flags.writeable
    assert rope_tables(FREQUENCIES, 513).coarse.shape[0] == 2
    assert rope_tables(FREQUENCIES, 512).coarse.shape[0] == 1


def test_position_zero_is_exact() -> None:
    for table in TABLES:
        assert np.array_equal(table[0, 0], np.ones(len(FREQUENCIES), np.float32))
        assert not table[0, 1].view(np.uint32).any()


def test_entries_are_correctly_rounded() -> None:
    rows = [0, 1, 2, 3, 255, 256, 510, 511, *np.random.default_rng(3).integers(0, 512, 24).tolist()]
    for table, step in ((TABLES.coarse, 512), (TABLES.fine, 1)):
        for row in rows:
            for i, frequency in enumerate(FREQUENCIES):
                exact = ulp.cos_sin(Decimal(float(row * step) * float(frequency)))
                for part in (0, 1):
                    assert ulp.ulps(table[row, part, i], exact[part]) <= 0.5000001


def test_float64_cosine_and_sine_at_large_angles_and_near_multiples_of_half_pi() -> None:
    rng = np.random.default_rng(4)
    near = np.arange(1, 500) * float(ulp.PI / 2)
    far = rng.integers(1, 667_543, 300) * float(ulp.PI / 2)
    angles = np.concatenate(
        [near, far, rng.uniform(0, LARGEST_ANGLE, 500), [0.0, 1e-300, 2.0**-30, LARGEST_ANGLE]]
    )
    found = cos_sin(angles)
    for angle, c, s in zip(angles, found.cos, found.sin, strict=True):
        exact = ulp.cos_sin(Decimal(float(angle)))
        for value, reference in zip((c, s), exact, strict=True):
            assert ulp.ulps(value, reference, bits=53, lowest=-1074) <= 1.5, angle


def test_the_product_of_both_tables_is_the_rotation_of_the_position() -> None:
    """Row 12 with positions to the end: four roundings from the exact cosine and sine."""
    positions = [
        0,
        1,
        511,
        512,
        513,
        99_999,
        LAST - 1,
        LAST,
        *np.random.default_rng(5).integers(0, LAST, 60).tolist(),
    ]
    for p in positions:
        ca, sa = TABLES.coarse[p // 512]
        cb, sb = TABLES.fine[p % 512]
        c = (ca * cb) - (sa * sb)
        s = (sa * cb) + (ca * sb)
        for i, frequency in enumerate(FREQUENCIES):
            with localcontext() as context:
                context.prec = 40
                exact = ulp.cos_sin(Decimal(p) * Decimal(float(frequency)))
            assert abs(float(exact[0]) - float(c[i])) < 2.0**-22
            assert abs(float(exact[1]) - float(s[i])) < 2.0**-22


def test_yarn_factor_goes_into_the_coarse_table_only() -> None:
    scaled = rope_tables(FREQUENCIES, 2048, factor=1.25)
    plain = cos_sin(512.0 * FREQUENCIES)
    assert np.array_equal(scaled.coarse[1, 0], (plain.cos * 1.25).astype(np.float32))
    assert np.array_equal(scaled.fine, TABLES.fine)


def test_frequencies_are_the_nearest_float64() -> None:
    found = rope_inv_freq(10_000.0, 64)
    assert found[0] == 1.0
    assert found[16] == 0.01
    with localcontext() as context:
        context.prec = 80
        for i, value in enumerate(found):
            exact = Decimal(10_000) ** (Decimal(-2 * i) / 64)
            assert ulp.ulps(value, exact, bits=53) <= 0.5


@pytest.mark.parametrize(
    ("theta", "dim"), [(1.0, 64), (float("inf"), 64), (float("nan"), 64), (1e4, 63), (1e4, 0)]
)
def test_bad_frequencies_are_input_errors(theta: float, dim: int) -> None:
    with pytest.raises(InputError):
        rope_inv_freq(theta, dim)


@pytest.mark.parametrize(
    ("inv_freq", "positions"),
    [
        ([], 10),
        ([[1.0]], 10),
        ([float("nan")], 10),
        ([-1.0], 10),
        ([1.0], 0),
        ([1.0], 2**20 + 1024),
        ([4096.0], 1),
    ],
)
def test_bad_tables_are_input_errors(inv_freq, positions: int) -> None:
    with pytest.raises(InputError):
        rope_tables(np.array(inv_freq, np.float64), positions)
