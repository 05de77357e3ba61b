"""The program cache believes nothing that does not carry its proof."""

from pathlib import Path

import pytest

from ticktrue.cli import prove

RUN = ("abc", "--raw", "--max-tokens", "2", "--chips", "2", "--json")


@pytest.fixture
def fresh(cli, model, monkeypatch, tmp_path):
    """A run with its own cache: the document, and the directory of programs."""
    monkeypatch.setenv("TICKTRUE_CACHE", str(tmp_path / "own"))
    document = cli("run", *RUN, "--model", model).document
    assert not any(p["cached"] for p in document["proofs"])
    return document, tmp_path / "own" / "programs"


def proofs(cli, model):
    return [p["cached"] for p in cli("run", *RUN, "--model", model).document["proofs"]]


def test_taken_from_the_cache_without_compiling_or_verifying(cli, model, fresh, monkeypatch):
    def refuse(*_: object) -> None:
        raise AssertionError("made again")

    monkeypatch.setattr(prove, "compile_timetable", refuse)
    monkeypatch.setattr(prove, "verify", refuse)
    monkeypatch.setattr(prove, "rows_digest", refuse)
    again = cli("run", *RUN, "--model", model).document
    assert all(p["cached"] for p in again["proofs"])
    assert again["program_sha256"] == fresh[0]["program_sha256"]


@pytest.mark.parametrize("pattern", ["*.ticktrue", "*.json"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d[:-1],
        lambda _: b"",
        lambda d: d[: len(d) // 2] + bytes([d[len(d) // 2] ^ 1]) + d[len(d) // 2 + 1 :],
    ],
    ids=["cut", "empty", "flipped"],
)
def test_a_damaged_entry_is_made_again(cli, model, fresh, pattern, damage):
    for path in fresh[1].glob(pattern):
        path.write_bytes(damage(path.read_bytes()))
    assert not any(proofs(cli, model))
    assert all(proofs(cli, model))


def test_a_verdict_of_another_program_is_not_believed(cli, model, fresh):
    for path in fresh[1].glob("*.json"):
        path.write_bytes(path.read_bytes().replace(b'"sha256":"', b'"sha256":"0'))
    assert not any(proofs(cli, model))


@pytest.mark.usefixtures("fresh")
def test_other_options_and_other_makers_have_other_entries(cli, model, monkeypatch):
    other = cli("run", *RUN, "--max-model-len", "200", "--model", model).document
    assert not any(p["cached"] for p in other["proofs"])
    monkeypatch.setattr("ticktrue.cli.cache.makers_digest", lambda: "other sources")
    assert not any(proofs(cli, model))


def test_no_cache_neither_reads_nor_writes(cli, model, fresh):
    before = sorted(p.name for p in fresh[1].iterdir())
    document = cli("run", *RUN, "--no-cache", "--max-model-len", "100", "--model", model).document
    assert not any(p["cached"] for p in document["proofs"])
    assert sorted(p.name for p in fresh[1].iterdir()) == before


def test_a_cache_that_cannot_be_written_is_only_a_note(cli, model, monkeypatch, tmp_path: Path):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("ticktrue.cli.prove.program_cache", lambda: tmp_path / "file")
    ran = cli("run", *RUN[:-1], "--model", model)
    assert ran.status == 0
    assert "cannot keep the program" in ran.err
