"""Families that no program has yet: what stands for them takes what they would take."""

from dataclasses import replace

import pytest

from ticktrue.hw import load_system
from ticktrue.model import Experts, Family, LatentAttention, ModelSpec
from ticktrue.model.count import known_shapes, known_spec, parameters
from ticktrue.model.spec import YarnScaling
from ticktrue.plan.fit import Question, fit
from ticktrue.plan.standin import lacking, stand_in

# Sizes that tiles of 320 x 320 divide: nothing is padded but the router, whose 4 columns of two K tiles lie in one tile.
LATENT = ModelSpec(
    family=Family.DEEPSEEK_V3, name="tiny-mla", layers=3, hidden=640, heads=2, kv_heads=2, head_dim=640, ffn=960, vocab=640,
    rope_theta=1e4, rms_eps=1e-6, max_positions=4_096,
    experts=Experts(count=4, per_token=2, ffn=320, shared=1, router="sigmoid", dense_layers=1),
    latent=LatentAttention(q_rank=320, kv_rank=320, nope_dim=320, rope_dim=320, v_dim=320),
    yarn=YarnScaling(40.0, 4_096, 32.0, 1.0),
)  # fmt: skip


def test_latent_attention_to_the_byte() -> None:
    (row,) = fit(LATENT, Question(500, formats=("fp8",), chips=1), [load_system("groq3-lpx-tray")]).rows
    attention = 640 * 320 + 640 * 640 + 2 * 640 * 320 + 2 * 320 * 320 + 2 * 320 * 320 + 640 * 640
    dense = 3 * 640 * 960
    experts = (
        4 + 1
    ) * 3 * 640 * 320 + 160 * 320  # the router stays in bf16: four tiles of 160 rows side by side
    embed = 640 * 4 * 320  # a row: two beats of 320 bf16 lanes, two vectors each
    assert row.by_class["weight"] == 3 * attention + dense + 2 * experts + 640 * 640 + embed
    # K alone: 640 lanes of bf16 are four vectors of 160, 8 blocks of 64 positions, three layers
    assert row.by_class["state"] == 3 * 4 * 320 * 8 * 64
    assert not row.compiled
    assert "latent" in row.why[0]


@pytest.mark.parametrize(
    "name", ["gpt-oss-20b", "gpt-oss-120b", "deepseek-v3", "kimi-k2", "gpt-oss-2t-proxy"]
)
@pytest.mark.parametrize("chips", [64, 256])
def test_every_parameter_is_stored(name: str, chips: int) -> None:
    spec = known_spec(name)
    row = fit(spec, Question(1_000, formats=("fp8",), chips=chips), [load_system("groq3-lpx")]).rows[0]
    assert row.by_class["weight"] * chips >= parameters(spec) - spec.vocab * spec.hidden
    assert not row.compiled


def test_biases_and_sinks_are_stored_too() -> None:
    spec = known_spec("gpt-oss-20b")
    bare = replace(spec, sinks=False, mlp_bias=False, output_bias=False, attention_bias=False)
    whole, less = (
        fit(s, Question(1_000, formats=("bf16",), chips=64), [load_system("groq3-lpx")]).rows[0].by_class
        for s in (spec, bare)
    )
    assert whole["weight"] == less["weight"]
    # a beat of float32 lanes for each: q, k, v, o, sinks, the router, and of each of 32 experts gate, up and down
    assert whole["const"] - less["const"] == 24 * 4 * 320 * (6 + 3 * 32)


@pytest.mark.parametrize("name", known_shapes())
def test_what_can_be_compiled_stands_for_itself(name: str) -> None:
    spec = known_spec(name)
    stand = stand_in(spec)
    runs = spec.family not in {Family.GPT_OSS, Family.DEEPSEEK_V3}
    assert (stand.spec is spec, stand.why == "") == (runs, runs)
    assert lacking(spec) == stand.why
