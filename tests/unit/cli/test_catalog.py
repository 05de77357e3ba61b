"""`hw`, `model` and `explain`."""

from pathlib import Path

import msgspec
import pytest

from ticktrue.cli.documents import (
    ExplainDocument,
    ModelDocument,
    ModelsDocument,
    SystemDocument,
    SystemsDocument,
)
from ticktrue.hw import load_system
from ticktrue.verify import CODES


def test_hw_list(cli):
    ran = cli("hw", "list")
    assert ran.status == 0
    assert "groq3-lpx-tray" in ran.out
    found = msgspec.json.decode(cli("hw", "list", "--json").out, type=SystemsDocument)
    assert {"groq3-lpx-tray", "groq3-lpx-tray8", "tiny-4", "tiny-16"} <= {s.name for s in found.systems}


def test_hw_show_has_every_number_with_source_and_grade(cli):
    lines = cli("hw", "show", "groq3-lpx-tray").out.splitlines()
    for _, fact in load_system("groq3-lpx-tray").facts():
        assert any(
            fact.name in line and fact.grade in line and f"{fact.value:,}" in line for line in lines
        ), fact.name
    found = msgspec.json.decode(cli("hw", "show", "groq3-lpx-tray", "--json").out, type=SystemDocument)
    assert all(f.source and f.date for f in found.facts)


def test_model_list_and_show(cli, model):
    assert "smollm2-135m-instruct" in cli("model", "list").out
    found = msgspec.json.decode(cli("model", "list", "--json").out, type=ModelsDocument)
    assert found.models[0].runnable
    ran = cli("model", "show", model)
    assert ran.status == 0
    assert "kv_heads           3" in ran.out
    assert (
        msgspec.json.decode(cli("model", "show", model, "--json").out, type=ModelDocument).spec.hidden == 218
    )


def test_model_show_fetches_nothing(cli):
    ran = cli("model", "show", "smollm2-135m-instruct")
    assert ran.status == 3
    assert "ticktrue model fetch smollm2-135m-instruct" in ran.err
    assert cli("model", "show", "nope").status == 3


def test_model_fetch_prints_the_path(cli, monkeypatch):
    def fetched(name: str, cache: Path, progress: object) -> Path:
        progress(f"fetch {name}", 1, 2)
        return cache / "m.gguf"

    monkeypatch.setattr("ticktrue.cli.model_job.fetch", fetched)
    ran = cli("model", "fetch", "smollm2-135m-instruct")
    assert ran.status == 0
    assert ran.out.endswith("models/m.gguf\n")
    assert "fetch smollm2-135m-instruct" in ran.err
    assert cli("model", "fetch", "smollm3").status == 3


@pytest.mark.parametrize("code", sorted(CODES))
def test_explain_knows_every_violation(cli, code):
    ran = cli("explain", code.lower())
    assert ran.status == 0
    assert ran.out.startswith(f"{code}: ")
    assert (
        msgspec.json.decode(cli("explain", code, "--json").out, type=ExplainDocument).title
        == CODES[code].title
    )
