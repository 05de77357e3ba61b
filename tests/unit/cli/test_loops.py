"""Verbs on a program with a loop: eight layers, stored once."""

from pathlib import Path

import msgspec
import pytest
from tests.models import TINY_KV3, write_llama

from ticktrue.cli.documents import InspectDocument, RunDocument
from ticktrue.program import Program, encode, read_program, unroll, write_program
from ticktrue.program.text import from_text


@pytest.fixture
def deep(shared: Path, cli) -> tuple[str, str]:
    """(model directory, program file) of eight layers on 2 chips."""
    model, path = shared / "deep", shared / "deep.ticktrue"
    if not path.exists():
        write_llama(model, shape=TINY_KV3, max_positions=256, layers=8)
        ran = cli(
            "compile",
            str(model),
            "--chips",
            "2",
            "--context",
            "200",
            "--tokens",
            "1",
            "--quiet",
            "-o",
            str(path),
        )
        assert ran.status == 0, ran
    return str(model), str(path)


def test_compile_verify_time_and_inspect(cli, deep):
    _, path = deep
    program = read_program(Path(path)).program
    ((loop,),) = (t.loops for t in program.timetables)
    assert loop.count == 8
    assert cli("verify", path).status == 0
    assert cli("time", path).status == 0
    text = cli("inspect", path).out
    assert f"run 8 times, {loop.period:,} cycles apart" in text
    (part,) = msgspec.json.decode(cli("inspect", path, "--json").out, type=InspectDocument).timetables
    assert (part.loops[0].first, part.loops[0].last, part.loops[0].count) == (loop.first, loop.last, 8)
    assert part.loops[0].period_cycles == loop.period
    assert encode(from_text(cli("inspect", path, "--text").out)) == encode(program)


def test_every_layer_has_a_timeline(cli, deep):
    _, path = deep
    for layer in ("0", "7"):
        ran = cli("inspect", path, "--layer", layer)
        assert ran.status == 0, ran
        assert "MXM weight load" in ran.out
    assert cli("inspect", path, "--layer", "8").status == 2


def test_a_program_written_out_times_the_same_and_differs_by_its_loop(cli, deep, tmp_path):
    _, path = deep
    program = read_program(Path(path)).program
    write_program(
        Program(program.image, tuple(unroll(t) for t in program.timetables)), tmp_path / "plain.ticktrue"
    )
    assert cli("verify", "plain.ticktrue").status == 0
    cycles = [msgspec.json.decode(cli("time", p, "--json").out)["steps"] for p in (path, "plain.ticktrue")]
    assert cycles[0] == cycles[1]
    ran = cli("diff", path, "plain.ticktrue")
    assert "loop 0: only in the first" in ran.out


def test_run_answers_with_looped_timetables(cli, deep):
    model, _ = deep
    ran = cli("run", "abc", "--model", model, "--chips", "2", "--max-tokens", "3", "--json")
    assert ran.status == 0, ran.err
    assert len(msgspec.json.decode(ran.out, type=RunDocument).token_ids) > 0
