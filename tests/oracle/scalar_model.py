"""The page docs/numerics.md on np.float32 scalars: lists, loops, one operation at a time. For the smallest models.

A second reading of every row, apart from exp and tanh (which have scalar tests of their own) and the RoPE table.
e4m3 is looked up among all its values; row 8 sums Python integers.
"""

from bisect import bisect_left

import numpy as np

from ticktrue.graph.oracle_math import exp, tanh
from ticktrue.graph.oracle_rope import inverse_frequencies, rope_tables
from ticktrue.model import Activation

F = np.float32
ZERO, ONE = F(0), F(1)


def e4m3_values():
    """The 127 values of sign 0, by their bits: bias 7, three mantissa bits, no infinity."""
    values = [2.0**-9 * m for m in range(8)]
    values += [2.0 ** (e - 7) * (1 + m / 8) for e in range(1, 16) for m in range(8)]
    return values[:-1]


E4M3 = e4m3_values()


def e4m3(x):
    """The nearest value in the table; of two equally near ones that with an even last bit; ±448 beyond."""
    size = min(abs(float(x)), E4M3[-1])
    above = bisect_left(E4M3, size)
    candidates = [i for i in (above - 1, above) if 0 <= i < len(E4M3)]
    best = min(candidates, key=lambda i: (abs(E4M3[i] - size), i % 2))
    return F(np.copysign(E4M3[best], x))


def one(function, x):
    return function(np.array([x], F))[0]


def bf16(x):
    u = int(np.asarray(x, F).view(np.uint32))
    return np.uint32(((u + 0x7FFF + ((u >> 16) & 1)) >> 16) << 16).view(F)


def combine(x, y):
    if x is None or y is None:
        return y if x is None else x
    (m1, l1, o1), (m2, l2, o2) = x, y
    m = max(m1, m2)
    a1, a2 = one(exp, m1 - m), one(exp, m2 - m)
    return m, (l1 * a1) + (l2 * a2), [(p * a1) + (q * a2) for p, q in zip(o1, o2, strict=True)]


