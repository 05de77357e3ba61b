"""Masks and the combine of attention partials (numerics rows 15, 18)."""

from numba import njit

from ticktrue.kernels.functions import exp_f32
from ticktrue.kernels.lanes import SENTINEL

_F = "float32[::1]"
_I = ", int64"
SIGNATURES: dict[str, tuple[str, ...]] = {
    "mask": (f"void({_F}{_I * 12})",),
    "combine": (f"void({_F}{_I * 8})",),
}


@njit(cache=True, error_model="numpy")
def mask(pool, a, sa, o, so, n, m, lanes, tokens, first, cp, c, pos):
    """Writes the sentinel where position 64 * ((first + j) * cp + c) + i lies past pos + (lane mod tokens)."""
    for j in range(m):
        block = 64 * ((first + j) * cp + c)
        for i in range(n):
            at = (j * n + i) * sa
            to = (j * n + i) * so
            hidden = min(max(block + i - pos, 0), tokens)  # rows t < hidden do not see it
            x = pool[a + at : a + at + lanes]
            z = pool[o + to : o + to + lanes]
            for lane in range(lanes):
                z[lane] = x[lane]
            if hidden == tokens:
                for lane in range(lanes):
                    z[lane] = SENTINEL
            elif hidden > 0:
                for head in range(0, lanes, tokens):
                    for lane in range(head, min(head + hidden, lanes)):
                        z[lane] = SENTINEL


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
