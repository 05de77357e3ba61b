"""The whole oracle against scalar Python, chunks against wholes, and what it must not use."""

import ast
import inspect
from pathlib import Path

import numpy as np
import pytest

from ticktrue.errors import Bug, InputError, UnsupportedModel
from ticktrue.graph import oracle as oracle_module
from ticktrue.graph.oracle import Oracle, greedy
from ticktrue.graph.oracle_fast import fast_matmul
from ticktrue.graph.oracle_math import exp
from ticktrue.graph.oracle_matmul import ordered_matmul
from ticktrue.graph.oracle_rope import inverse_frequencies, rope_tables

F = np.float32
FORMATS = ["bf16", "f32"]


class Scalar:
    """The Llama of the page on np.float32 scalars: lists, loops and one operation at a time."""

    def __init__(self, spec, weights, fmt):
        self.spec, self.w, self.tile = spec, weights, 160 if fmt == "bf16" else 80
        self.rounds = fmt == "bf16"
        self.k = [[] for _ in range(spec.layers)]
        self.v = [[] for _ in range(spec.layers)]

    def round(self, x):
        if not self.rounds:
            return x
        u = int(np.asarray(x, F).view(np.uint32))
        return np.uint32(((u + 0x7FFF + ((u >> 16) & 1)) >> 16) << 16).view(F)

    def matrix(self, name):
        return (self.w.tensor(name).astype(np.uint32) << 16).view(F)

    def dot(self, x, w):
        acc = F(0)
        for start in range(0, len(x), self.tile):
            t = F(0)
            for a, b in zip(x[start : start + self.tile], w[start : start + self.tile], strict=True):
                t = t + a * b
            acc = acc + t
        return acc

    def product(self, x, name):
        return [self.dot(x, row) for row in self.matrix(name)]

    def norm(self, x, name):
        s = [F(0)] * 320
        for i, value in enumerate(x):
            s[i % 320] = s[i % 320] + value * value
        for h in (256, 128, 64, 32, 16, 8, 4, 2, 1):
            for i in range(min(h, 320 - h)):
                s[i] = s[i] + s[i + h]
        r = F(1) / np.sqrt(s[0] / F(len(x)) + F(self.spec.rms_eps))
        return [self.round((value * r) * g) for value, g in zip(x, self.w.tensor(name), strict=True)]

    def turned(self, values, position):
        half = self.spec.head_dim // 2
        tables = rope_tables(inverse_frequencies(self.spec), np.array([position], np.int64))
        c, s = tables.cos[0], tables.sin[0]
        heads = []
        for at in range(0, len(values), 2 * half):
            x1, x2 = values[at : at + half], values[at + half : at + 2 * half]
            first = [(x1[i] * c[i]) - (x2[i] * s[i]) for i in range(half)]
            second = [(x2[i] * c[i]) + (x1[i] * s[i]) for i in range(half)]
            heads.append([self.round(value) for value in first + second])
        return heads

    def attention(self, q, layer, head):
        keys, values = ([row[head] for row in cache[layer]] for cache in (self.k, self.v))
        lanes = []
        for first in range(0, len(keys), 64):
            block = keys[first : first + 64]
            scores = [self.dot(q, key) * F(self.spec.head_dim**-0.5) for key in block]
            m = max(scores)
            p = [self.round(exp(np.array([s - m], F))[0]) for s in scores]
            l, o = F(0), [F(0)] * len(q)
            for weight, value in zip(p, values[first : first + 64], strict=True):
                l = l + weight
                o = [a + weight * b for a, b in zip(o, value, strict=True)]
            lanes.append((m, l, o))
        assert len(lanes) <= 2, "enough for this test: lane 0, then lane 1"
        m, l, o = lanes[0]
        for m2, l2, o2 in lanes[1:]:
            top = max(m, m2)
            a1, a2 = (exp(np.array([x - top], F))[0] for x in (m, m2))
            l, o = (l * a1) + (l2 * a2), [(a * a1) + (b * a2) for a, b in zip(o, o2, strict=True)]
        return [self.round(value / l) for value in o]

    def step(self, token, position):
        spec, group = self.spec, self.spec.heads // self.spec.kv_heads
        x = list(self.matrix("embed")[token])
        for layer in range(spec.layers):
            at = f"layers.{layer}."
            h = self.norm(x, at + "attn_norm")
            q = self.turned(self.product(h, at + "q"), position)
            self.k[layer].append(self.turned(self.product(h, at + "k"), position))
            v = [self.round(value) for value in self.product(h, at + "v")]
            self.v[layer].append([v[i : i + spec.head_dim] for i in range(0, len(v), spec.head_dim)])
            mixed = [value for i, head in enumerate(q) for value in self.attention(head, layer, i // group)]
            x = [a + self.round(b) for a, b in zip(x, self.product(mixed, at + "o"), strict=True)]
            h = self.norm(x, at + "ffn_norm")
            gate, up = self.product(h, at + "gate"), self.product(h, at + "up")
            gated = [
                self.round((g * (F(1) / (F(1) + exp(np.array([-g], F))[0]))) * u)
                for g, u in zip(gate, up, strict=True)
            ]
            x = [a + self.round(b) for a, b in zip(x, self.product(gated, at + "down"), strict=True)]
        return self.product(self.norm(x, "final_norm"), "lm_head")


@pytest.mark.parametrize("fmt", FORMATS)
def test_forward_is_the_scalar_model(fmt, random_model, tokens, equal_bits):
    """Two layers, products past one tile, two blocks of positions: every logit and every key and value."""
    spec, weights = random_model(3, hidden=170, heads=4, kv_heads=2, head_dim=4, ffn=166, vocab=7)
    ids = tokens(66, spec.vocab)
    scalar = Scalar(spec, weights, fmt)
    logits = [scalar.step(token, position) for position, token in enumerate(ids[:3])]
    result = Oracle(spec, weights, fmt).forward(ids[:3])
    assert equal_bits(result.logits, np.array(logits, F))
    for layer in range(spec.layers):
        assert equal_bits(result.k[layer], np.array(scalar.k[layer], F))
        assert equal_bits(result.v[layer], np.array(scalar.v[layer], F))


@pytest.mark.parametrize("fmt", FORMATS)
def test_forward_past_one_block_is_the_scalar_model(fmt, random_model, tokens, equal_bits):
    spec, weights = random_model(4, hidden=10, heads=2, kv_heads=1, head_dim=4, ffn=6, vocab=5)
    ids = tokens(66, spec.vocab)
    scalar = Scalar(spec, weights, fmt)
    logits = [scalar.step(token, position) for position, token in enumerate(ids)]
    assert equal_bits(Oracle(spec, weights, fmt).forward(ids).logits, np.array(logits, F))


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_chunks_change_no_bit(fmt, chunk, random_model, tokens, equal_bits):
    spec, weights = random_model(1, ffn=100)
    oracle, ids = Oracle(spec, weights, fmt), tokens(130, spec.vocab)
    whole = oracle.forward(ids)
    state, logits = oracle.empty_state(), []
    for first in range(0, len(ids), chunk):
        result = oracle.extend(state, ids[first : first + chunk])
        state = result.state
        logits.append(result.logits)
    assert equal_bits(np.concatenate(logits), whole.logits)
    for layer in range(spec.layers):
        assert equal_bits(state.k[layer], whole.k[layer])
        assert equal_bits(state.v[layer], whole.v[layer])


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("n", [1, 63, 64, 65, 1025, 1300])
def test_both_products_and_a_last_single_step_agree(fmt, n, random_model, tokens, equal_bits):
    """Contexts of the design; 1,300 positions are 21 blocks."""
    spec, weights = random_model(2)
    plain, fast = Oracle(spec, weights, fmt), Oracle(spec, weights, fmt, fast_matmul)
    ids = tokens(n, spec.vocab)
    whole = fast.forward(ids)
    if n > 1:
        before = fast.forward(ids[:-1], logits_at=[n - 2])
        assert equal_bits(before.logits[0], whole.logits[-2])
        assert equal_bits(plain.extend(before.state, ids[-1:]).logits, whole.logits[-1:])
    if n <= 65:
        assert equal_bits(plain.forward(ids).logits, whole.logits)


def test_state_is_not_changed_by_extend(random_model, tokens, equal_bits):
    spec, weights = random_model(1)
    oracle = Oracle(spec, weights, "bf16")
    state = oracle.forward(tokens(5, spec.vocab)).state
    first, second = oracle.extend(state, [1, 2]), oracle.extend(state, [1, 2])
    assert state.positions == 5
    assert first.state.positions == 7
    assert equal_bits(first.logits, second.logits)


def test_generate_is_greedy_over_forward(random_model, tokens):
    spec, weights = random_model(6)
    oracle, prompt = Oracle(spec, weights, "bf16"), tokens(9, spec.vocab)
    answer = oracle.generate(prompt, 6)
    logits = oracle.forward(prompt + answer[:-1], logits_at=range(8, 14)).logits
    assert answer == [greedy(row) for row in logits]
    assert oracle.generate(prompt, 0) == []


def test_greedy_takes_the_lowest_index_of_equals():
    assert greedy(np.array([1, 3, 2, 3], F)) == 1
    assert greedy(np.array([-0.0, 0.0], F)) == 0


@pytest.mark.parametrize("ids", [[], [-1], [509]])
def test_bad_tokens_are_refused(ids, random_model):
    spec, weights = random_model(layers=1)
    with pytest.raises(InputError, match=r"token id in 0\.\.508"):
        Oracle(spec, weights, "bf16").forward(ids)


def test_a_position_that_is_not_new_is_refused(random_model):
    spec, weights = random_model(layers=1)
    oracle = Oracle(spec, weights, "bf16")
    with pytest.raises(InputError, match=r"positions in 2\.\.2, found \[1\]"):
        oracle.extend(oracle.forward([3, 4]).state, [5], logits_at=[1])


def test_an_unknown_format_is_refused(random_model):
    with pytest.raises(UnsupportedModel, match="found 'q4'"):
        Oracle(*random_model(layers=1), "q4")


@pytest.mark.parametrize("name", ["layers.0.q", "final_norm"])
def test_weights_in_another_type_are_a_bug(name, random_model):
    spec, weights = random_model(layers=1)
    tensors = dict(weights.tensors)
    tensors[name] = tensors[name].astype(np.float64)
    with pytest.raises(Bug, match=name):
        Oracle(spec, type(weights)(tensors), "bf16")


def test_logits_that_are_not_finite_are_an_error(random_model):
    spec, weights = random_model(layers=1)
    tensors = dict(weights.tensors)
    tensors["final_norm"] = np.full(spec.hidden, np.finfo(F).max)
    with np.errstate(all="ignore"), pytest.raises(InputError, match="logits must be finite"):
        Oracle(spec, type(weights)(tensors), "f32").forward([1])


def test_planted_wrong_orders_change_logits(random_model, tokens, equal_bits):
    """A product without tiles, and one that runs k backwards, are both seen in the logits."""
    spec, weights = random_model(2)
    ids = tokens(9, spec.vocab)
    right = Oracle(spec, weights, "bf16").forward(ids).logits

    def untiled(x, w, _tile):
        return ordered_matmul(x, w, x.shape[1])

    def backwards(x, w, tile):
        return ordered_matmul(np.ascontiguousarray(x[:, ::-1]), np.ascontiguousarray(w[::-1]), tile)

    for wrong in (untiled, backwards):
        assert not equal_bits(Oracle(spec, weights, "bf16", wrong).forward(ids).logits, right)


SOURCES = sorted(Path(inspect.getfile(oracle_module)).parent.glob("oracle*.py"))
BANNED_NAMES = {"sum", "dot", "matmul", "einsum", "exp", "log", "mean", "power", "tanh", "inner", "tensordot"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_oracle_shares_nothing_and_leaves_no_order_to_a_library(path):
    """It imports no kernel and no checker, and uses no numpy reduction, function or matrix product."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            allowed = ("ticktrue.graph.oracle", "ticktrue.model", "ticktrue.errors", "ticktrue.units")
            module = node.module or ""
            assert not module.startswith("ticktrue") or module.startswith(allowed), module
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "np":
            assert node.attr not in BANNED_NAMES, node.attr
        assert not isinstance(node, ast.MatMult)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            assert node.func.attr not in {"sum", "dot", "mean"}, ast.dump(node.func)
