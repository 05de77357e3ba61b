"""Counts of a model's traffic: exact against the model's own counts, expectations against enumeration."""

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticktrue.hw import load_gpu
from ticktrue.model.count import active_parameters, known_shapes, known_spec, kv_elements, parameters
from ticktrue.plan.demand import Steps, demand, expected_distinct, kv_read, legal_degrees, seen
from ticktrue.plan.formats import BF16
from ticktrue.plan.traffic import KvPiece, layer_kernels, traffic

RUBIN = load_gpu("rubin-nvl72")


@pytest.mark.parametrize("name", known_shapes())
def test_pieces_are_the_parameters(name: str) -> None:
    model, spec = traffic(known_spec(name)), known_spec(name)
    apart = 0 if spec.tied_embeddings else model.embedding
    assert sum(piece.elements for piece in model.pieces) + apart == parameters(spec)
    assert model.embedding == spec.vocab * spec.hidden


@pytest.mark.parametrize("name", known_shapes())
@pytest.mark.parametrize("context", [1, 127, 129, 1_000, 1_025, 100_000])
def test_cache_is_the_model_s_cache(name: str, context: int) -> None:
    spec = known_spec(name)
    need = demand(traffic(spec), RUBIN, BF16, Steps(context=context))
    block = next(block for block in need.blocks if block.name == "kv")
    assert float(block.bytes) == 2 * (kv_elements(spec, context) + kv_elements(spec, 1))


@pytest.mark.parametrize("name", known_shapes())
def test_a_single_token_reads_the_active_parameters(name: str) -> None:
    spec = known_spec(name)
    need = demand(traffic(spec), RUBIN, BF16, Steps())
    read = sum(float(block.bytes) for block in need.blocks if block.name != "kv") / 2
    rows = (
        spec.hidden if spec.tied_embeddings else spec.hidden - spec.vocab * spec.hidden
    )  # a row, not the matrix
    assert read == pytest.approx(active_parameters(spec) + rows, rel=1e-12)


@pytest.mark.parametrize(
    ("count", "per_token", "rows"), [(4, 2, 1), (4, 2, 2), (4, 1, 3), (5, 3, 2), (3, 3, 2)]
)
def test_expected_experts_by_enumeration(count: int, per_token: int, rows: int) -> None:
    choices = list(combinations(range(count), per_token))
    sizes = [len(set().union(*draw)) for draw in product(choices, repeat=rows)]
    found = float(expected_distinct(count, per_token, np.array(float(rows))))
    assert found == pytest.approx(sum(sizes) / len(sizes))


@given(window=st.integers(0, 40), cached=st.integers(0, 60), tokens=st.integers(1, 60))
def test_positions_seen_by_brute_force(window: int, cached: int, tokens: int) -> None:
    rows = [range(max(0, p + 1 - window) if window else 0, p + 1) for p in range(cached, cached + tokens)]
    context, new = np.array(float(cached + tokens)), np.array(float(tokens))
    assert float(seen(window, context, new)) == sum(len(row) for row in rows)
    assert float(kv_read(KvPiece(1, window, 1), context, new)) == len(set().union(*rows))


def test_kernels_of_a_layer() -> None:
    llama, gemma, deepseek = (known_spec(name) for name in ("llama-3.1-8b", "gemma-4-31b", "deepseek-v3"))
    assert layer_kernels(llama, 0) == 4 + 2 + 3
    assert layer_kernels(gemma, 0) == 5 + 4 + 3
    assert (layer_kernels(deepseek, 0), layer_kernels(deepseek, 3)) == (8 + 2 + 3, 8 + 2 + 7 + 3)
    assert traffic(llama).kernels == 32 * 9 + 4


def test_degrees_respect_every_kind_of_kv_head() -> None:
    gemma = traffic(known_spec("gemma-4-31b"))
    assert gemma.kv_heads == (4, 16)
    assert legal_degrees(gemma, load_gpu("h100")) == (1, 2, 4, 8)
    assert legal_degrees(gemma, RUBIN) == (1, 2, 4, 8, 16, 32)
    assert legal_degrees(gemma, load_gpu("wse-3")) == (1,)
    odd = traffic(replace(known_spec("llama-3.1-8b"), heads=12, kv_heads=3, head_dim=64))
    assert legal_degrees(odd, RUBIN) == (1, 3, 6, 12)


def test_cuts_stop_where_they_must() -> None:
    """KV heads beyond their number are copied; latent attention's cache and down-projections are on every GPU."""
    gemma, deepseek = traffic(known_spec("gemma-4-31b")), traffic(known_spec("deepseek-v3"))

    def kv(model, gpus: int) -> float:
        need = demand(model, RUBIN, BF16, Steps(gpus=gpus, context=50_000))
        return float(next(block for block in need.blocks if block.name == "kv").bytes)

    assert kv(gemma, 4) == kv(gemma, 1) / 4
    assert kv(gemma, 8) == (50 * 8_192 * 1_025) * 2 / 8 + (10 * 4_096 * 50_001) * 2 / 4
    assert kv(deepseek, 8) == kv(deepseek, 1)
    spec = known_spec("deepseek-v3")
    assert spec.latent is not None
    down = 61 * spec.hidden * (spec.latent.q_rank + spec.latent.kv_rank + spec.latent.rope_dim)
    assert (
        next(piece.elements for piece in deepseek.pieces if piece.role == "attention" and piece.limit == 1)
        == down
    )
