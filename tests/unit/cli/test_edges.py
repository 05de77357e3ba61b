"""What a stranger tried first: full disks, closed outputs, half numbers, blank prompts, formats the chip does not have."""

import os
import re
import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest

from ticktrue.cli.main import VERBS
from ticktrue.cli.reference import help_text
from ticktrue.program import check_writable, read_program, write_program

FULL = Path("/dev/full")


def command(*argv: str, out: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ticktrue", *argv],
        stdout=out, stderr=subprocess.PIPE, text=True, check=False, env=os.environ | environment,
    )  # type: ignore[call-overload] # fmt: skip


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_full_disk_behind_stdout_is_told_and_is_no_bug(flags: tuple[str, ...], unbuffered: str) -> None:
    with FULL.open("w") as full:
        ran = command("hw", "list", *flags, out=full, PYTHONUNBUFFERED=unbuffered)
    assert ran.returncode == 4
    assert ran.stderr.startswith("T418: cannot write the result: No space left on device")
    assert "Traceback" not in ran.stderr


def test_a_closed_stdout_is_told() -> None:
    ran = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m ticktrue hw list >&-"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 4
    assert ran.stderr.startswith("T418: standard output is closed")


@pytest.mark.parametrize("word", ["1.5", "two", "1e1", ""])
def test_half_numbers_of_chips_are_refused(cli, model, word):
    ran = cli("run", "abc", "--model", model, "--chips", word)
    assert ran.status == 2
    assert "expected a whole number, found" in ran.err


@pytest.mark.parametrize("prompt", ["", "   ", "\n\t"])
@pytest.mark.parametrize("raw", [(), ("--raw",)])
def test_a_blank_prompt_is_refused(cli, model, prompt, raw):
    ran = cli("run", prompt, "--model", model, *raw)
    assert ran.status == 3
    assert ran.err.startswith("T365: expected a prompt, found nothing but blanks")


def test_a_hypothetical_format_is_named_with_every_result_and_checked(cli, model, tmp_path):
    file = tmp_path / "h.ticktrue"
    flags = ("--model", model, "--chips", "2", "--format", "f32", "--context", "64", "--max-model-len", "64")
    made = cli("compile", *flags, "--hypothetical", "-o", str(file))
    assert made.status == 0
    results = [made, cli("verify", str(file)), cli("time", str(file)), cli("inspect", str(file))]
    assert all("HYPOTHETICAL: f32" in r.out for r in results)
    text = cli("inspect", "--text", str(file)).out
    (tmp_path / "h.txt").write_text(text.replace("hypothetical true", "hypothetical false"))
    ran = cli("verify", str(tmp_path / "h.txt"))
    assert ran.status == 1
    assert "V100: expected true, for the chip is known not to have f32" in ran.out


def test_run_keeps_the_program_it_used(cli, model, tmp_path):
    file = tmp_path / "used.ticktrue"
    ran = cli("run", "abc", "--model", model, "--chips", "2", "--max-tokens", "3", "-o", str(file), "--json")
    assert ran.status == 0
    kept = read_program(file)
    assert kept.intact
    assert kept.computed == ran.document["program_sha256"]


def test_a_program_file_is_executed_and_nothing_else_is(cli, model, tmp_path):
    file = tmp_path / "used.ticktrue"
    flags = ("run", "abc", "--model", model, "--max-tokens", "3", "--json", "--no-cache")
    first = cli(*flags, "--chips", "2", "-o", str(file))
    again = cli(*flags, "--program", str(file))
    assert again.status == 0
    assert again.document["program_sha256"] == first.document["program_sha256"]
    assert again.document["token_ids"] == first.document["token_ids"]
    assert "compiling" not in again.err


def test_a_program_file_decides_its_machine(cli, model, tmp_path):
    file = tmp_path / "used.ticktrue"
    assert (
        cli("run", "abc", "--model", model, "--chips", "2", "--max-tokens", "1", "-o", str(file)).status == 0
    )
    ran = cli("run", "abc", "--model", model, "--program", str(file), "--chips", "3")
    assert ran.status == 2
    assert ran.err.startswith("T105: --program decides")


