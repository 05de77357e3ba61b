"""Hashes of a mixture of experts, from whole tensors (numerics rows 27 and 28). Compiled and not typed."""

import numba as nb
import numpy as np

from ticktrue.program.hashing import STEP, ZERO, U, add, leaf, mix, product, seal

LANES = 320


@nb.njit(cache=True)
def topk(logits, tag_k, k):
    """out[row, 2 k]: the k weights by rank, then the k ids; every one of them depends on all logits of the row."""
    out = np.empty((logits.shape[0], 2 * k), np.uint64)
    for t in range(logits.shape[0]):
        total = ZERO
        for n in range(logits.shape[1]):
            total += mix(U(n + 1), logits[t, n])
        key = mix(tag_k, total)
        for lane in range(2 * k):
            out[t, lane] = mix(key, U(lane + 1))
    return out


@nb.njit(cache=True)
def over_experts(base, shape, key_f):
    """out[N, K]: over experts first + a, a = 0, 1, .. the sum of mix(key, a) times their weight; key 0: that of one, as it is."""
    first, last, outputs, inputs = shape
    out = np.zeros((outputs, inputs), np.uint64)
    for e in range(first, last):
        key = mix(key_f, U(e - first)) if key_f != ZERO else U(1)
        for n in range(outputs):
            for k in range(inputs):
                out[n, k] += key * leaf(base, U((e * outputs + n) * inputs + k))
    return out


@nb.njit(cache=True)
def _closed(key, total):
    """What a register names, from the sum over all its values; key 0: from the only one."""
    return mix(key, total) if key != ZERO and total != ZERO else total


@nb.njit(cache=True)
def close(total, ids, key_f):
    """Row t of a sum over the values of a register, closed with its hash ids[t]."""
    for t in range(total.shape[0]):
        key = mix(key_f, ids[t])
        for n in range(total.shape[1]):
            total[t, n] = _closed(key, total[t, n])


@nb.njit(cache=True)
def _tile_of(x, sums, key, k0, end):
    """The terms k0 .. end - 1 of a product, k ascending; what is zero has no term."""
    total = ZERO
    for k in range(k0, end):
        if x[k] != ZERO and sums[k] != ZERO:
            total = total * STEP + x[k] * _closed(key, sums[k])
    return total


@nb.njit(cache=True)
def product_of(x, sums, ids, key_f, rule):
    """Row 7 of row t with the weights that the register of hash ids[t] names. rule = (tile, PASS)."""
    tile, tag_pass = rule
    rows, inputs = x.shape
    outputs = sums.shape[0]
    out = np.zeros((rows, outputs), np.uint64)
    for t in range(rows):
        key = mix(key_f, ids[t]) if key_f != ZERO else ZERO
        for n in range(outputs):
            acc = ZERO
            for k0 in range(0, inputs, tile):
                acc = add(acc, seal(tag_pass, _tile_of(x[t], sums[n], key, k0, min(k0 + tile, inputs))))
            out[t, n] = acc
    return out


@nb.njit(cache=True)
def weigh(acc, weights, y):
    """acc[t] = acc[t] + (weights[t] * y[t])."""
    for t in range(acc.shape[0]):
        for i in range(acc.shape[1]):
            acc[t, i] = add(acc[t, i], product(weights[t], y[t, i]))


@nb.njit(cache=True)
def product8_of(q, scales, sums, ids, key_f, tag_pass):
    """Rows 8 and 9 of row t with the weights that the register of hash ids[t] names, not yet times the weights' scales."""
    rows, inputs = q.shape
    outputs = sums.shape[0]
    out = np.zeros((rows, outputs), np.uint64)
    for t in range(rows):
        key = mix(key_f, ids[t]) if key_f != ZERO else ZERO
        for n in range(outputs):
            acc = ZERO
            for k0 in range(0, inputs, LANES):
                total = _tile_of(q[t], sums[n], key, k0, min(k0 + LANES, inputs))
                acc = add(acc, product(seal(tag_pass, total), scales[t, k0 // LANES]))
            out[t, n] = acc
    return out


@nb.njit(cache=True)
def times_named(y, sums, ids, key_f):
    """Row 10: y[t, n] times the scale n that the register of hash ids[t] names."""
    for t in range(y.shape[0]):
        key = mix(key_f, ids[t]) if key_f != ZERO else ZERO
        for n in range(y.shape[1]):
            y[t, n] = product(y[t, n], _closed(key, sums[n]))
