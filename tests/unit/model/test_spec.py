"""ModelSpec refuses what no model can have, by field; its digest covers what shapes the numbers."""

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.models import SPEC

from ticktrue.errors import InputError, UnsupportedModel
from ticktrue.model import (
    Activation,
    Experts,
    FactorScaling,
    Family,
    LatentAttention,
    LayerKind,
    LinearScaling,
    Llama3Scaling,
    SlidingAttention,
)
from ticktrue.model.family import family_of


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("layers", 0),
        ("layers", -1),
        ("layers", 10**9),
        ("layers", 2.0),
        ("layers", True),
        ("hidden", 217),
        ("hidden", 1 << 40),
        ("heads", 10),
        ("kv_heads", 0),
        ("head_dim", 63),
        ("head_dim", 0),
        ("ffn", -5),
        ("vocab", 0),
        ("max_positions", 0),
        ("rope_theta", math.nan),
        ("rope_theta", math.inf),
        ("rope_theta", -1.0),
        ("rms_eps", 0.0),
        ("rms_eps", math.nan),
        ("rms_eps", 2.0),
        ("bos", (509,)),
        ("eos", (-1,)),
        ("rope_scaling", LinearScaling(0.0)),
        ("rope_scaling", LinearScaling(math.nan)),
        ("rope_scaling", Llama3Scaling(8.0, 4.0, 1.0, 8_192)),
        ("rope_scaling", Llama3Scaling(8.0, 1.0, 4.0, 0)),
        ("rope_scaling", FactorScaling((1.0,))),
        ("rope_scaling", FactorScaling((1.0,) * 31 + (0.0,))),
    ],
)
def test_absurd_value_is_refused_by_field(field: str, value: object) -> None:
    with pytest.raises(InputError) as refusal:
        replace(SPEC, **{field: value})
    assert refusal.value.code == "T342"
    assert refusal.value.where.split(".")[0] == field


SLIDES = SlidingAttention(window=100, kv_heads=3, head_dim=64, rope_theta=10_000.0)
BOTH = (LayerKind.SLIDING, LayerKind.FULL)
TWO = replace(SPEC, sliding=SLIDES, layer_kinds=BOTH)
EXPERTS = Experts(count=8, per_token=2, ffn=170)
LATENT = LatentAttention(q_rank=96, kv_rank=32, nope_dim=16, rope_dim=8, v_dim=16)


