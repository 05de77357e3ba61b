"""`ticktrue run`: proofs before execution, the text alone on stdout, one document with --json."""

import hashlib
from pathlib import Path

import msgspec
import pytest

from ticktrue.cli import prove
from ticktrue.cli.documents import RejectedDocument, RunDocument
from ticktrue.execute import Machine
from ticktrue.verify import Verdict, Violation

PROMPT = ("abc", "--raw", "--max-tokens", "5", "--chips", "2")


def test_document_holds_the_answer_and_both_verdicts(cli, model):
    ran = cli("run", *PROMPT, "--model", model, "--json")
    assert ran.status == 0, ran.err
    found = msgspec.json.decode(ran.out, type=RunDocument)
    assert 1 <= len(found.token_ids) <= 5
    assert found.prompt_sha256 == hashlib.sha256(b"abc").hexdigest()
    assert all(p.rules_clean and p.dataflow_equal for p in found.proofs)
    assert found.system.chips == 2
    assert found.system.format_grade == "assumed"
    assert {f.grade for f in found.system.facts} >= {"published", "assumed"}
    assert len(found.program_sha256) == 64
    assert found.sim_prefill_cycles > 0
    assert found.command[:2] == ("ticktrue", "run")
    if found.decode is not None:
        assert found.sim_cycles_per_token == found.decode.sim_cycles
        assert found.sim_tokens_per_s == pytest.approx(1e6 / found.decode.sim_interval_us)


def test_a_second_run_is_the_same_and_takes_the_program_from_the_cache(cli, model):
    first, second = (cli("run", *PROMPT, "--model", model, "--json").document for _ in range(2))
    assert first["token_ids"] == second["token_ids"]
    assert first["program_sha256"] == second["program_sha256"]
    assert all(p["cached"] for p in second["proofs"])


def test_chips_and_cache_do_not_change_the_tokens(cli, model):
    ids = [
        cli(
            "run", "abc", "--raw", "--max-tokens", "5", "--chips", n, "--model", model, "--json", flag
        ).document["token_ids"]
        for n, flag in (("1", "--no-cache"), ("2", "--cache"), ("2", "--no-cache"))
    ]
    assert ids[0] == ids[1] == ids[2]


def test_lines_keep_simulated_and_wall_apart(cli, model):
    ran = cli("run", *PROMPT, "--model", model)
    assert ran.status == 0
    for word in (
        "program    sha256 ",
        "rules: clean",
        "dataflow:",
        "simulated tokens/s",
        "wall       this host:",
    ):
        assert word in ran.out
    simulated = next(line for line in ran.out.splitlines() if "simulated tokens/s" in line)
    assert "wall" not in simulated
    assert "reading weights" in ran.err


def test_progress_does_not_stand_in_the_text(cli, model, monkeypatch, tmp_path):
    monkeypatch.setenv("TICKTRUE_CACHE", str(tmp_path / "fresh"))
    flags = ("--raw", "--max-tokens", "80", "--chips", "2", "--model", model)
    ran = cli("run", "abc", *flags)
    document = cli("run", "abc", *flags, "--json").document
    assert ran.out.startswith(document["text"])
    assert "compiling T1.S1.B2.last.chip" in ran.err or len(document["token_ids"]) < 60


def test_quiet_prints_the_text_alone(cli, model):
    text = cli("run", *PROMPT, "--model", model, "--json").document["text"]
    ran = cli("run", *PROMPT, "--model", model, "--quiet")
    assert ran.out == text + ("" if text.endswith("\n") else "\n")
    assert ran.err == ""


def test_a_base_model_continues_the_prompt_and_says_so(cli, model):
    flags = ("--max-tokens", "2", "--chips", "2", "--model", model)
    raw, ran = cli("run", "abc", "--raw", *flags), cli("run", "abc", *flags)
    assert "no chat template" in ran.err
    assert "no chat template" not in raw.err
    assert ran.out.splitlines()[0] == raw.out.splitlines()[0]
    assert cli("run", "abc", *flags, "--quiet").err == ""


def test_one_token_has_no_decode_step(cli, model):
    ran = cli("run", "abc", "--raw", "--max-tokens", "1", "--chips", "2", "--model", model, "--json")
    assert ran.document["decode"] is None
    assert ran.document["sim_tokens_per_s"] is None
    assert len(ran.document["token_ids"]) == 1
    assert cli("run", "abc", "--raw", "--max-tokens", "1", "--chips", "2", "--model", model).status == 0


def test_the_answer_ends_where_the_context_is_full(cli, model):
    ran = cli("run", "abc", "--raw", "--max-model-len", "6", "--chips", "2", "--model", model, "--json")
    document = ran.document
    assert document["final_context"] <= 6
    if document["finish_reason"] != "stop":
        assert document["finish_reason"] == "context"


def test_prompt_from_standard_input(cli, model, monkeypatch):
    import io

    monkeypatch.setattr("sys.stdin", io.StringIO("abc"))
    assert cli("run", "-", *PROMPT[1:], "--model", model, "--json").document["prompt"] == "abc"


def test_a_longer_prompt_than_the_context_is_refused_before_anything_runs(cli, model):
    ran = cli("run", "abc " * 100, "--raw", "--max-model-len", "16", "--model", model)
    assert ran.status == 3
    assert ran.err.startswith("T365: expected a prompt of 1 to 16 tokens")
    assert ran.out == ""


@pytest.fixture
def nothing_runs(monkeypatch):
    def refuse(*_args: object) -> None:
        raise AssertionError("a program that was not proved was executed")

    monkeypatch.setattr(Machine, "step", refuse)


@pytest.mark.usefixtures("nothing_runs")
def test_a_program_that_breaks_a_rule_is_not_executed(cli, model, monkeypatch):
    broken = Verdict((Violation("V101", "twice", 0, 7, "a", "b", "here"),), 1, 1, 10, 2)
    monkeypatch.setattr(prove, "verify", lambda *_: broken)
    ran = cli("run", *PROMPT, "--model", model, "--no-cache")
    assert ran.status == 1
    assert "NOT CLEAN" in ran.out
    assert "V101: twice [here]" in ran.out
    document = cli("run", *PROMPT, "--model", model, "--no-cache", "--json")
    assert document.status == 1
    found = msgspec.json.decode(document.out, type=RejectedDocument)
    assert found.proofs[0].violations[0].code == "V101"


@pytest.mark.usefixtures("nothing_runs")
def test_a_program_of_another_expression_is_not_executed(cli, model, monkeypatch):
    monkeypatch.setattr(prove, "rows_digest", lambda *_: "another")
    ran = cli("run", *PROMPT, "--model", model, "--no-cache")
    assert ran.status == 1
    assert "V141" in ran.out


def test_nothing_is_kept_of_a_program_that_was_not_proved(cli, model, monkeypatch, tmp_path: Path):
    monkeypatch.setenv("TICKTRUE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(prove, "rows_digest", lambda *_: "another")
    assert cli("run", *PROMPT, "--model", model).status == 1
    assert not list(tmp_path.glob("cache/programs/*"))
