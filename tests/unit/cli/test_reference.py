"""Generated pages are what the code says; help costs nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

from ticktrue.cli.main import VERBS
from ticktrue.cli.reference import document_types, help_page, help_text, schema_id, schema_pages

DOCS = Path(__file__).parents[3] / "docs"
AGAIN = "run `python -m ticktrue.cli.reference docs`"


def test_schemas_are_those_of_the_documents():
    pages = schema_pages()
    written = {p.name: p.read_text(encoding="utf-8") for p in (DOCS / "reference" / "schemas").glob("*.json")}
    assert written == pages, AGAIN


def test_each_document_has_a_schema_of_its_own():
    ids = [schema_id(t) for t in document_types()]
    assert len(set(ids)) == len(ids)
    assert all(i.startswith("ticktrue/") and i.endswith("/v1") for i in ids)


def test_help_page_is_up_to_date():
    assert (DOCS / "help.md").read_text(encoding="utf-8") == help_page(), AGAIN


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_each_verb_has_an_example(words):
    assert f"Example: ticktrue {' '.join(words)}" in help_text(words)


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from ticktrue.cli.main import status_of; status = status_of(['--help']);"
        "heavy = {'numpy', 'numba', 'gguf', 'tokenizers', 'safetensors', 'jinja2', 'huggingface_hub'} & set(sys.modules);"
        "assert not heavy, heavy; sys.exit(status)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "Answer a prompt" in ran.stdout
