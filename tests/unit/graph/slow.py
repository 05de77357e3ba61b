"""The dataflow digest in plain Python integers, one element at a time, from docs/dataflow.md and the numerics table alone.

Nothing of the package is used but the values that describe a step. Everything is looped over in the most literal way.
"""

import hashlib
import struct
from dataclasses import dataclass
from functools import reduce

MASK64 = (1 << 64) - 1
A, B, C = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
SENTINEL, BAD, STEP = 0x5E47144E1D0FF1CE, 0xBAD, 0xD1342543DE82EF95
GATHER_NUMBER = {"TOKEN": 1, "P_DIV": 2, "P_MOD": 3, "LAST": 5, "EXPERT": 6}


def base(name):
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little") | 1


def tag(name):
    return base("op." + name)


def bits(value):
    return struct.unpack("<I", struct.pack("<f", value))[0]


def mix(a, b):
    z = (a * A + b + C) & MASK64
    z = ((z ^ (z >> 30)) * B) & MASK64
    z = ((z ^ (z >> 27)) * C) & MASK64
    return (z ^ (z >> 31)) | 1


def leaf(b, index):
    z = ((b ^ index) * A) & MASK64
    return (z ^ (z >> 32)) | 1


def product(a, b):
    if a == 0 or b == 0:
        return 0
    z = ((a ^ b) + a * b) & MASK64
    return (z ^ (z >> 29)) | 1


def add(a, b):
    if a == 0 or b == 0:
        return a or b
    return mix((a + b) & MASK64, (a ^ b) ^ B)


def select(old, new, key):
    if old == 0 and new == 0:
        return 0
    z = ((old ^ key) * B) & MASK64
    z = (((z ^ (z >> 32)) + new) * C) & MASK64
    return (z ^ (z >> 29)) | 1


def add_all(terms):
    return reduce(add, terms, 0)


def total(terms):
    return sum(terms) & MASK64


def convert(x):
    return mix(tag("CONVERT"), x) if x else 0


def scale(x, constant):
    return mix(mix(tag("SCALE"), bits(constant)), x) if x else 0


def dot(xs, ws):
    """PASS of one column: ordered sum over the k where neither is zero."""
    terms = [x * w for x, w in zip(xs, ws, strict=True) if x and w]
    if not terms:
        return 0
    acc = 0
    for term in terms:
        acc = (acc * STEP + term) & MASK64
    return mix(tag("PASS"), acc) if acc else 0


def tiled(xs, ws, tile):
    return add_all(dot(xs[k : k + tile], ws[k : k + tile]) for k in range(0, len(xs), tile))


def lane_sum(xs):
    lanes = [add_all(xs[lane::320]) for lane in range(min(320, len(xs)))]
    return mix(tag("LANE_SUM"), total(mix(s, lane) for lane, s in enumerate(lanes) if s))


def mean_rsqrt(x, size, eps):
    return mix(mix(mix(tag("MEAN_RSQRT"), bits(size)), bits(eps)), x)


def gather(name, t, elements):
    """`elements`: value of the register function -> element."""
    if len(elements) == 1:
        return next(iter(elements.values()))
    g = mix(tag("GATHER"), GATHER_NUMBER[name])
    s = total(mix(g, a) * e for a, e in elements.items())
    return mix(mix(g, 0 if name == "LAST" else t), s) if s else 0


def cmul(ca, sa, cb, sb):
    m = mix(mix(ca, cb), mix(sa, sb))
    return mix(tag("CMUL_C"), m), mix(tag("CMUL_S"), m)


def rotate(x1, x2, c, s):
    if not x1 and not x2:
        return 0, 0
    m = mix(mix(x1, x2), mix(c, s))
    return mix(tag("ROPE_1"), m), mix(tag("ROPE_2"), m)


def masked(score, position, t, bound):
    return SENTINEL if position > bound + t else mix(mix(tag("MASK"), position), mix(t + 1, score))


def largest(xs):
    seen = [mix(tag("MAX"), x) for x in xs if x != SENTINEL]
    return total(seen) if seen else SENTINEL


def exponential(s, m):
    return 0 if s == SENTINEL else mix(mix(tag("EXP"), s), m)


def combine(a, b):
    """Partials (m, [o ..., l])."""
    if a[0] == SENTINEL:
        return b
    if b[0] == SENTINEL:
        return a
    m = mix(tag("COMBINE"), (a[0] + b[0]) & MASK64)
    return m, [mix(m, (mix(a[0], x) + mix(b[0], y)) & MASK64) for x, y in zip(a[1], b[1], strict=True)]


def divide(o, length):
    return mix(mix(tag("DIVIDE"), o), length) if o else 0


def silu_mul(g, u):
    return mix(mix(tag("SILU_MUL"), g), u) if g and u else 0


