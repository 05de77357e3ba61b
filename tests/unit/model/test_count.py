"""Parameters and cache elements of published models, against the figures that were published for them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.families import FAMILIES, write_family
from tests.models import SPEC

from ticktrue.errors import InputError, UnsupportedModel
from ticktrue.model import LayerKind, load_model, load_weights, read_spec
from ticktrue.model.count import active_parameters, known_shapes, known_spec, kv_elements, parameters
from ticktrue.model.weights import canonical_shapes


def test_gemma_4_31b() -> None:
    spec = known_spec("gemma-4-31b")
    assert (spec.layers, spec.hidden, spec.ffn, spec.heads, spec.vocab) == (60, 5_376, 21_504, 32, 262_144)
    assert (spec.head_dim, spec.kv_heads, spec.rope_theta, spec.rotary_fraction) == (512, 4, 1e6, 0.25)
    assert spec.sliding is not None
    assert (spec.sliding.head_dim, spec.sliding.kv_heads, spec.sliding.rope_theta) == (256, 16, 1e4)
    assert spec.sliding.window == 1_024
    assert spec.layer_kinds.count(LayerKind.SLIDING) == 50
    assert all(spec.kind(layer) == LayerKind.FULL for layer in range(5, 60, 6))
    assert (spec.k_is_v, spec.v_norm, spec.layer_scalar, spec.final_softcap) == (True, True, True, 30.0)
    assert spec.attention(0).scale == spec.attention(5).scale == 1.0
    assert parameters(spec) == active_parameters(spec) == 30_697_345_280


@pytest.mark.parametrize(
    ("context", "elements"),
    [
        (0, 0),
        (10_000, 829_030_400),
        (16_384, 1_090_519_040),
        (100_000, 4_515_430_400),
        (262_144, 11_156_848_640),
    ],
)
def test_gemma_4_31b_cache(context: int, elements: int) -> None:
    assert kv_elements(known_spec("gemma-4-31b"), context) == elements


def test_gemma_4_31b_layers_one_by_one() -> None:
    sizes: dict[str, int] = {}
    for name, shape in canonical_shapes(known_spec("gemma-4-31b")).items():
        if not name.endswith("layer_scalar"):
            owner = name.rsplit(".", 1)[0]
            sizes[owner] = sizes.get(owner, 0) + (shape[0] * shape[1] if len(shape) == 2 else shape[0])
    assert (sizes["layers.0"], sizes["layers.5"], sizes["embed"]) == (478_959_104, 534_009_856, 1_409_286_144)


@pytest.mark.parametrize(
    ("name", "exact", "cache"),
    [
        ("llama-3.1-8b", 8_030_261_248, 65_536),
        ("llama-3.1-70b", 70_553_706_496, 163_840),
        ("llama-3.3-70b", 70_553_706_496, 163_840),
        ("qwen3-32b", 32_762_123_264, 131_072),
    ],
)
def test_dense_models(name: str, exact: int, cache: int) -> None:
    spec = known_spec(name)
    assert (parameters(spec), kv_elements(spec, 1)) == (exact, cache)


@pytest.mark.parametrize(
    ("name", "billions", "active", "cache"),
    [
        ("qwen3-235b-a22b", 235.09, 22.19, 96_256),
        ("gpt-oss-120b", 116.83, 5.71, 36 * 1_024),
        ("gpt-oss-20b", 20.91, 4.19, 24 * 1_024),
        ("deepseek-v3", 671.03, 37.55, 35_136),
        ("kimi-k2", 1_026.41, 32.86, 35_136),
        # a proxy: 1.998 T, and 85.90 B active besides the input embedding of 2.47 B, as its source counts
        ("gpt-oss-2t-proxy", 1_998.34, 88.38, 48 * 4_096),
    ],
)
def test_mixtures(name: str, billions: float, active: float, cache: int) -> None:
    spec = known_spec(name)
    assert (round(parameters(spec) / 1e9, 2), round(active_parameters(spec) / 1e9, 2)) == (billions, active)
    assert kv_elements(spec, 1) == cache


def test_every_shape_is_covered_here() -> None:
    covered = {
        "gemma-4-31b",
        "llama-3.1-8b",
        "llama-3.1-70b",
        "llama-3.3-70b",
        "qwen3-32b",
        "qwen3-235b-a22b",
    }
    planned = {"gpt-oss-20b", "gpt-oss-120b", "gpt-oss-2t-proxy", "deepseek-v3", "kimi-k2"}
    assert set(known_shapes()) == covered | planned


def test_each_shape_has_its_source_on_the_page() -> None:
    import ticktrue.model

    page = (Path(ticktrue.model.__file__).parent / "configs" / "README.md").read_text(encoding="utf-8")
    assert [name for name in known_shapes() if f"`{name}.json`" not in page] == []
    assert "**not a published model**" in page


def test_the_proxy_counts_what_its_source_counts() -> None:
    spec = known_spec("gpt-oss-2t-proxy")
    assert parameters(spec) == 1_998_335_932_416
    assert active_parameters(spec) - spec.vocab * spec.hidden == 85_904_160_768


@pytest.mark.parametrize("family", FAMILIES)
def test_counts_what_a_file_holds(tmp_path: Path, family: str) -> None:
    model = load_model(write_family(tmp_path, family))
    weights = load_weights(model)
    scalars = model.spec.layers if model.spec.layer_scalar else 0
    assert parameters(model.spec) == sum(weights.tensor(name).size for name in weights.names()) - scalars


@pytest.mark.parametrize(
    ("name", "missing"),
    [("gpt-oss-20b", "sinks"), ("deepseek-v3", "latent"), ("kimi-k2", "latent")],
)
def test_planned_families_do_not_run(tmp_path: Path, name: str, missing: str) -> None:
    import ticktrue.model

    source = Path(ticktrue.model.__file__).parent / "configs" / f"{name}.json"
    (tmp_path / "config.json").write_text(source.read_text())
    assert read_spec(tmp_path / "config.json").digest() == known_spec(name).digest()
    with pytest.raises(UnsupportedModel, match=missing) as refusal:
        load_model(tmp_path)
    assert refusal.value.code == "T334"


def test_yarn_is_kept() -> None:
    yarn = known_spec("gpt-oss-120b").yarn
    assert yarn is not None
    assert (yarn.factor, yarn.original_max_positions, yarn.beta_fast, yarn.beta_slow) == (
        32.0,
        4_096,
        32.0,
        1.0,
    )


def test_unknown_shape_and_negative_context() -> None:
    with pytest.raises(InputError, match="no shape") as refusal:
        known_spec("gpt-5")
    assert refusal.value.code == "T340"
    with pytest.raises(InputError, match="-1") as refusal:
        kv_elements(SPEC, -1)
    assert refusal.value.code == "T342"


def test_cache_of_a_sliding_model_stops_growing(tmp_path: Path) -> None:
    spec = load_model(write_family(tmp_path, "mistral")).spec
    assert kv_elements(spec, 100) == kv_elements(spec, 5_000) == 2 * 2 * 2 * 64 * 100
    full = replace(spec, sliding=None, layer_kinds=())
    assert kv_elements(full, 5_000) == 2 * 2 * 2 * 64 * 5_000


def test_multimodal_file_of_another_layout_is_read_for_its_text(tmp_path: Path) -> None:
    inner = json.loads((write_family(tmp_path / "a", "gemma3") / "config.json").read_text())
    outer = {"model_type": "gemma3", "text_config": inner, "vision_config": {"hidden_size": 7}}
    (tmp_path / "config.json").write_text(json.dumps(outer))
    assert read_spec(tmp_path / "config.json").digest() == read_spec(tmp_path / "a" / "config.json").digest()
