"""Rows of a validation: predicted beside published, with what kind of evidence each row is."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, assert_never

# fit: used to set a constant, so its residual says nothing. check: two-sided, never used to set one. Bounds are one-sided:
# the prediction must not lie above an upper, nor below a lower bound. ratio: of two times. derived: follows from a fit.
RowKind = Literal["fit", "check", "upper bound", "lower bound", "ratio", "derived"]


@dataclass(frozen=True, slots=True)
class Row:
    """One published figure and its prediction, both in `unit`; low and high are the ends of the predicted range.

    `inputs` are published figures that the prediction takes as given (an acceptance length); `note`: conditions that differ.
    """

    name: str
    system: str
    kind: RowKind
    unit: str
    published: float
    best: float
    low: float
    high: float
    source: str
    date: str
    inputs: str = ""
    note: str = ""

    @property
    def residual(self) -> float:
        """Predicted over published, less one; of a bound as of any other row."""
        return self.best / self.published - 1.0

    @property
    def holds(self) -> bool:
        """Whether the published figure lies in the predicted range; of a bound, whether the best keeps to it."""
        match self.kind:
            case "upper bound":
                return self.best <= self.published
            case "lower bound":
                return self.best >= self.published
            case "fit" | "check" | "ratio" | "derived":
                return self.low <= self.published <= self.high
            case _:
                assert_never(self.kind)


@dataclass(frozen=True, slots=True)
class Coverage:
    """How the ranges did on the check rows: `inside` of `rows`; `median_error` of |residual|; `median_width` of high / low."""

    rows: int
    inside: int
    median_error: float
    median_width: float


def coverage(rows: Iterable[Row]) -> Coverage:
    """The coverage over the rows of kind check; zeros if there are none."""
    checks = [row for row in rows if row.kind == "check"]
    if not checks:
        return Coverage(0, 0, 0.0, 0.0)
    return Coverage(
        rows=len(checks),
        inside=sum(row.holds for row in checks),
        median_error=_median([abs(row.residual) for row in checks]),
        median_width=_median([row.high / row.low for row in checks]),
    )


def markdown_table(rows: Iterable[Row]) -> str:
    """The rows as a Markdown table."""
    lines = [
        "| system | what | kind | unit | published | predicted | low to high | residual | in range | source |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        what = f"{row.name} ({row.inputs})" if row.inputs else row.name
        ends = f"{row.low:,.1f} to {row.high:,.1f}"
        lines.append(
            f"| {row.system} | {what} | {row.kind} | {row.unit} | {row.published:,.1f} | {row.best:,.1f} | {ends} "
            f"| {row.residual:+.0%} | {'yes' if row.holds else 'no'} | {row.source} |"
        )
    return "\n".join(lines) + "\n"


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