@pytest.mark.parametrize(
    ("changes", "where", "says"),
    [
        ({"layer_kinds": (LayerKind.FULL,)}, "layer_kinds", "2 kinds"),
        ({"layer_kinds": (*BOTH, LayerKind.FULL)}, "layer_kinds", "2 kinds"),
        ({"layer_kinds": ("full", "linear")}, "layer_kinds", "full, sliding"),
        ({"layer_kinds": BOTH, "sliding": None}, "sliding", "given"),
        ({"layer_kinds": ()}, "sliding", "absent"),
        ({"layer_kinds": (LayerKind.FULL,) * 2}, "sliding", "absent"),
        ({"sliding": replace(SLIDES, window=0)}, "sliding.window", "in 1"),
        ({"sliding": replace(SLIDES, window=-4)}, "sliding.window", "in 1"),
        ({"sliding": replace(SLIDES, window=2.0)}, "sliding.window", "an integer"),
        ({"sliding": replace(SLIDES, kv_heads=2)}, "sliding.kv_heads", "a divisor of heads = 9"),
        ({"sliding": replace(SLIDES, kv_heads=0)}, "sliding.kv_heads", "in 1"),
        ({"sliding": replace(SLIDES, head_dim=63)}, "sliding.head_dim", "even"),
        ({"sliding": replace(SLIDES, rope_theta=0.5)}, "sliding.rope_theta", "above 1"),
        ({"sliding": replace(SLIDES, rope_scaling=LinearScaling(0.0))}, "rope_scaling.factor", "above 0"),
        ({"score_softcap": -1.0}, "score_softcap", "above 0"),
        ({"final_softcap": math.nan}, "final_softcap", "finite"),
        ({"gate_limit": -7.0}, "gate_limit", "above 0"),
        ({"query_scale": -0.1}, "query_scale", "above 0"),
        ({"query_scale": 1e300}, "query_scale", "float32"),
        ({"embed_scale": 0.0}, "embed_scale", "above 0"),
        ({"embed_scale": "big"}, "embed_scale", "a number"),
        ({"rotary_fraction": 0.0}, "rotary_fraction", "above 0"),
        ({"rotary_fraction": 1.5}, "rotary_fraction", "at most 1"),
        ({"activation": "relu"}, "activation", "silu, gelu_tanh"),
        ({"k_is_v": True}, "k_is_v", "v_norm"),
        ({"family": Family.QWEN2, "attention_bias": True, "v_norm": True, "k_is_v": True}, "k_is_v", "bias"),
        ({"experts": replace(EXPERTS, count=0)}, "experts.count", "in 1"),
        ({"experts": replace(EXPERTS, per_token=9)}, "experts.per_token", "in 1..8"),
        ({"experts": replace(EXPERTS, per_token=0)}, "experts.per_token", "in 1..8"),
        ({"experts": replace(EXPERTS, ffn=0)}, "experts.ffn", "in 1"),
        ({"experts": replace(EXPERTS, shared=-1)}, "experts.shared", "in 1"),
        ({"experts": replace(EXPERTS, dense_layers=3)}, "experts.dense_layers", "in 1..2"),
        ({"experts": replace(EXPERTS, router="dice")}, "experts.router", "softmax"),
        ({"latent": replace(LATENT, kv_rank=0)}, "latent.kv_rank", "in 1"),
        ({"latent": LATENT}, "latent", "absent where layers slide"),
    ],
)
def test_absurd_part_is_refused_by_field(changes: dict[str, object], where: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as refusal:
        replace(TWO, **changes)
    assert (refusal.value.code, refusal.value.where) == ("T342", where)


def test_all_layers_full_has_one_spelling() -> None:
    spelled = replace(SPEC, layer_kinds=(LayerKind.FULL,) * 2)
    assert spelled == SPEC
    assert spelled.digest() == SPEC.digest()


def test_layers_of_two_kinds() -> None:
    spec = replace(
        TWO, rope_theta=1e6, v_norm=True, k_is_v=True, rotary_fraction=0.25, kv_heads=1, head_dim=128
    )
    local, full = spec.attention(0), spec.attention(1)
    assert (local.window, local.kv_heads, local.head_dim, local.rope_theta) == (100, 3, 64, 1e4)
    assert (local.k_is_v, local.rotary_fraction, local.scale, local.group) == (False, 1.0, 0.125, 3)
    assert (full.window, full.kv_heads, full.head_dim, full.rope_theta) == (0, 1, 128, 1e6)
    assert (full.k_is_v, full.rotary_fraction, full.group) == (True, 0.25, 9)
    assert full.scale == float(np.float32(1 / math.sqrt(128)))
    assert spec.kinds == (LayerKind.FULL, LayerKind.SLIDING)


def test_new_fields_are_part_of_the_digest() -> None:
    changes: list[dict[str, object]] = [
        {"sliding": replace(SLIDES, window=101)},
        {"sliding": replace(SLIDES, rope_scaling=LinearScaling(2.0))},
        {"layer_kinds": BOTH[::-1]},
        {"activation": Activation.GELU_TANH},
        {"qk_norm": True},
        {"v_norm": True},
        {"post_norms": True},
        {"layer_scalar": True},
        {"embed_scale": 2.0},
        {"query_scale": 1.0},
        {"score_softcap": 50.0},
        {"final_softcap": 30.0},
        {"rotary_fraction": 0.5},
        {"experts": EXPERTS},
        {"experts": replace(EXPERTS, per_token=3)},
    ]
    digests = {replace(TWO, **change).digest() for change in changes}
    assert len(digests | {TWO.digest()}) == len(changes) + 1


@pytest.mark.parametrize("field", ["attention_bias", "mlp_bias", "output_bias"])
def test_biases_are_refused(field: str) -> None:
    with pytest.raises(UnsupportedModel) as refusal:
        replace(SPEC, **{field: True})
    assert (refusal.value.code, refusal.value.where) == ("T333", field)


def test_digest_covers_what_shapes_the_numbers_and_nothing_else() -> None:
    digest = SPEC.digest()
    assert replace(SPEC, name="other", bos=(3,), eos=()).digest() == digest
    changes = {
        "layers": 3, "hidden": 220, "ffn": 348, "vocab": 510, "heads": 6, "kv_heads": 1, "head_dim": 32,
        "rope_theta": 5e5, "rms_eps": 1e-6, "max_positions": 4_096, "tied_embeddings": True,
        "rope_scaling": LinearScaling(2.0),
    }  # fmt: skip
    digests = {replace(SPEC, **{field: value}).digest() for field, value in changes.items()}
    assert len(digests | {digest}) == len(changes) + 1


def test_digest_does_not_change_between_versions() -> None:
    assert SPEC.digest() == "59c0a9b759c4c1de4c1883231a67f8028b882fee6512352a599e4814b978f09b"


def test_epsilon_is_a_float32() -> None:
    assert SPEC.rms_eps == 9.999999747378752e-06
    assert replace(SPEC, rms_eps=SPEC.rms_eps) == SPEC


@pytest.mark.parametrize("kind", ["phi3", "gemma2", "gpt-oss", "deepseek2", "mixtral", "kimi_k2"])
def test_known_family_that_does_not_run_yet_is_named(kind: str) -> None:
    with pytest.raises(UnsupportedModel, match=f"'{kind}' is known but not runnable yet") as refusal:
        family_of(kind, "config.json")
    assert refusal.value.code == "T330"


def test_unknown_family_is_named() -> None:
    with pytest.raises(UnsupportedModel, match="unknown model family 'mamba'"):
        family_of("mamba", "config.json")