def test_a_damaged_or_foreign_program_file_is_not_executed(cli, model, tmp_path):
    file = tmp_path / "used.ticktrue"
    assert (
        cli("run", "abc", "--model", model, "--chips", "2", "--max-tokens", "1", "-o", str(file)).status == 0
    )
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(bytes(data))
    ran = cli("run", "abc", "--model", model, "--program", str(file))
    assert ran.status == 3
    assert "T369: the program's bytes are not those that were sealed" in ran.err
    assert not ran.out


WRITES = {"compile": ("compile",), "run": ("run", "abc", "--raw")}
"""The verbs that write a file, and what they need besides."""


def test_no_other_verb_writes_a_file():
    flags = {verb: set(re.findall(r"--[a-z-]+", help_text(verb))) for verb in VERBS}
    named = {
        verb for verb, own in flags.items() if own & {"--output", "--save", "--report", "--file", "--out"}
    }
    assert named == {(verb,) for verb in WRITES}


@pytest.mark.parametrize("verb", WRITES)
@pytest.mark.parametrize("place", ["no/such/x", ".", "a file/x", "x" * 300, "nul\0x", "/proc/x"])
def test_a_file_that_cannot_be_written_is_refused_before_anything_else(cli, tmp_path, verb, place):
    """The model does not exist either, which would be told if it were looked at first."""
    (tmp_path / "a file").touch()
    ran = cli(*WRITES[verb], "--model", "no/such/model", "--output", place)
    assert ran.status == 4, ran
    assert ran.err.startswith("T416: cannot write the program: ")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a file"]


@pytest.mark.parametrize("verb", WRITES)
def test_finding_that_out_leaves_what_is_there(cli, tmp_path, verb):
    (tmp_path / "old").write_text("old")
    ran = cli(*WRITES[verb], "--model", "no/such/model", "--output", "old")
    assert ran.err.startswith("T340")
    assert [p.name for p in tmp_path.iterdir()] == ["old"]
    assert (tmp_path / "old").read_text() == "old"


def test_run_does_not_mix_the_program_with_the_answer(cli, model):
    ran = cli("run", "abc", "--model", model, "--output", "-")
    assert ran.status == 2
    assert ran.err.startswith("T104: ")
    assert "--output" in ran.err


def test_what_a_link_names_is_written_and_a_pipe_stays_one(program, tmp_path):
    found = read_program(Path(program)).program
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there/x")
    check_writable(tmp_path / "link")
    assert not (tmp_path / "there" / "x").exists()
    write_program(found, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there" / "x").read_bytes() == Path(program).read_bytes()
    os.mkfifo(tmp_path / "pipe")
    check_writable(tmp_path / "pipe")
    got: list[bytes] = []
    reader = Thread(target=lambda: got.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    write_program(found, tmp_path / "pipe")
    reader.join()
    assert got == [Path(program).read_bytes()]
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("t_max 64", "t_max 48", "expected at most 1, 2, 4, 8"),
        ("t_max 64", "t_max 0", "found 0 [x.txt, t_max]"),
        ("slots 1", "slots 0", "found 0 [x.txt, slots]"),
        ("slots 1", "slots -2", "expected 1 to 4,096"),
    ],
)
def test_a_program_for_steps_that_cannot_be_is_refused(cli, model, program, tmp_path, old, new, told):
    text = cli("inspect", "--text", program).out
    assert text.count(old) == 1
    (tmp_path / "x.txt").write_text(text.replace(old, new))
    ran = cli("run", "abc", "--raw", "--model", model, "--program", "x.txt", "--max-tokens", "2")
    assert ran.status == 3, ran
    assert ran.err.startswith("T369: no program can be so: ")
    assert told in ran.err
