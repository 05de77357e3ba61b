"""What a reference names: a shape, a config.json, a directory, a .gguf file; nothing is fetched."""

from pathlib import Path

import pytest
from tests.models import TINY_KV3, write_gguf, write_llama

from ticktrue.errors import InputError
from ticktrue.model import load_model
from ticktrue.model.count import known_spec
from ticktrue.plan.features import State
from ticktrue.plan.opcheck import opcheck
from ticktrue.plan.reference import find_config, find_spec


def test_every_kind_of_reference(tmp_path: Path) -> None:
    directory = write_llama(tmp_path / "llama", shape=TINY_KV3)
    gguf = write_gguf(tmp_path / "llama.gguf", shape=TINY_KV3)
    spec = load_model(directory).spec
    assert find_spec(str(directory)) == find_spec(str(directory / "config.json"))
    assert find_spec(str(directory)).digest() == spec.digest()
    assert find_spec(str(gguf)).hidden == spec.hidden
    assert find_spec("kimi-k2") == known_spec("kimi-k2")
    found = opcheck(str(gguf))
    assert (found.runs, found.family) == (True, "llama")
    assert {f.state for f in found.findings} == {State.COVERED}


def test_what_names_nothing(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("{}")
    for ref in ("kimi-k9", str(tmp_path / "notes.txt"), str(tmp_path / "no.gguf"), "a" * 4_000):
        assert find_config(ref) is None
        with pytest.raises(InputError, match="no model or shape") as refusal:
            find_spec(ref)
        assert refusal.value.code == "T340"
        assert "gemma-4-31b" in refusal.value.hint


def test_a_registry_model_is_not_fetched(tmp_path: Path) -> None:
    for cache in (None, tmp_path):
        with pytest.raises(InputError, match="not in the cache yet") as refusal:
            find_spec("smollm2-135m-instruct", cache)
        assert "ticktrue model fetch" in refusal.value.hint
