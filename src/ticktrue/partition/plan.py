"""Which tensor-parallel degrees are legal, and how heads and context share one."""

from ticktrue.errors import UsageError
from ticktrue.program import Plan

MAX_DEGREE = 256


def _is_power_of_two(n: int) -> bool:
    return n > 0 and n & (n - 1) == 0


def heads_degree(kv_heads: int, chips: int) -> int:
    """The largest h that divides the KV heads and leaves chips / h a power of two; 0 if there is none."""
    legal = [
        h
        for h in range(1, chips + 1)
        if chips % h == 0 and kv_heads % h == 0 and _is_power_of_two(chips // h)
    ]
    return max(legal, default=0)


def whole_trays(kv_heads: int, chips: int, tray: int) -> bool:
    """Whether `chips` chips lie in one tray of `tray` chips (0: there is but one), or fill several, no group of them ragged.

    Then every gather goes inside trays, between chips of equal place, or in these two steps.
    """
    if tray == 0 or chips <= tray:
        return True
    h = heads_degree(kv_heads, chips)
    cp = chips // h if h else 0
    return h > 0 and chips % tray == 0 and (cp % tray == 0 or tray % cp == 0)


def legal_degrees(kv_heads: int, limit: int = MAX_DEGREE, tray: int = 0) -> tuple[int, ...]:
    """Every legal number of chips up to `limit`, ascending, on trays of `tray` chips (0: all chips are joined)."""
    numbers = range(1, min(limit, MAX_DEGREE) + 1)
    return tuple(n for n in numbers if heads_degree(kv_heads, n) and whole_trays(kv_heads, n, tray))


def make_plan(kv_heads: int, chips: int, *, limit: int = MAX_DEGREE, tray: int = 0) -> Plan:
    """The plan for `chips` chips: h over KV heads, cp = chips / h over context.

    Args:
        kv_heads: of the model.
        chips: to share them.
        limit: the most chips that gathers can reach (`System.gather_chips`).
        tray: chips of a tray, 0 where all chips are joined (`System.tray_chips`).

    Raises:
        UsageError: T120 for a degree that is not h x 2^k with h dividing the KV heads, that gathers do not reach, or that leaves
            a tray partly used; the nearest legal ones are named.
    """
    legal = legal_degrees(kv_heads, limit, tray)
    if chips not in legal:
        below = max((n for n in legal if n < chips), default=None)
        above = min((n for n in legal if n > chips), default=None)
        near = " or ".join(str(n) for n in (below, above) if n is not None)
        most = min(limit, MAX_DEGREE)
        rule = f"h x 2^k chips up to {most}, h dividing {kv_heads}"
        if 0 < tray < most:
            rule += f", beyond {tray} in whole trays of {tray}"
        raise UsageError(
            f"{chips} chips cannot share {kv_heads} KV heads: expected {rule}",
            code="T120", where="--chips", hint=f"nearest legal: {near} (all: {', '.join(map(str, legal))})",
        )  # fmt: skip
    h = heads_degree(kv_heads, chips)
    return Plan(chips=chips, h=h, cp=chips // h, tray=tray if chips > tray else 0)