class Scalar:
    """One model in one format; `step` is one token at the next position."""

    def __init__(self, spec, weights, fmt, cache_scales=None):
        self.spec, self.w, self.fmt, self.cache_scales = spec, weights, fmt, cache_scales
        self.tile = 80 if fmt == "f32" else 160
        self.k = [[] for _ in range(spec.layers)]
        self.v = [[] for _ in range(spec.layers)]
        self.matrices = {}

    def round(self, x):
        return x if self.fmt == "f32" else bf16(x)

    def has(self, name):
        return name in self.w.tensors

    def bits(self, name):
        return (self.w.tensor(name).astype(np.uint32) << 16).view(F)

    def dot(self, x, w):
        """Row 7."""
        acc = ZERO
        for start in range(0, len(x), self.tile):
            t = ZERO
            for a, b in zip(x[start : start + self.tile], w[start : start + self.tile], strict=True):
                t = t + a * b
            acc = acc + t
        return acc

    def quantised(self, name):
        """Row 2: a list of (q of the row, s) for each output."""
        if name not in self.matrices:
            rows = []
            for row in self.w.values(name):
                s = F(max(abs(row))) / F(127 if self.fmt == "int8" else 448)
                s = ONE if s == 0 else s
                whole = [round(float(w / s)) for w in row]
                clamped = [max(-127, min(127, q)) for q in whole]
                rows.append((clamped if self.fmt == "int8" else [e4m3(w / s) for w in row], s))
            self.matrices[name] = rows
        return self.matrices[name]

    def quantised_tile(self, tile):
        """Row 6."""
        a = max(abs(x) for x in tile)
        if a == 0:
            s = ONE
        elif self.fmt == "int8":
            s = a / F(127)
        else:
            s = next(F(2.0**e) for e in range(-126, 128) if float(a) <= 448 * 2.0**e)
        if self.fmt == "int8":
            return [round(float(x / s)) for x in tile], s
        return [e4m3(x / s) for x in tile], s

    def product(self, x, name, rows=slice(None)):
        """Rows 6 to 10."""
        if self.fmt in ("bf16", "f32"):
            acc = [self.dot(x, w) for w in self.bits(name)[rows]]
        else:
            tiles = [self.quantised_tile(x[at : at + 320]) for at in range(0, len(x), 320)]
            acc = []
            for w, s_w in self.quantised(name)[rows]:
                total = ZERO
                for i, (q, s_x) in enumerate(tiles):
                    t = 0 if self.fmt == "int8" else ZERO
                    for a, b in zip(q, w[320 * i : 320 * i + 320], strict=True):
                        t = t + a * b
                    total = total + (F(t) * s_x)
                acc.append(total * s_w)
        if self.has(name + "_bias"):
            acc = [a + b for a, b in zip(acc, self.w.tensor(name + "_bias"), strict=True)]
        return acc

    def norm(self, x, gain=None):
        """Row 5 without the last rounding."""
        s = [ZERO] * 320
        for i, value in enumerate(x):
            s[i % 320] = s[i % 320] + value * value
        for h in (256, 128, 64, 32, 16, 8, 4, 2, 1):
            for i in range(min(h, 320 - h)):
                s[i] = s[i] + s[i + h]
        r = ONE / np.sqrt(s[0] / F(len(x)) + F(self.spec.rms_eps))
        if gain is None:
            return [value * r for value in x]
        return [(value * r) * g for value, g in zip(x, gain, strict=True)]

    def rounded_norm(self, x, name):
        return [self.round(y) for y in self.norm(x, self.w.tensor(name))]

    def heads(self, values, layer):
        d = self.spec.attention(layer).head_dim
        return [values[i : i + d] for i in range(0, len(values), d)]

    def turned(self, head, layer, position):
        """Row 12."""
        half = len(head) // 2
        tables = rope_tables(inverse_frequencies(self.spec.attention(layer)), np.array([position], np.int64))
        c, s = tables.cos[0], tables.sin[0]
        x1, x2 = head[:half], head[half:]
        first = [(x1[i] * c[i]) - (x2[i] * s[i]) for i in range(half)]
        second = [(x2[i] * c[i]) + (x1[i] * s[i]) for i in range(half)]
        return [self.round(value) for value in first + second]

    def stored(self, heads, name):
        """Row 13."""
        if self.cache_scales is None:
            return heads
        scales = self.cache_scales.get(name, [ONE] * len(heads))
        return [[e4m3(x / s) * s for x in head] for head, s in zip(heads, scales, strict=True)]

    def cap(self, x, cap):
        return F(cap) * one(tanh, x / F(cap)) if cap else x

    def attention(self, q, layer, head):
        """Rows 14 to 20."""
        at = self.spec.attention(layer)
        keys, values = ([row[head // at.group] for row in cache[layer]] for cache in (self.k, self.v))
        t = len(keys) - 1
        oldest = max(0, t - at.window + 1) if at.window else 0
        lanes = [None] * 256
        for block in range(t // 64 + 1):
            visible = [i for i in range(64 * block, 64 * block + 64) if oldest <= i <= t]
            if not visible:
                continue
            s = [self.cap(self.dot(q, keys[i]) * F(at.scale), self.spec.score_softcap) for i in visible]
            m = max(s)
            p = [self.round(one(exp, score - m)) for score in s]
            l, o = ZERO, [ZERO] * len(q)
            for weight, i in zip(p, visible, strict=True):
                l = l + weight
                o = [a + weight * b for a, b in zip(o, values[i], strict=True)]
            lanes[block % 256] = combine(lanes[block % 256], (m, l, o))
        for h in (128, 64, 32, 16, 8, 4, 2, 1):
            for j in range(h):
                lanes[j] = combine(lanes[j], lanes[j + h])
        if self.spec.sinks:
            sink = self.w.tensor(f"layers.{layer}.sinks")[head]
            lanes[0] = combine(lanes[0], (sink, ONE, [ZERO] * len(q)))
        _, l, o = lanes[0]
        return [self.round(value / l) for value in o]

    def gated(self, h, names, rows=(slice(None),) * 3):
        """Rows 7 to 10 and 21."""
        gate, up = (self.product(h, name, at) for name, at in zip(names[:2], rows[:2], strict=True))
        return self.product(
            [self.round(self.gate(g, u)) for g, u in zip(gate, up, strict=True)], names[2], rows[2]
        )

    def gate(self, g, u):
        if self.spec.activation is Activation.SILU:
            return (g * (ONE / (ONE + one(exp, -g)))) * u
        inner = F(float.fromhex("0x1.988454p-1")) * (g + (F(float.fromhex("0x1.6e4e26p-5")) * ((g * g) * g)))
        return ((F(0.5) * g) * (ONE + one(tanh, inner))) * u

    def feed_forward(self, h, layer):
        """Rows 21, 27 and 28."""
        at, experts = f"layers.{layer}.", self.spec.experts
        if not self.has(at + "router"):
            return self.gated(h, [at + part for part in ("gate", "up", "down")])
        logits = [self.dot(h, w) for w in self.bits(at + "router")]
        ids = sorted(range(experts.count), key=lambda e: (-logits[e], e))[: experts.per_token]
        e = [one(exp, logits[i] - logits[ids[0]]) for i in ids]
        total = ZERO
        for value in e:
            total = total + value
        acc = [ZERO] * self.spec.hidden
        for i, value in zip(ids, e, strict=True):
            inner = slice(i * experts.ffn, (i + 1) * experts.ffn)
            outer = slice(i * self.spec.hidden, (i + 1) * self.spec.hidden)
            names = [at + "experts." + part for part in ("gate", "up", "down")]
            y = self.gated(h, names, (inner, inner, outer))
            acc = [a + (value / total) * b for a, b in zip(acc, y, strict=True)]
        return acc

    def added(self, x, y, post_norm):
        """Rows 4 and 5b."""
        y = [self.round(value) for value in y]
        if self.spec.post_norms:
            y = self.rounded_norm(y, post_norm)
        return [a + b for a, b in zip(x, y, strict=True)]

    def project(self, h, layer, position):
        """Appends k and v; the query heads."""
        at = f"layers.{layer}."
        q, k = (self.heads(self.product(h, at + part), layer) for part in ("q", "k"))
        v = self.heads(self.product(h, at + "v"), layer) if self.has(at + "v") else k
        if self.spec.v_norm:
            v = [self.norm(head) for head in v]
        if self.spec.qk_norm:
            q, k = (
                [self.norm(head, self.w.tensor(at + name)) for head in part]
                for part, name in ((q, "q_norm"), (k, "k_norm"))
            )
        k = [self.turned(head, layer, position) for head in k]
        self.k[layer].append(self.stored(k, at + "k"))
        self.v[layer].append(self.stored([[self.round(value) for value in head] for head in v], at + "v"))
        return [self.turned(head, layer, position) for head in q]

    def step(self, token):
        """Logits after `token` at the next position."""
        spec, position = self.spec, len(self.k[0])
        x = [value * F(spec.embed_scale) for value in self.bits("embed")[token]]
        for layer in range(spec.layers):
            at = f"layers.{layer}."
            q = self.project(self.rounded_norm(x, at + "attn_norm"), layer, position)
            joined = [value for i, head in enumerate(q) for value in self.attention(head, layer, i)]
            x = self.added(x, self.product(joined, at + "o"), at + "post_attn_norm")
            h = self.rounded_norm(x, at + "ffn_norm")
            x = self.added(x, self.feed_forward(h, layer), at + "post_ffn_norm")
            if spec.layer_scalar:
                x = [value * self.w.tensor(at + "layer_scalar")[0] for value in x]
        logits = self.product(self.rounded_norm(x, "final_norm"), "lm_head")
        return [self.cap(value, spec.final_softcap) for value in logits]
