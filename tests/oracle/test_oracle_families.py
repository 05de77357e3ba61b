"""Every family and every format against scalar Python; chunks, products and planted mistakes on each."""

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.oracle.scalar_model import Scalar

from ticktrue.errors import UnsupportedModel
from ticktrue.graph.oracle import Cache, Oracle
from ticktrue.graph.oracle_fast import fast_matmul
from ticktrue.model import Activation, Experts, Family, LayerKind, SlidingAttention, YarnScaling

F = np.float32
FORMATS = ["bf16", "f32", "int8", "fp8"]
KINDS = (LayerKind.SLIDING, LayerKind.FULL)
GEMMA = {
    "activation": Activation.GELU_TANH,
    "qk_norm": True,
    "post_norms": True,
    "layer_kinds": KINDS,
    "tied_embeddings": True,
}
FAMILIES = {
    "llama": {"family": Family.LLAMA},
    "qwen2": {"family": Family.QWEN2, "attention_bias": True},
    "qwen3": {"family": Family.QWEN3, "qk_norm": True},
    "gemma3": GEMMA
    | {
        "family": Family.GEMMA3,
        "query_scale": 9**-0.5,
        "sliding": SlidingAttention(window=5, kv_heads=1, head_dim=4, rope_theta=100.0),
    },
    "gemma4": GEMMA
    | {
        "family": Family.GEMMA4,
        "head_dim": 8,
        "kv_heads": 1,
        "v_norm": True,
        "k_is_v": True,
        "rotary_fraction": 0.25,
        "query_scale": 1.0,
        "layer_scalar": True,
        "final_softcap": 2.0,
        "sliding": SlidingAttention(window=7, kv_heads=2, head_dim=4, rope_theta=100.0),
    },
    "qwen3_moe": {"family": Family.QWEN3_MOE, "qk_norm": True, "experts": Experts(5, 3, 6)},
    "score softcap, sinks, bias of o": {
        "family": Family.GPT_OSS,
        "attention_bias": True,
        "output_bias": True,
        "sinks": True,
        "score_softcap": 1.5,
        "layer_kinds": KINDS,
        "sliding": SlidingAttention(window=3, kv_heads=1, head_dim=6, rope_theta=100.0),
    },
    "v norm beside a v projection": {"family": Family.GEMMA4, "v_norm": True},
}
SMALL = {"hidden": 10, "heads": 2, "kv_heads": 1, "head_dim": 4, "ffn": 6, "vocab": 5}


@pytest.fixture(params=FAMILIES)
def small(request, random_model):
    """(spec, weights) of a two-layer model of each family."""
    return make(request.param, random_model)


def make(name, random_model, **shape):
    changes = SMALL | shape | FAMILIES[name]
    if "embed_scale" not in changes and "gemma" in name:
        changes["embed_scale"] = math.sqrt(changes["hidden"])
    return random_model(len(name), **changes)


def same_as_scalar(oracle, scalar, ids, equal_bits):
    logits = [scalar.step(token) for token in ids]
    result = oracle.forward(ids)
    assert equal_bits(result.logits, np.array(logits, F))
    for layer in range(scalar.spec.layers):
        assert equal_bits(result.k[layer], np.array(scalar.k[layer], F))
        assert equal_bits(result.v[layer], np.array(scalar.v[layer], F))


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_family_past_one_block_is_the_scalar_model(fmt, small, tokens, equal_bits):
    """68 positions: windows that end in the block before, in this one, and inside none."""
    spec, weights = small
    same_as_scalar(Oracle(spec, weights, fmt), Scalar(spec, weights, fmt), tokens(68, spec.vocab), equal_bits)


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("name", ["llama", "qwen3_moe"])
def test_products_past_one_tile_are_the_scalar_model(fmt, name, random_model, tokens, equal_bits):
    """330 values are three tiles of 160, five of 80, and two of 320 with a scale each."""
    experts = {"experts": Experts(2, 2, 326)} if name == "qwen3_moe" else {}
    wide = {"hidden": 330, "layers": 1, "ffn": 326}
    spec, weights = random_model(3, **(SMALL | FAMILIES[name] | wide | experts))
    same_as_scalar(Oracle(spec, weights, fmt), Scalar(spec, weights, fmt), tokens(2, spec.vocab), equal_bits)


@pytest.mark.parametrize("fmt", ["bf16", "int8", "fp8"])
@pytest.mark.parametrize("name", ["llama", "gemma4"])
def test_an_e4m3_cache_is_the_scalar_cache(fmt, name, random_model, tokens, equal_bits):
    spec, weights = make(name, random_model)
    heads = [spec.attention(layer).kv_heads for layer in range(2)]
    scales = {
        "layers.0.k": np.array([2.0**8, 4.0][: heads[0]], F),  # steps of 0.5 and more
        "layers.1.v": np.array([2.0**-8] * heads[1], F),  # saturates at 1.75
    }
    oracle = Oracle(spec, weights, fmt, cache=Cache("e4m3", scales))
    same_as_scalar(oracle, Scalar(spec, weights, fmt, scales), tokens(66, spec.vocab), equal_bits)
    ids = tokens(9, spec.vocab)
    plain = Oracle(spec, weights, fmt).forward(ids).logits
    one = Oracle(spec, weights, fmt, cache=Cache("e4m3")).forward(ids).logits
    assert not equal_bits(plain, one)
    assert not equal_bits(oracle.forward(ids).logits, one)


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_chunks_change_no_bit_of_any_family(fmt, chunk, small, tokens, equal_bits):
    spec, weights = small
    cache = Cache("e4m3") if fmt == "fp8" else None
    oracle, ids = Oracle(spec, weights, fmt, cache=cache), tokens(131, spec.vocab)
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


