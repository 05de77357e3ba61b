"""The pages say what is there: links lead somewhere, names in them exist, the README's two commands can be found by CI."""

import re
from pathlib import Path

import pytest

from ticktrue.hw import list_systems

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "ticktrue"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def text_of(page):
    return page.read_text(encoding="utf-8")


def source():
    return "\n".join(text_of(path) for path in sorted(SRC.rglob("*.py")))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text_of(page))
    local = [t for t in targets if not t.startswith(("http:", "https:"))]
    assert [t for t in local if not (page.parent / t).exists()] == []


@pytest.mark.parametrize(("mark", "command"), [("run", "ticktrue run"), ("tests", "pytest")])
def test_readme_has_the_two_commands(mark, command):
    blocks = re.findall(rf"^<!-- {mark} -->\n```sh\n(.+)\n```$", text_of(ROOT / "README.md"), re.MULTILINE)
    assert len(blocks) == 1
    assert blocks[0].endswith(f" && {command}")


def test_readme_lists_every_system():
    named = re.findall(
        r"`([a-z0-9-]+)`", "\n".join(re.findall(r"^\| `.+", text_of(ROOT / "README.md"), re.MULTILINE))
    )
    assert sorted(set(named)) == [s.name for s in list_systems()]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_commands_name_verbs_that_exist(page):
    verbs = set(re.findall(r"`ticktrue ([a-z]+)", text_of(page)))
    assert sorted(v for v in verbs if not (SRC / "cli" / f"{v}.py").exists()) == []


def test_structure_lists_every_folder():
    page = text_of(ROOT / "docs" / "structure.md")
    listed = set(re.findall(r"^\| `([a-z]+)` \|", page, re.MULTILINE))
    folders = {path.parent.name for path in SRC.glob("*/__init__.py")}
    assert folders <= listed
    layers = re.search(r"^`(cli > .+?)`$", page, re.MULTILINE | re.DOTALL)
    assert layers
    assert set(re.findall(r"[a-z]+", layers[1])) == folders | {"units", "cores", "errors"}


def test_glossary_names_identifiers_that_exist():
    now = text_of(ROOT / "docs" / "glossary.md").split("## Serving", maxsplit=1)[0]
    rows = [line.split("|") for line in now.splitlines() if line.startswith("|") and "*later*" not in line]
    names = {
        n for row in rows for n in re.findall(r"[A-Za-z_]\w*", " ".join(re.findall(r"`([^`]+)`", row[2])))
    }
    code = source()
    assert sorted(n for n in names if not re.search(rf"\b{n}", code)) == []
