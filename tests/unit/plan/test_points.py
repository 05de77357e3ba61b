"""Published points beside predictions: kinds kept apart, residuals and coverage as defined, the page as computed."""

from pathlib import Path

import pytest

from ticktrue.hw import list_gpus, load_gpu
from ticktrue.plan.gpu import step_time
from ticktrue.plan.gpu_points import LEFT_OUT, SOURCES, gpu_rows, kernel_overhead_ns, points
from ticktrue.plan.rows import Row, coverage, markdown_table

ROOT = Path(__file__).parents[3]
POINTS = points()
ROWS = gpu_rows()


def row(kind: str, published: float, best: float, low: float, high: float) -> Row:
    return Row("a", "b", kind, "tokens/s", published, best, low, high, "source", "2026")


def test_one_row_is_the_fit_and_it_sets_the_kernel_overhead() -> None:
    fits = [i for i, r in enumerate(ROWS) if r.kind == "fit"]
    assert fits == [0]
    fact = load_gpu("a100").fact("kernel_overhead_ns")
    assert round(kernel_overhead_ns(POINTS[0])) == fact.value
    assert abs(ROWS[0].residual) < 1e-4
    for gpu in list_gpus():  # one constant for all GPUs; a wafer is none
        if gpu.name != "wse-3":
            assert gpu.fact("kernel_overhead_ns").value == fact.value


def test_no_check_sets_a_constant() -> None:
    """The fit's own bandwidth efficiency is stated by its page; no fact but the kernel overhead equals what a row would set."""
    set_by_rows = {round(kernel_overhead_ns(p)) for p in POINTS[1:] if p.also is None}
    assert load_gpu("a100").fact("kernel_overhead_ns").value not in set_by_rows
    assert load_gpu("a100").fact("bandwidth_efficiency").value == round(1_700 / 2_039, 3)


def test_at_least_five_checks_are_without_speculation() -> None:
    assert sum(p.kind == "check" and p.length == 1.0 and p.also is None for p in POINTS) >= 5
    assert {r.kind for r in ROWS} == {"fit", "check", "upper bound"}


@pytest.mark.parametrize("at", range(len(POINTS)), ids=lambda i: f"{i}-{POINTS[i].gpu}-{POINTS[i].name}")
def test_rows_are_sourced_and_ordered(at: int) -> None:
    r, p = ROWS[at], POINTS[at]
    assert r.low < r.best < r.high
    assert r.source
    assert r.date.startswith("20")
    assert r.note
    assert (p.length == 1.0) == (r.inputs == "")
    assert p.length == 1.0 or p.also is not None
    assert r.residual == pytest.approx((r.best - r.published) / r.published)


def test_a_row_without_speculation_is_the_inverse_of_the_step_s_time() -> None:
    found = step_time(POINTS[5].model, load_gpu("a100"), POINTS[5].formats, POINTS[5].steps)
    assert ROWS[5].best == pytest.approx(1 / float(found.best.total_s))
    assert ROWS[5].high == pytest.approx(1 / float(found.low.total_s))  # the least time is the greatest speed


@pytest.mark.parametrize("at", [i for i, p in enumerate(POINTS) if p.also is not None])
def test_a_row_adds_its_drafts_or_prefills(at: int) -> None:
    point, gpu = POINTS[at], load_gpu(POINTS[at].gpu)
    step = float(step_time(point.model, gpu, point.formats, point.steps).best.total_s)
    other = float(step_time(point.also.model, gpu, point.also.formats, point.also.steps).best.total_s)
    assert ROWS[at].best == pytest.approx(point.length / (step + point.also.times * other))
    if point.length > 1:
        assert point.steps.arrays["tokens"] == point.steps.arrays["logits"] == point.also.times + 1
    else:
        assert point.also.times == point.steps.arrays["batch"] / 1_000


@pytest.mark.parametrize(
    ("kind", "published", "holds"),
    [
        ("check", 90, True),
        ("check", 79, False),
        ("check", 121, False),
        ("fit", 120, True),
        ("upper bound", 101, True),
        ("upper bound", 99, False),
        ("lower bound", 99, True),
        ("lower bound", 101, False),
    ],
)
def test_when_a_row_holds(kind: str, published: float, holds: bool) -> None:
    assert row(kind, published, 100, 80, 120).holds is holds


def test_coverage_counts_checks_alone() -> None:
    rows = [
        row("check", 100, 110, 90, 120),
        row("check", 100, 130, 120, 160),
        row("check", 100, 80, 50, 100),
        row("fit", 100, 100, 1, 1_000),
        row("upper bound", 1, 100, 1, 1_000),
    ]
    found = coverage(rows)
    assert (found.rows, found.inside) == (3, 2)
    assert found.median_error == pytest.approx(0.2)
    assert found.median_width == pytest.approx(4 / 3)
    assert coverage(rows[3:]).rows == 0
    assert coverage(rows[:2]).median_error == pytest.approx(0.2)


def test_the_page_has_the_computed_table_and_coverage() -> None:
    page = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
    assert markdown_table(ROWS) in page, "python benchmarks/gpu_points.py prints the table"
    found = coverage(ROWS)
    checks = [r for r in ROWS if r.kind == "check"]
    assert found.inside == sum(r.low <= r.published <= r.high for r in checks)
    text = (
        f"Of {found.rows} checks, {found.inside} lie in the range; the median error is {found.median_error:.0%},"
        f" the median range a factor of {found.median_width:.1f}."
    )
    assert text in page
    apart = coverage(r for r in ROWS if r.source != ROWS[0].source)
    assert (
        f"own page: {apart.inside} of {apart.rows}, {apart.median_error:.0%}, {apart.median_width:.1f}."
        in page
    )
    assert all(title in page for title, _ in LEFT_OUT)
    assert all(source.url in page and source.conditions in page for source in SOURCES)
    assert {point.source for point in POINTS} == set(SOURCES)