def noise(columns, row):
    """NOISE of {column: element}; row = t + 1, 0 for the last valid row of several tokens."""
    return {n: mix(mix(tag("NOISE"), n + 1), mix(row, x)) for n, x in columns.items()}


def accept(chosen, slot):
    compared = total(mix(slot * len(chosen) + t + 1, c) for t, c in enumerate(chosen[:-1]))
    return mix(tag("ACCEPT"), compared) if len(chosen) > 1 else 0


def argmax(columns):
    """(lane 0, lane 1) over column -> value."""
    s = total(mix(n + 1, x) for n, x in columns.items())
    return s, mix(tag("ARGMAX"), s)


def topk(logits, k):
    """Weights, then ids, of the k ranks."""
    p = mix(mix(tag("TOPK"), k), total(mix(n + 1, x) for n, x in enumerate(logits)))
    return [mix(p, lane + 1) for lane in range(k)], [mix(p, k + lane + 1) for lane in range(k)]


@dataclass
class Slow:
    """One step of a Llama of `spec`."""

    spec: object
    kind: object
    fmt: str

    def __post_init__(self):
        self.tile = 160 if self.fmt == "bf16" else 80
        self.positions = 64 * self.kind.blocks
        self.bound = self.positions - self.kind.tokens

    def rounded(self, rows):
        return [[convert(x) for x in row] for row in rows] if self.fmt == "bf16" else rows

    def linear(self, rows, name, outputs):
        inputs = len(rows[0])
        w = [[leaf(base(name), n * inputs + k) for k in range(inputs)] for n in range(outputs)]
        return [[tiled(row, w[n], self.tile) for n in range(outputs)] for row in rows]

    def norm(self, rows, name):
        out = []
        for row in rows:
            r = mean_rsqrt(lane_sum([product(x, x) for x in row]), float(len(row)), self.spec.rms_eps)
            out.append([product(product(x, r), leaf(base(name), i)) for i, x in enumerate(row)])
        return self.rounded(out)

    def table(self, t):
        """(c | s) of token row t."""
        d = self.spec.head_dim
        places = range(t, self.bound + t + 1)
        a, b = sorted({p // 512 for p in places}), sorted({p % 512 for p in places})
        ra = [gather("P_DIV", t, {v: leaf(base("rope_a"), v * d + e) for v in a}) for e in range(d)]
        rb = [gather("P_MOD", t, {v: leaf(base("rope_b"), v * d + e) for v in b}) for e in range(d)]
        pairs = [cmul(ra[i], ra[d // 2 + i], rb[i], rb[d // 2 + i]) for i in range(d // 2)]
        return [c for c, _ in pairs] + [s for _, s in pairs]

    def turned(self, rows, tables):
        d, out = self.spec.head_dim, []
        for row, table in zip(rows, tables, strict=True):
            new = list(row)
            for h in range(0, len(row), d):
                for i in range(d // 2):
                    new[h + i], new[h + d // 2 + i] = rotate(
                        row[h + i], row[h + d // 2 + i], table[i], table[d // 2 + i]
                    )
            out.append(new)
        return self.rounded(out)

    def state(self, name, new):
        width, out = len(new[0]), []
        for p in range(self.positions):
            row = [leaf(base(name), p * width + e) for e in range(width)]
            for t, n in enumerate(new):
                if 0 <= p - t <= self.bound:
                    key = mix(mix(tag("SCATTER"), p), t + 1)
                    row = [select(old, x, key) for old, x in zip(row, n, strict=True)]
            out.append(row)
        return out

    def partial(self, q, keys, values, block, t):
        """(m, [o ..., l]) of one query row and block."""
        d = len(q)
        constant = 1 / d**0.5  # rounded once to float32, where its bits are taken (numerics row 14)
        span = range(64 * block, 64 * block + 64)
        s = [masked(scale(tiled(keys[p], q, self.tile), constant), p, t, self.bound) for p in span]
        m = largest(s)
        p = self.rounded([[exponential(x, m) for x in s]])[0]
        return m, [dot(p, [values[i][e] for i in span]) for e in range(d)] + [dot(p, [base("one")] * 64)]

    def attend(self, q, keys, values, t):
        lanes = {}
        for block in range(self.kind.blocks):
            partial = self.partial(q, keys, values, block, t)
            lane = block % 256
            lanes[lane] = combine(lanes[lane], partial) if lane in lanes else partial
        for h in (128, 64, 32, 16, 8, 4, 2, 1):
            for i in range(h):
                if i + h in lanes:
                    lanes[i] = combine(lanes[i], lanes[i + h])
        o = lanes[0][1]
        return [divide(x, o[-1]) for x in o[:-1]]

    def attention(self, q, k, v):
        spec, d, out = self.spec, self.spec.head_dim, []
        for t, row in enumerate(q):
            new = []
            for head in range(spec.heads):
                kv = head // (spec.heads // spec.kv_heads)
                at = slice(kv * d, (kv + 1) * d)
                new += self.attend(row[head * d : (head + 1) * d], [x[at] for x in k], [x[at] for x in v], t)
            out.append(new)
        return self.rounded(out)

    def layer(self, x, number, tables):
        spec, pre, d = self.spec, f"layers.{number}.", self.spec.head_dim
        h = self.norm(x, pre + "attn_norm")
        q = self.turned(self.linear(h, pre + "q", spec.heads * d), tables)
        k = self.turned(self.linear(h, pre + "k", spec.kv_heads * d), tables)
        v = self.rounded(self.linear(h, pre + "v", spec.kv_heads * d))
        keys, values = self.state(f"kv.{2 * number}", k), self.state(f"kv.{2 * number + 1}", v)
        y = self.rounded(self.linear(self.attention(q, keys, values), pre + "o", spec.hidden))
        x = [[add(a, b) for a, b in zip(*rows, strict=True)] for rows in zip(x, y, strict=True)]
        h = self.norm(x, pre + "ffn_norm")
        experts = spec.experts is not None and number >= spec.experts.dense_layers
        y = self.mixture(h, pre) if experts else self.dense(h, pre)
        x = [[add(a, b) for a, b in zip(*rows, strict=True)] for rows in zip(x, y, strict=True)]
        return x, keys, values

    def dense(self, h, pre):
        spec = self.spec
        g, u = self.linear(h, pre + "gate", spec.ffn), self.linear(h, pre + "up", spec.ffn)
        f = self.rounded(
            [[silu_mul(a, b) for a, b in zip(*rows, strict=True)] for rows in zip(g, u, strict=True)]
        )
        return self.rounded(self.linear(f, pre + "down", spec.hidden))

    def named(self, x, name, outputs, expert):
        """A row times the matrix, of a stack, that the register of hash `expert` names."""
        inputs, count = len(x), self.spec.experts.count
        out = []
        for n in range(outputs):
            rows = [
                [leaf(base(name), (e * outputs + n) * inputs + k) for k in range(inputs)]
                for e in range(count)
            ]
            w = [gather("EXPERT", expert, {e: rows[e][k] for e in range(count)}) for k in range(inputs)]
            out.append(tiled(x, w, self.tile))
        return out

    def mixture(self, h, pre):
        of, out = self.spec.experts, []
        for x, logits in zip(h, self.linear(h, pre + "router", of.count), strict=True):
            acc = [0] * self.spec.hidden
            for weight, expert in zip(*topk(logits, of.per_token), strict=True):
                g, u = (self.named(x, f"{pre}experts.{part}", of.ffn, expert) for part in ("gate", "up"))
                f = self.rounded([[silu_mul(a, b) for a, b in zip(g, u, strict=True)]])[0]
                y = self.named(f, pre + "experts.down", self.spec.hidden, expert)
                acc = [add(a, product(weight, b)) for a, b in zip(acc, y, strict=True)]
            out.append(acc)
        return self.rounded(out)

    def parts(self):
        """(name, sha256) of every part."""
        spec, tokens = self.spec, self.kind.tokens
        x = [[gather("TOKEN", t, {v: leaf(base("embed"), v * spec.hidden + j) for v in range(spec.vocab)})
              for j in range(spec.hidden)] for t in range(tokens)]  # fmt: skip
        tables = [self.table(t) for t in range(tokens)]
        state = []
        for number in range(spec.layers):
            x, keys, values = self.layer(x, number, tables)
            state += [(f"L{number}.K", keys), (f"L{number}.V", values)]
        if self.kind.logits == "last":
            x = [[gather("LAST", 0, {t: x[t][j] for t in range(tokens)}) for j in range(spec.hidden)]]
        logits = self.linear(self.norm(x, "final_norm"), "lm_head", spec.vocab)
        any_row = self.kind.logits == "last" and tokens > 1
        z = [noise(dict(enumerate(row)), 0 if any_row else t + 1) for t, row in enumerate(logits)]
        chosen = [("next_token", [[argmax(row)[1]] for row in z])] if self.kind.sampler == "chip" else []
        if chosen and self.kind.logits == "all":  # row t against the token of row t + 1, which has no value
            chosen.append(("accept", [[accept([row[0] for row in chosen[0][1]], 0)]]))
        return tuple((name, sha(rows)) for name, rows in [("logits", logits), *chosen, *state])


def sha(rows):
    return hashlib.sha256(b"".join(struct.pack("<Q", x) for row in rows for x in row)).hexdigest()
