"""Plain text tables: columns as wide as their longest cell, numbers to the right."""

from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Lines of a table; the first `left` columns are flush left, the others flush right."""
    lines = [list(head), *(list(r) for r in rows)]
    width = [max(len(line[k]) for line in lines) for k in range(len(head))]
    return "\n".join(
        "  ".join(c.ljust(width[k]) if k < left else c.rjust(width[k]) for k, c in enumerate(line)).rstrip()
        for line in lines
    )


def count(number: int) -> str:
    """A whole number with thousands marked."""
    return f"{number:,}"


def percent(ratio: float) -> str:
    """A ratio as a percentage with one decimal."""
    return f"{100 * ratio:.1f} %"
