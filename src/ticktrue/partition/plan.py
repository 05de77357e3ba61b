"""Which tensor-parallel degrees are legal, and how heads and context share one."""

from ticktrue.errors import UsageError
from ticktrue.program import Plan

MAX_DEGREE = 16


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


def legal_degrees(kv_heads: int, limit: int = MAX_DEGREE) -> tuple[int, ...]:
    """Every legal number of chips up to `limit`, ascending."""
    return tuple(n for n in range(1, limit + 1) if heads_degree(kv_heads, n))


def make_plan(kv_heads: int, chips: int) -> Plan:
    """The plan for `chips` chips: h over KV heads, cp = chips / h over context.

    Raises:
        UsageError: T120 for a degree that is not h x 2^k with h dividing the KV heads; the nearest legal ones are named.
    """
    h = heads_degree(kv_heads, chips) if 1 <= chips <= MAX_DEGREE else 0
    if h == 0:
        legal = legal_degrees(kv_heads)
        below = max((n for n in legal if n < chips), default=None)
        above = min((n for n in legal if n > chips), default=None)
        near = " or ".join(str(n) for n in (below, above) if n is not None)
        raise UsageError(
            f"{chips} chips cannot share {kv_heads} KV heads: expected h x 2^k chips up to {MAX_DEGREE}, h dividing {kv_heads}",
            code="T120", where="--chips", hint=f"nearest legal: {near} (all: {', '.join(map(str, legal))})",
        )  # fmt: skip
    return Plan(chips=chips, h=h, cp=chips // h)
