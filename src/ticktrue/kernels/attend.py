"""Masks and the combine of attention partials (numerics rows 15, 18)."""

from numba import njit

from ticktrue.kernels import moves
from ticktrue.kernels.functions import exp_f32
from ticktrue.kernels.lanes import SENTINEL

_F = "float32[::1]"
_I = ", int64"
SIGNATURES: dict[str, tuple[str, ...]] = {
    "mask": (f"void({_F}{_I * 14})",),
    "combine": (f"void({_F}{_I * 8})",),
}


@njit(cache=True, error_model="numpy")
def mask(pool, a, sa, o, so, n, m, lanes, tokens, first, cp, c, pos, window, ring):
    """Writes the sentinel where row t = lane mod tokens, at position pos + t, does not see the place (first + j) * cp + c, i.

    The place holds position 64 * block + i, block = (first + j) * cp + c, or in a ring the newest block with that remainder.
    """
    newest = (pos + tokens - 1) // 64
    if sa == lanes and so == lanes:
        moves.shift(pool, a, pool, o, n * m * lanes)
    else:
        for e in range(n * m):
            moves.shift(pool, a + e * sa, pool, o + e * so, lanes)
    for j in range(m):
        block = (first + j) * cp + c
        if ring > 0:
            block = newest - (newest - block) % ring
        for i in range(n):
            p = 64 * block + i
            low = min(max(p - pos, 0), tokens)  # rows t < low do not see it
            high = tokens  # nor do rows t >= high
            if window > 0:
                high = min(max(p + window - pos, low), tokens)
            if block < 0:
                high = low
            to = o + (j * n + i) * so
            if low >= high:
                moves.fill(pool, to, lanes, SENTINEL)
            elif low > 0 or high < tokens:
                for head in range(0, lanes, tokens):
                    moves.fill(pool, to + head, min(low, lanes - head), SENTINEL)
                    moves.fill(pool, to + head + high, min(tokens, lanes - head) - high, SENTINEL)


@njit(cache=True, error_model="numpy")
def combine(pool, a, sa, b, sb, o, so, events, d):
    """Partials (o, l, m) in lanes [0, d), d, d + 1: row 18; an absent side gives the other, bit for bit."""
    for e in range(events):
        x = a + e * sa
        y = b + e * sb
        z = o + e * so
        m1 = pool[x + d + 1]
        m2 = pool[y + d + 1]
        if m2 == SENTINEL:
            for c in range(d + 2):
                pool[z + c] = pool[x + c]
        elif m1 == SENTINEL:
            for c in range(d + 2):
                pool[z + c] = pool[y + c]
        else:
            top = m1 if m1 > m2 else m2
            a1 = exp_f32(m1 - top)
            a2 = exp_f32(m2 - top)
            u = pool[x : x + d + 1]
            v = pool[y : y + d + 1]
            w = pool[z : z + d + 1]
            for c in range(d + 1):
                w[c] = (u[c] * a1) + (v[c] * a2)
            pool[z + d + 1] = top
