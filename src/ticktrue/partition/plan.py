"""Which tensor-parallel degrees are legal, and how heads and context of each kind of attention share one."""

from ticktrue.errors import UsageError
from ticktrue.program import Plan

MAX_DEGREE = 256


def _is_power_of_two(n: int) -> bool:
    return n > 0 and n & (n - 1) == 0


def legal_heads(kv_heads: int, chips: int, tray: int = 0) -> tuple[int, ...]:
    """Every h that divides the KV heads, leaves a power of two of context lanes and fills trays, ascending.

    `tray` chips make a tray (0: all are joined); a plan of more fills whole ones, no group of chips ragged: then every gather
    goes inside trays, between chips of equal place, or in these two steps.
    """
    if tray and chips > tray and chips % tray:
        return ()
    lanes = {
        h: chips // h for h in range(1, min(chips, kv_heads) + 1) if chips % h == 0 and kv_heads % h == 0
    }
    whole = 0 < tray < chips
    return tuple(
        h for h, cp in lanes.items()
        if _is_power_of_two(cp) and cp <= MAX_DEGREE and not (whole and cp % tray and tray % cp)
    )  # fmt: skip


def heads_degree(kv_heads: int, chips: int) -> int:
    """The largest h that divides the KV heads and leaves chips / h a power of two; 0 if there is none."""
    return max(legal_heads(kv_heads, chips), default=0)


def legal_degrees(kv_heads: tuple[int, ...], limit: int = MAX_DEGREE, tray: int = 0) -> tuple[int, ...]:
    """Every number of chips up to `limit` that each kind of attention can share, ascending.

    `kv_heads` of each kind; `tray` as in `legal_heads`.
    """
    numbers = range(1, min(limit, MAX_DEGREE) + 1)
    return tuple(
        n for n in numbers if all(heads_degree(kv, n) in legal_heads(kv, n, tray) for kv in kv_heads)
    )


def make_plan(
    kv_heads: tuple[int, ...],
    chips: int,
    *,
    heads: tuple[int, ...] = (),
    limit: int = MAX_DEGREE,
    tray: int = 0,
) -> Plan:
    """The plan for `chips` chips: for each kind of attention h over its KV heads, cp = chips / h over context.

    Args:
        kv_heads: of each kind of attention.
        chips: to share them.
        heads: h of each kind, or one for all; the largest legal ones where it is empty.
        limit: the most chips that gathers can reach (`System.gather_chips`).
        tray: chips of a tray, 0 where all chips are joined (`System.tray_chips`).

    Raises:
        UsageError: T120 for a degree that is not h x 2^k with h dividing the KV heads, that gathers do not reach, or that leaves
            a tray partly used; the nearest legal ones are named. T126 for head groups that a kind cannot be shared by.
    """
    if heads:
        heads = heads * len(kv_heads) if len(heads) == 1 else heads
        _check_heads(kv_heads, chips, heads, min(limit, MAX_DEGREE), tray)
    elif chips not in legal_degrees(kv_heads, limit, tray):
        raise _illegal(kv_heads, chips, limit, tray)
    else:
        heads = tuple(heads_degree(kv, chips) for kv in kv_heads)
    return Plan.of(chips, *heads, tray=tray if chips > tray else 0)


def _illegal(kv_heads: tuple[int, ...], chips: int, limit: int, tray: int) -> UsageError:
    legal = legal_degrees(kv_heads, limit, tray)
    below = max((n for n in legal if n < chips), default=None)
    above = min((n for n in legal if n > chips), default=None)
    near = " or ".join(str(n) for n in (below, above) if n is not None)
    most = min(limit, MAX_DEGREE)
    shared = " and ".join(map(str, sorted(set(kv_heads))))
    rule = f"h x 2^k chips up to {most}, h dividing {'each of ' * (len(set(kv_heads)) > 1)}{shared}"
    if 0 < tray < most:
        rule += f", beyond {tray} in whole trays of {tray}"
    return UsageError(
        f"{chips} chips cannot share {shared} KV heads: expected {rule}",
        code="T120", where="--chips", hint=f"nearest legal: {near} (all: {', '.join(map(str, legal))})",
    )  # fmt: skip


def _check_heads(
    kv_heads: tuple[int, ...], chips: int, heads: tuple[int, ...], limit: int, tray: int
) -> None:
    if len(heads) != len(kv_heads):
        raise UsageError(
            f"expected head groups of {len(kv_heads)} kinds of attention, or one number for all, found {len(heads)}",
            code="T126", where="--head-groups",
        )  # fmt: skip
    if chips > limit:
        raise _illegal(kv_heads, chips, limit, tray)
    for kv, h in zip(kv_heads, heads, strict=True):
        legal = legal_heads(kv, chips, tray)
        if not legal:
            raise _illegal(kv_heads, chips, limit, tray)
        if h not in legal:
            raise UsageError(
                f"{h} head groups cannot share {kv} KV heads on {chips} chips: expected one of {', '.join(map(str, legal))}",
                code="T126", where="--head-groups", hint="leave it out for the most that are legal",
            )  # fmt: skip
