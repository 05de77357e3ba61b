"""Exit statuses and how failures are told."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from ticktrue.cli import target
from ticktrue.cli.documents import ErrorDocument
from ticktrue.cli.main import Terminated


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (("rn",), "T101", 'Did you mean "run"?'),
        (("hw", "shw"), "T101", 'Did you mean "show"?'),
        (("run", "--chip", "3"), "T102", "Did you mean --chips?"),
        (("run", "a", "b"), "T102", "'b'"),
        (("run", "--chips", "many"), "T103", "many"),
        (("run", "--max-tokens", "0"), "T103", "--max-tokens"),
        (("run", "--max-tokens", "-4"), "T103", "-4"),
        (("run", "--chips", "0"), "T111", "at least 1 chip"),
        (("run", "--chips", "-1"), "T111", "-1"),
        (("run", "--max-model-len", "-1"), "T123", "-1"),
        (("run", "--system", "groq3"), "T110", "groq3-lpx-tray"),
        (("verify",), "T104", "FILE"),
        (("compile",), "T104", "--output"),
        (("explain", "V999"), "T106", "V999"),
        (("explain", "T310"), "T106", "not violations"),
        (("hw", "show", "tiny"), "T110", "tiny-4"),
    ],
)
def test_usage_errors_exit_2_and_say_where_help_is(cli, argv, code, words):
    ran = cli(*argv)
    assert ran.status == 2
    assert ran.err.startswith(f"{code}: ")
    assert words in ran.err
    assert ran.out == ""


@pytest.mark.parametrize(
    ("flags", "status", "code"),
    [
        (("--format", "q4"), 2, "T122"),
        (("--format", "f32"), 3, "T373"),
        (("--chips", "5"), 2, "T120"),
        (("--chips", "99"), 3, "T310"),
        (("--max-model-len", "99999"), 2, "T123"),
    ],
)
def test_what_cannot_be_placed_is_refused_before_weights_are_read(cli, model, flags, status, code):
    ran = cli("run", "abc", "--model", model, *flags)
    assert ran.status == status
    assert ran.err.startswith(f"{code}: ")


def test_f32_is_printed_as_hypothetical(cli, model):
    flags = ("--raw", "--max-tokens", "1", "--chips", "1", "--format", "f32", "--hypothetical")
    assert "HYPOTHETICAL" in cli("run", "a", "--model", model, *flags).out


def test_a_model_that_does_not_fit_says_what_would_do(cli, model):
    ran = cli("run", "a", "--model", model, "--system", "tiny-4", "--chips", "1", "--json")
    if ran.status:  # the tiny chip may hold it
        assert ran.document["code"] == "T310"


def test_models_that_cannot_be_used_exit_3(cli, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "cut.gguf").write_bytes(b"GGUF" + bytes(20))
    for ref in ("no-such-model", "empty", "cut.gguf"):
        ran = cli("run", "a", "--model", ref)
        assert ran.status == 3, ref
        assert ran.err.startswith("T3")


def test_truncated_weights_exit_3(cli, model, tmp_path):
    import shutil

    shutil.copytree(model, tmp_path / "cut")
    file = tmp_path / "cut" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    ran = cli("run", "a", "--raw", "--model", "cut")
    assert ran.status == 3
    assert "\nT344: tensor 'lm_head.weight' ends" in ran.err


def test_an_error_as_a_document(cli):
    ran = cli("hw", "show", "tiny", "--json")
    assert ran.status == 2
    found = msgspec.json.decode(ran.out, type=ErrorDocument)
    assert (found.code, found.exit_status) == ("T110", 2)
    assert ran.err == ""
    assert cli("verify", "--json").document["code"] == "T104"


def test_a_bug_leaves_a_report_and_exits_5(cli, monkeypatch):
    def broken(*_: object) -> None:
        raise RuntimeError("what cannot happen")

    monkeypatch.setattr(target, "look_up", broken)
    monkeypatch.setattr("ticktrue.cli.run_job.look_up", broken)
    monkeypatch.setattr("tempfile.tempdir", str(Path.cwd()))
    ran = cli("run")
    assert ran.status == 5
    assert ran.err.startswith("T500: RuntimeError: what cannot happen [")
    report = next(Path.cwd().glob("ticktrue-report-*.txt")).read_text()
    assert "what cannot happen" in report
    assert "command: ticktrue run" in report


@pytest.mark.parametrize(("what", "status"), [(KeyboardInterrupt, 130), (Terminated, 143)])
def test_signals(cli, monkeypatch, what, status):
    def stop(*_: object) -> None:
        raise what

    monkeypatch.setattr("ticktrue.cli.run_job.look_up", stop)
    before = signal.getsignal(signal.SIGTERM)
    assert cli("run").status == status
    assert signal.getsignal(signal.SIGTERM) is before


def test_no_cache_directory_is_an_environment_problem(cli, monkeypatch):
    monkeypatch.setenv("TICKTRUE_CACHE", "relative")
    ran = cli("run")
    assert ran.status == 4
    assert ran.err.startswith("T415")


def test_a_reader_that_goes_away_is_no_bug():
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "ticktrue", "hw", "list", "--quiet"]
    ran = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert ran.returncode == 141
    assert ran.stderr == b""
