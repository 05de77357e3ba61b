"""Philox4x32-10 against its published answers and the oracle's own; Gumbel noise against `decimal`; bits pinned."""

import hashlib
import os
import subprocess
import sys
from decimal import Decimal, localcontext
from itertools import pairwise

import numpy as np
import pytest

from ticktrue.graph import oracle_sampling as oracle
from ticktrue.kernels import philox

U = np.uint32
KNOWN = (  # Random123 1.14, tests/kat_vectors, "philox4x32 10": counter, key, answer
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
)
PINNED = "d4a6dc2af9b55b3719e511af6d4106bdd084cf25c606a318adf90325ae7d7208"
"""sha256 of the noise of 4,096 columns."""
WORDS = (0, 1, 2, 3, 0x7FFFFFFE, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFE, 0xFFFFFFFF)


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN)
def test_known_answers(counter, key, answer):
    assert tuple(int(w) for w in philox.philox(*map(U, counter), *map(U, key))) == answer
    assert oracle.philox(counter, key) == answer


def test_equals_the_oracle_on_random_counters_and_keys():
    rng = np.random.default_rng(1)
    for row in rng.integers(0, 1 << 32, (500, 6)).tolist():
        got = philox.philox(*map(U, row))
        assert tuple(int(w) for w in got) == oracle.philox(row[:4], row[4:])


@pytest.mark.parametrize("pos", [0, 1, 1 << 18])
@pytest.mark.parametrize("seed", [0, 1, (1 << 64) - 1, 0x0123456789ABCDEF])
def test_noise_of_a_vocabulary_equals_the_oracle(seed, pos):
    for choice in (0, (1 << 32) - 1):
        out = np.empty(1_003, np.float32)
        philox.draws(np.arange(1_003), U(pos), U(choice), U(seed & 0xFFFFFFFF), U(seed >> 32), out)
        assert (out.view(np.uint32) == oracle.noise(1_003, seed, choice, pos).view(np.uint32)).all()


def test_every_input_of_a_draw_counts():
    def of(**changes):
        inputs = {"column": 5, "position": 7, "choice": 0, "k0": 1, "k1": 2} | changes
        return float(philox.draw(*(U(x) for x in inputs.values())))

    assert of() == of()
    others = [of(column=c) for c in (4, 6, 7, 9)] + [of(position=8), of(choice=1), of(k0=2), of(k1=3)]
    assert len({of(), *others}) == 9


def test_gumbel_is_finite_descends_in_the_word_and_is_near_the_exact_value():
    words = sorted({*WORDS, *np.random.default_rng(2).integers(0, 1 << 32, 3_000).tolist()})
    got = [float(philox.gumbel(U(b))) for b in words]
    assert np.isfinite(got).all()
    assert got[0] > 22
    assert got[-1] < -3
    assert all(a >= b for a, b in pairwise(got))
    with localcontext() as context:
        context.prec = 40
        for b, g in zip(words, got, strict=True):
            exact = -(-(1 - (Decimal(b) + Decimal("0.5")) / (1 << 32)).ln()).ln()
            # rounding of the word to 24 bits moves u by up to 2^-25 of it; E and G round once each
            assert abs(Decimal(g) - exact) <= Decimal("4e-7") * max(Decimal(1), abs(exact))


def test_bits_are_pinned():
    out = np.empty(4_096, np.float32)
    philox.draws(np.arange(4_096), U(17), U(1), U(0xDEADBEEF), U(0x01234567), out)
    assert hashlib.sha256(out.astype("<f4").tobytes()).hexdigest() == PINNED


PINNED_SCRIPT = """
import hashlib
import numpy as np
from ticktrue.kernels import philox
out, u = np.empty(4_096, np.float32), np.uint32
philox.draws(np.arange(4_096), u(17), u(1), u(0xDEADBEEF), u(0x01234567), out)
print(hashlib.sha256(out.astype("<f4").tobytes()).hexdigest())
"""


@pytest.mark.slow
def test_bits_are_the_same_without_vector_instructions(tmp_path):
    plain = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PINNED_SCRIPT],
        env=os.environ | plain, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == PINNED


def test_temperature_zero_passes_every_logit_through():
    pool = np.zeros(1_280, np.float32)
    pool[:640] = np.random.default_rng(3).standard_normal(640)
    pool[3] = -0.0
    for temperature in (0.0, 1.5):
        philox.noise(
            pool, 0, 320, 640, 320, 2, 320, 0, 500, 1_000, np.float32(temperature), U(9), U(0), U(4), U(5)
        )
        want = pool[:500] if temperature == 0 else None
        if want is None:
            g = oracle.noise(1_500, 4 + (5 << 32), 0, 9)[1_000:]
            want = pool[:500] / np.float32(1.5) + g
        assert (pool[640:1_140].view(np.uint32) == want.view(np.uint32)).all()
        assert not pool[1_140:1_280].any()
