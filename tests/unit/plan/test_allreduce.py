"""All-reduce times: measured points as they are, stated rules between and beyond them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticktrue.errors import InputError
from ticktrue.hw import list_gpus
from ticktrue.plan.allreduce import curve_names, load_curve, ring_time

CURVES = {name: load_curve(name) for name in curve_names()}


def microseconds(name: str, degree: int, size: float) -> float:
    return float(CURVES[name].time(degree, np.array(size))) * 1e6


@pytest.mark.parametrize(
    ("name", "degree", "size", "published"),
    [  # the published table, microseconds
        ("h100", 2, 256, 2.66),
        ("h100", 4, 2_048, 3.02),
        ("h100", 8, 131_072, 6.20),
        ("h200", 8, 524_288, 17.8),
        ("b200", 8, 2_097_152, 30.4),
        ("gb200", 4, 16_777_216, 74.8),
        ("gb300", 4, 16_777_216, 73.6),
        ("a100", 8, 1_048_576, 83.2),
    ],
)
def test_measured_points_are_kept(name: str, degree: int, size: int, published: float) -> None:
    assert microseconds(name, degree, size) == pytest.approx(published, rel=0.005)


def test_between_two_sizes_the_logarithms_are_linear() -> None:
    low, high = microseconds("h100", 8, 131_072), microseconds("h100", 8, 262_144)
    assert microseconds("h100", 8, 131_072 * 2**0.5) == pytest.approx((low * high) ** 0.5)


@pytest.mark.parametrize("name", CURVES)
def test_outside_the_measured_sizes(name: str) -> None:
    curve = CURVES[name]
    first, last = curve.bytes[0], curve.bytes[-1]
    for degree in curve.degrees:
        assert microseconds(name, degree, 1.0) == microseconds(name, degree, first)
        assert microseconds(name, degree, 3 * last) == pytest.approx(3 * microseconds(name, degree, last))


def test_between_and_beyond_the_measured_degrees() -> None:
    two, four, eight = (microseconds("a100", n, 4_096) for n in (2, 4, 8))
    assert microseconds("a100", 3, 4_096) == pytest.approx(two * 1.5 ** (np.log2(four / two)))
    assert microseconds("a100", 16, 4_096) == pytest.approx(eight * eight / four)
    # of 1 GiB on H100 eight GPUs make less time than four; beyond eight it does not go on falling
    assert microseconds("h100", 8, 1 << 30) < microseconds("h100", 4, 1 << 30)
    assert microseconds("h100", 16, 1 << 30) == microseconds("h100", 8, 1 << 30)


@pytest.mark.parametrize("name", CURVES)
def test_one_gpu_takes_no_time(name: str) -> None:
    assert microseconds(name, 1, 1e6) == 0.0
    assert float(ring_time(1, np.array(1e6), 1e-5, 1e11)) == 0.0


@given(
    name=st.sampled_from(sorted(CURVES)),
    degree=st.integers(2, 72),
    size=st.floats(1, 1e11),
    factor=st.floats(1, 1e3),
)
def test_a_longer_message_never_takes_less(name: str, degree: int, size: float, factor: float) -> None:
    assert microseconds(name, degree, size * factor) >= microseconds(name, degree, size) * (1 - 1e-12)


def test_ring_by_hand() -> None:
    assert float(ring_time(4, np.array(1e6), 10e-6, 1e11)) == pytest.approx(10e-6 + 1.5e6 / 1e11)


def test_every_gpu_names_a_curve_that_exists_or_none() -> None:
    assert {gpu.curve for gpu in list_gpus()} == {*CURVES, ""}


def test_unknown_curve() -> None:
    with pytest.raises(InputError, match="h100") as err:
        load_curve("v100")
    assert err.value.code == "T370"


def test_source_and_licence_travel_with_the_data() -> None:
    assert all("aiconfigurator-core 0.12.0" in curve.source for curve in CURVES.values())
    from ticktrue.plan.allreduce import _file

    assert "Apache-2.0" in _file().licence
