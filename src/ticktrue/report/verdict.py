"""Findings against a program as text, from any checker: a code and one line each."""

from collections.abc import Sequence
from typing import Protocol

from ticktrue.report.columns import table


class Finding(Protocol):
    """A violation or mismatch: a stable code, and one line that names the culprits."""

    @property
    def code(self) -> str:
        """For example V130; `ticktrue explain` knows it."""

    @property
    def message(self) -> str:
        """What was expected and what was found."""


def verdict_table(findings: Sequence[Finding], most: int = 20) -> str:
    """`clean`, or the first `most` findings and how many more there are."""
    if not findings:
        return "clean"
    text = table(("code", "finding"), [(f.code, f.message) for f in findings[:most]], left=2)
    if len(findings) > most:
        text += f"\n... and {len(findings) - most} more"
    return text