@pytest.mark.parametrize(("name", "fmt"), [("gemma4", "int8"), ("qwen3_moe", "fp8"), ("gemma3", "f32")])
def test_no_split_changes_a_bit(name, fmt, random_model, tokens, equal_bits):
    """Every place to cut 70 tokens in two, and ragged chunks of up to 40."""
    spec, weights = make(name, random_model)
    oracle, ids = Oracle(spec, weights, fmt), tokens(70, spec.vocab)
    whole = oracle.forward(ids).logits
    rng = np.random.default_rng(1)
    ragged = [np.cumsum(rng.integers(1, 40, 70)) for _ in range(30)]
    for cuts in [[cut] for cut in range(1, 70)] + ragged:
        state, logits = oracle.empty_state(), []
        for part in np.split(ids, [int(cut) for cut in cuts if cut < 70]):
            result = oracle.extend(state, part.tolist())
            state = result.state
            logits.append(result.logits)
        assert equal_bits(np.concatenate(logits), whole)


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("name", FAMILIES)
def test_both_products_agree_on_every_family(fmt, name, random_model, tokens, equal_bits):
    spec, weights = make(name, random_model, hidden=338, ffn=150, vocab=130, heads=6)
    ids = tokens(70, spec.vocab)
    plain = Oracle(spec, weights, fmt).forward(ids).logits
    assert equal_bits(plain, Oracle(spec, weights, fmt, fast_matmul).forward(ids).logits)


def plus_one(**changes):
    return lambda spec: replace(spec, **changes)


MISTAKES = {
    "no query scale": ("gemma3", plus_one(query_scale=0.0)),
    "window of 6": ("gemma3", lambda spec: replace(spec, sliding=replace(spec.sliding, window=6))),
    "window of 4": ("gemma3", lambda spec: replace(spec, sliding=replace(spec.sliding, window=4))),
    "theta of the full layers": (
        "gemma3",
        lambda spec: replace(spec, sliding=replace(spec.sliding, rope_theta=10_000.0)),
    ),
    "no scaled embedding": ("gemma3", plus_one(embed_scale=1.0)),
    "SiLU": ("gemma3", plus_one(activation=Activation.SILU)),
    "no post norms": ("gemma3", plus_one(post_norms=False)),
    "no q and k norms": ("gemma3", plus_one(qk_norm=False)),
    "kinds swapped": ("gemma3", plus_one(layer_kinds=KINDS[::-1])),
    "all pairs turn": ("gemma4", plus_one(rotary_fraction=1.0)),
    "no v norm": ("v norm beside a v projection", plus_one(v_norm=False)),
    "no layer scalar": ("gemma4", plus_one(layer_scalar=False)),
    "no final softcap": ("gemma4", plus_one(final_softcap=0.0)),
    "two experts": ("qwen3_moe", plus_one(experts=Experts(5, 2, 6))),
    "no score softcap": ("score softcap, sinks, bias of o", plus_one(score_softcap=0.0)),
    "no sinks": ("score softcap, sinks, bias of o", plus_one(sinks=False)),
    "no bias of o": ("score softcap, sinks, bias of o", plus_one(output_bias=False)),
    "no bias of q, k, v": ("qwen2", plus_one(attention_bias=False)),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_leaving_out_a_feature_changes_logits(mistake, random_model, tokens, equal_bits):
    name, change = MISTAKES[mistake]
    spec, weights = make(name, random_model)
    ids = tokens(9, spec.vocab)
    right = Oracle(spec, weights, "f32").forward(ids).logits
    assert not equal_bits(Oracle(change(spec), weights, "f32").forward(ids).logits, right)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"experts": Experts(4, 2, 6, shared=1)}, "shared experts"),
        ({"experts": Experts(4, 2, 6, router="sigmoid")}, "a router that is not softmax"),
        ({"experts": Experts(4, 2, 6, normalise=False)}, "router weights that are not normalised"),
        ({"gate_limit": 7.0}, "a limit in the gate"),
        ({"family": Family.GPT_OSS, "mlp_bias": True}, "biases in the feed-forward block"),
        ({"yarn": YarnScaling(4.0, 4096, 32.0, 1.0)}, "YaRN"),
    ],
)
def test_what_the_page_has_no_row_for_is_refused(changes, found, random_model):
    spec, weights = random_model(**SMALL)
    with pytest.raises(UnsupportedModel, match=found):
        Oracle(replace(spec, **changes), weights, "bf16")


@pytest.mark.parametrize(("fmt", "form"), [("f32", "e4m3"), ("bf16", "int8"), ("f32", "bf16")])
def test_a_cache_the_format_does_not_have_is_refused(fmt, form, random_model):
    spec, weights = random_model(**SMALL)
    with pytest.raises(UnsupportedModel, match=f"found '{form}'"):
        Oracle(spec, weights, fmt, cache=Cache(form))


def test_eight_bit_formats_take_unrounded_weights(random_model, tokens, equal_bits):
    """Row 2: weights are quantised from the values, not from their bf16; embedding and router stay bf16."""
    spec, weights = make("qwen3_moe", random_model)
    ids = tokens(5, spec.vocab)
    right = Oracle(spec, weights, "int8").forward(ids).logits
    rounded = {
        name: (bits.astype(np.uint32) << 16).view(F)
        for name, bits in weights.tensors.items()
        if bits.ndim == 2
    }
    assert not equal_bits(
        Oracle(spec, type(weights)(weights.tensors, rounded), "int8").forward(ids).logits, right
    )
    kept = {name: v for name, v in weights.unrounded.items() if not name.endswith(("embed", "router"))}
    assert equal_bits(Oracle(spec, type(weights)(weights.tensors, kept), "int8").forward(ids).logits, right)
