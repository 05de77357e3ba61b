"""`opcheck`: what runs is called covered, what does not is named with its place, and no file makes it fail otherwise."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.families import FAMILIES, PRESETS

from ticktrue.errors import InputError
from ticktrue.model.count import known_shapes, known_spec
from ticktrue.model.family import RUNNABLE
from ticktrue.plan.features import State, feature_table
from ticktrue.plan.opcheck import QUANTISED, opcheck


def write(directory: Path, config: object) -> str:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "config.json"
    path.write_text(json.dumps(config))
    return str(path)


def states(found) -> dict[str, State]:
    return {f.name: f.state for f in found.findings}


@pytest.mark.parametrize("family", FAMILIES)
def test_families_that_run_are_covered(tmp_path: Path, family: str) -> None:
    found = opcheck(write(tmp_path, PRESETS[family].config))
    assert (found.runs, found.state, found.why) == (True, State.COVERED, "")
    assert {f.state for f in found.findings} <= {State.COVERED, State.NO_EFFECT}
    assert {"embedding", "RMS norm", "logits and choice"} <= set(states(found))


@pytest.mark.parametrize("name", known_shapes())
def test_shipped_shapes(name: str) -> None:
    found = opcheck(name)
    runs = known_spec(name).family in RUNNABLE
    assert found.runs == runs
    assert found.state == (State.COVERED if runs else State.PLANNED)
    assert State.UNKNOWN not in states(found).values()
    assert bool([f for f in found.findings if f.state == State.PLANNED]) != runs
    assert all(f.what and f.where for f in found.findings)


def test_planned_features_are_named_with_their_place() -> None:
    oss, deepseek = states(opcheck("gpt-oss-120b")), states(opcheck("deepseek-v3"))
    for name in (
        "attention sinks",
        "clamped gate",
        "YaRN",
        "biases of router and experts",
        "swiglu_limit",
        "attention_bias",
    ):
        assert oss[name] == State.PLANNED
    for name in (
        "latent attention",
        "shared experts",
        "router, sigmoid",
        "kv_lora_rank",
        "n_group",
        "rope_scaling",
    ):
        assert deepseek[name] == State.PLANNED
    assert oss["full attention"] == deepseek["embedding"] == State.COVERED


def test_an_architecture_that_is_not_read(tmp_path: Path) -> None:
    config = {
        "model_type": "nemotron_h", "hidden_size": 4096, "ssm_state_size": 128, "mlp_hidden_act": "relu2", "norm_eps": 1e-5,
        "time_step_limit": [0.0, math.inf], "attention_bias": False, "frobnicate": 3, "use_cache": True,
        "layers_block_type": ["mamba", "attention"],
    }  # fmt: skip
    found = opcheck(write(tmp_path, config))
    assert (found.family, found.state) == ("nemotron_h", State.NOT_COVERED)
    assert found.why
    seen = states(found)
    assert seen == {
        "model_type": State.NO_EFFECT, "hidden_size": State.COVERED, "ssm_state_size": State.NOT_COVERED,
        "mlp_hidden_act": State.NOT_COVERED, "norm_eps": State.NOT_COVERED, "time_step_limit": State.NOT_COVERED,
        "frobnicate": State.UNKNOWN, "use_cache": State.NO_EFFECT, "layers_block_type": State.NOT_COVERED,
    }  # fmt: skip
    assert "scan" in next(f.where for f in found.findings if f.name == "ssm_state_size")


def test_a_field_that_the_reader_passes_over_is_not_called_covered(tmp_path: Path) -> None:
    """A Llama is read by its shape; a factor on its logits, or a field that nobody knows, changes its results."""
    llama = PRESETS["mistral"].config | {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "sliding_window": None,
    }
    assert opcheck(write(tmp_path, llama)).runs
    scaled = opcheck(write(tmp_path, llama | {"logit_scale": 0.5}))
    assert (scaled.runs, scaled.state) == (False, State.NOT_COVERED)
    assert "logit_scale" in scaled.why
    strange = opcheck(write(tmp_path, llama | {"frobnicate": True}))
    assert (strange.runs, strange.state) == (False, State.UNKNOWN)
    assert "frobnicate" in strange.why
    (tmp_path / QUANTISED).write_text("{}")
    assert not opcheck(write(tmp_path, llama)).runs


def test_images_beside_a_text_model_do_not_keep_it_from_running(tmp_path: Path) -> None:
    text = PRESETS["gemma3"].config
    found = opcheck(
        write(tmp_path, {"model_type": "gemma3", "text_config": text, "vision_config": {"hidden_size": 7}})
    )
    assert found.runs
    assert states(found)["vision_config"] == State.NOT_COVERED
    assert states(found)["text_config.sliding_window"] == State.COVERED


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"norm_topk_prob": False}, "norm_topk_prob"),
        ({"hidden_act": "relu"}, "hidden_act"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope_scaling"),
        ({"rope_parameters": {"rope_type": "default", "mrope_section": [1, 2]}}, "rope_parameters"),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "rope_parameters"),
        ({"decoder_sparse_step": 2}, "decoder_sparse_step"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"layer_types": ["full_attention", "linear_attention"]}, "layer_types"),
    ],
    ids=lambda v: v if isinstance(v, str) else json.dumps(v),
)
def test_features_that_are_lacking(tmp_path: Path, change: dict[str, object], field: str) -> None:
    found = opcheck(write(tmp_path, PRESETS["qwen3_moe"].config | change))
    assert not found.runs
    assert State.NOT_COVERED in {f.state for f in found.findings if f.name == field}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KNOWN = st.sampled_from(
    sorted({*feature_table(), "rope_scaling", "rope_parameters", "layer_types", "text_config"})
)


@settings(max_examples=150, deadline=None)
@given(config=st.dictionaries(KNOWN | st.text(max_size=10), JSON, max_size=8))
def test_any_object_gives_a_list(tmp_path_factory: pytest.TempPathFactory, config: dict[str, object]) -> None:
    found = opcheck(write(tmp_path_factory.getbasetemp() / "any", config))
    assert not found.runs  # a model that runs needs a dozen fields that agree
    assert found.why
    assert len({f.name for f in found.findings}) <= 400


@pytest.mark.parametrize("text", ["", "[1]", "{", "3", "\x00", '{"a":' * 2_000, "[" * 200_000])
def test_what_is_no_json_object_is_one_clear_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(InputError) as refusal:
        opcheck(str(path))
    assert refusal.value.code == "T341"


def test_what_is_not_there(tmp_path: Path) -> None:
    for ref, code in (
        ("no-such-model", "T340"),
        (str(tmp_path), "T341"),
        ("x" * 5_000, "T340"),
        ("smollm2-135m-instruct", "T340"),
    ):
        with pytest.raises(InputError) as refusal:
            opcheck(ref, tmp_path)
        assert refusal.value.code == code


def test_no_field_has_two_meanings() -> None:
    from importlib.resources import files

    import msgspec

    data = msgspec.toml.decode(files("ticktrue.plan").joinpath("features.toml").read_bytes())
    names = [name for field in data["field"] for name in field["names"]]
    assert sorted(set(names)) == sorted(names)
