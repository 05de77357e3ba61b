"""The whole oracle: chunks against wholes, and what it must not use."""

import ast
import inspect
from pathlib import Path

import numpy as np
import pytest

from ticktrue.errors import Bug, InputError, UnsupportedModel
from ticktrue.graph import oracle as oracle_module
from ticktrue.graph.oracle import Oracle, greedy
from ticktrue.graph.oracle_fast import fast_matmul
from ticktrue.graph.oracle_matmul import ordered_matmul

F = np.float32
FORMATS = ["bf16", "f32"]


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
