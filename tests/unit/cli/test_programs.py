"""Verbs on program files: compile, verify, time, inspect, diff."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from ticktrue.cli.documents import (
    CompileDocument,
    DiffDocument,
    InspectDocument,
    TimeDocument,
    VerifyDocument,
)
from ticktrue.program import Program, program_digest, read_program, write_program
from ticktrue.program.text import from_text


def changed(program: str, path: Path, **key: object) -> str:
    """The program with fields of its key replaced, sealed again."""
    found = read_program(Path(program)).program
    image = replace(found.image, key=replace(found.image.key, **key))
    write_program(Program(image, found.timetables), path)
    return str(path)


def test_compile_says_what_was_written(cli, model, tmp_path):
    ran = cli("compile", model, "--chips", "2", "--context", "64", "-o", "a.ticktrue", "--json")
    assert ran.status == 0, ran.err
    found = msgspec.json.decode(ran.out, type=CompileDocument)
    assert found.size_bytes == (tmp_path / "a.ticktrue").stat().st_size
    assert found.program_sha256 == program_digest(read_program(tmp_path / "a.ticktrue").program)
    assert found.proofs[0].kind == "T1.S1.B1.last.chip"
    again = cli(
        "compile", "--model", model, "--chips", "2", "--context", "64", "-o", "b.ticktrue", "--no-cache"
    )
    assert again.status == 0
    assert (tmp_path / "a.ticktrue").read_bytes() == (tmp_path / "b.ticktrue").read_bytes()


def test_compile_all_logits_of_several_widths(cli, model, tmp_path):
    flags = ("--tokens", "1", "--tokens", "3", "--context", "64", "--logits", "all", "--chips", "1")
    ran = cli("compile", model, *flags, "-o", "c.ticktrue")
    assert ran.status == 0, ran
    kinds = [t.kind.label() for t in read_program(tmp_path / "c.ticktrue").program.timetables]
    assert kinds == ["T1.S1.B1.all.chip", "T4.S1.B1.all.chip"]


def test_compile_for_a_host_that_samples(cli, model, tmp_path):
    flags = ("--context", "64", "--sampler", "host", "--chips", "2", "-o", "h.ticktrue")
    assert cli("compile", model, *flags).status == 0
    (timetable,) = read_program(tmp_path / "h.ticktrue").program.timetables
    assert timetable.kind.label() == "T1.S1.B1.last.host"
    assert [o.name for o in timetable.outputs] == ["logits"]
    assert cli("verify", "h.ticktrue").status == 0
    step = cli("time", "h.ticktrue", "--json").document["steps"][0]
    assert step["sim_host_cycles"] > 0
    assert "host_round_trip_ns" in {a["name"] for a in step["assumed"]}
    drawn = cli(
        "run",
        "abc",
        "--raw",
        "--program",
        "h.ticktrue",
        "--model",
        model,
        "--top-k",
        "3",
        "--temperature",
        "1",
    )
    assert drawn.status == 0, drawn.err


@pytest.mark.parametrize(
    ("flags", "status", "code"),
    [
        (("--tokens", "65"), 2, "T103"),
        (("--tokens", "0"), 2, "T103"),
        (("--context", "0"), 2, "T103"),
        (("--context", "500"), 2, "T103"),
        (("--logits", "some"), 2, "T103"),
        (("--sampler", "me"), 2, "T103"),
        (("--chips", "5"), 2, "T120"),
        (("--max-model-len", "257"), 2, "T123"),
        (("--format", "f32"), 3, "T373"),
        (("-o", "no/such/place"), 4, "T416"),
        (("-o", "."), 4, "T416"),
        (("--json", "-o", "-"), 2, "T105"),
    ],
)
def test_compile_refuses_and_writes_nothing(cli, model, tmp_path, flags, status, code):
    output = () if "-o" in flags else ("-o", "x.ticktrue")
    ran = cli("compile", model, *flags, *output)
    assert ran.status == status
    assert code in ran.err + ran.out
    assert not list(tmp_path.glob("**/*.ticktrue"))


def test_verify_is_clean_against_the_file_and_against_the_model(cli, program, model):
    ran = cli("verify", program)
    assert ran.status == 0, ran.out
    assert ran.out.endswith("verdict    clean\n")
    ran = cli("verify", program, "--model", model, "--json")
    assert ran.status == 0
    found = msgspec.json.decode(ran.out, type=VerifyDocument)
    assert found.clean
    assert len(found.proofs) == 2


def test_verify_names_a_broken_rule(cli, program, tmp_path):
    found = read_program(Path(program)).program
    wrong = replace(found.timetables[0], duration=found.timetables[0].duration + 1)
    write_program(Program(found.image, (wrong, *found.timetables[1:])), tmp_path / "v.ticktrue")
    ran = cli("verify", "v.ticktrue")
    assert ran.status == 1
    assert "V100" in ran.out
    assert "NOT CLEAN" in ran.out
    ran = cli("verify", "v.ticktrue", "--json")
    assert ran.status == 1
    assert not msgspec.json.decode(ran.out, type=VerifyDocument).clean
    ran = cli("time", "v.ticktrue")
    assert ran.status == 3
    assert "T369" in ran.err


def test_verify_does_not_believe_a_forged_digest(cli, program, model, tmp_path):
    found = read_program(Path(program)).program
    forged = replace(found.timetables[0], dataflow="0" * 64)
    write_program(Program(found.image, (forged, *found.timetables[1:])), tmp_path / "f.ticktrue")
    ran = cli("verify", "f.ticktrue")
    assert ran.status == 1
    assert "V141" in ran.out
    assert cli("verify", "f.ticktrue", "--model", model).status == 0


def test_verify_finds_bytes_that_are_not_those_sealed(cli, program, tmp_path):
    data = Path(program).read_bytes()
    sha256 = read_program(Path(program)).stated.encode()
    (tmp_path / "s.ticktrue").write_bytes(data.replace(sha256, sha256[::-1]))
    ran = cli("verify", "s.ticktrue")
    assert ran.status == 1
    assert "V140" in ran.out
    assert "V140" in cli("inspect", "s.ticktrue").out


@pytest.mark.parametrize(
    ("key", "code"),
    [
        ({"facts": "0" * 64}, "T366"),
        ({"system": "no-such-system"}, "T366"),
        ({"system": "tiny-4"}, "T366"),
    ],
)
@pytest.mark.parametrize("verb", ["verify", "time"])
def test_a_program_for_another_machine_is_refused(cli, program, tmp_path, key, code, verb):
    ran = cli(verb, changed(program, tmp_path / "k.ticktrue", **key))
    assert ran.status == 3
    assert ran.err.startswith(code)


def test_a_program_for_more_chips_than_there_are_is_refused(cli, program, tmp_path):
    plan = read_program(Path(program)).program.image.key.plan
    for chips in (0, 99):
        ran = cli("verify", changed(program, tmp_path / "p.ticktrue", plan=replace(plan, chips=chips)))
        assert ran.status == 3
        assert ran.err.startswith("T367")


def test_verify_and_run_refuse_a_model_of_another_shape(cli, program, tmp_path):
    from tests.models import TINY_KV2, write_llama

    other = str(write_llama(tmp_path / "other", shape=TINY_KV2))
    for verb in (("verify",), ("run", "hello", "--program")):
        ran = cli(*verb, program, "--model", other)
        assert ran.status == 3
        assert ran.err.startswith("T368")
        assert "name the model" in ran.err


def test_time_lists_and_shows_one(cli, program):
    ran = cli("time", program)
    assert ran.status == 0
    assert "T1.S1.B1.last.chip" in ran.out
    assert "T1.S1.B4.last.chip" in ran.out
    one = cli("time", program, "--context", "65")
    assert one.status == 0
    assert one.out.startswith("T1.S1.B4.last.chip on 2 chips")
    assert cli("time", program, "--step", "T1.S1.B4.last.chip").out == one.out
    found = msgspec.json.decode(cli("time", program, "--json").out, type=TimeDocument)
    assert [s.kind for s in found.steps] == ["T1.S1.B1.last.chip", "T1.S1.B4.last.chip"]
    assert all(s.replay_clean for s in found.steps)


@pytest.mark.parametrize("flags", [("--context", "999"), ("--context", "0"), ("--step", "T2")])
def test_time_refuses_what_the_program_does_not_have(cli, program, flags):
    assert cli("time", program, *flags).status == 2


def test_inspect_summary_text_and_timeline(cli, program):
    ran = cli("inspect", program)
    assert ran.status == 0
    assert "weight" in ran.out
    found = msgspec.json.decode(cli("inspect", program, "--json").out, type=InspectDocument)
    assert found.intact
    assert len(found.timetables) == 2
    text = cli("inspect", program, "--text").out
    assert program_digest(from_text(text)) == found.program_sha256
    layer = cli("inspect", program, "--layer", "1", "--step", "T1.S1.B1.last.chip")
    assert layer.status == 0
    assert "MXM" in layer.out
    assert cli("inspect", program, "--layer", "1").status == 2
    assert cli("inspect", program, "--layer", "9", "--step", "T1.S1.B1.last.chip").status == 2
    assert cli("inspect", program, "--text", "--json").status == 2


def test_diff_of_a_program_with_its_own_text_and_with_another(cli, program, tmp_path):
    (tmp_path / "p.txt").write_text(cli("inspect", program, "--text").out)
    assert cli("diff", program, "p.txt").status == 0
    other = changed(program, tmp_path / "o.ticktrue", max_context=99)
    ran = cli("diff", program, other)
    assert ran.status == 1
    assert "key max_context: 256 -> 99" in ran.out
    found = msgspec.json.decode(cli("diff", program, other, "--json").out, type=DiffDocument)
    assert not found.equal
    assert len(found.differences) == 1


@pytest.mark.parametrize("verb", ["verify", "time", "inspect"])
@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "T350"),
        (b"GGUF" + bytes(60), "T350"),
        (b"ticktrue program text v1\nrubbish\n", "T354"),
        (None, "T353"),
    ],
)
def test_what_is_no_program_is_one_clear_error(cli, tmp_path, verb, data, code):
    if data is not None:
        (tmp_path / "bad").write_bytes(data)
    ran = cli(verb, "bad")
    assert ran.status == 3
    assert ran.err.startswith(code)
    assert ran.out == ""


def test_a_truncated_program_is_one_clear_error_wherever_it_is_cut(cli, program, tmp_path):
    data = Path(program).read_bytes()
    for cut in (7, 100, len(data) // 2, len(data) - 1):
        (tmp_path / "cut").write_bytes(data[:cut])
        ran = cli("verify", "cut")
        assert ran.status == 3, cut
        assert ran.err.startswith("T350")


@pytest.fixture
def two_kinds(tmp_path: Path) -> str:
    """A model whose sliding layers have 2 KV heads, and its full ones 1."""
    from tests.families import write_family

    return str(write_family(tmp_path / "gemma4", "gemma4"))


def test_head_groups_of_each_kind_of_attention(cli, two_kinds, tmp_path):
    flags = ("compile", two_kinds, "--chips", "4", "--context", "64", "--max-model-len", "100")
    for word, heads in (
        ("", (1, 2)),
        ("1", (1, 1)),
        ("full=1,sliding=2", (1, 2)),
        ("sliding=1, full=1", (1, 1)),
    ):
        ran = cli(*flags, *(("--head-groups", word) if word else ()), "-o", "k.ticktrue", "--json")
        assert ran.status == 0, ran.err
        assert tuple(ran.document["system"]["head_groups"]) == heads
        plan = read_program(tmp_path / "k.ticktrue").program.image.key.plan
        assert tuple(grid.h for grid in plan.grids) == heads
        shown = cli("inspect", "k.ticktrue")
        if heads == (1, 2):
            text = "4 chips (all positions: 1 head group x 4 context lanes; windows of 100: 2 head groups x 2 context lanes)"
        else:
            text = "4 chips (1 head group x 4 context lanes)"
        assert text in shown.out
        assert cli("verify", "k.ticktrue", "--model", two_kinds).status == 0
        assert tuple(cli("inspect", "k.ticktrue", "--json").document["head_groups"]) == heads


@pytest.mark.parametrize(
    ("word", "code", "words"),
    [
        ("2", "T126", "2 head groups cannot share 1 KV heads on 4 chips: expected one of 1"),
        (
            "full=1,sliding=3",
            "T126",
            "3 head groups cannot share 2 KV heads on 4 chips: expected one of 1, 2",
        ),
        ("full=1", "T103", "full=NUMBER,sliding=NUMBER"),
        ("full=1,full=1,sliding=2", "T103", "full=NUMBER,sliding=NUMBER"),
        ("full=1,sliding=2,other=3", "T103", "other=3"),
        ("full=one,sliding=2", "T103", "full=one"),
        ("-1", "T103", "-1"),
        ("1,2", "T103", "1,2"),
    ],
)
def test_head_groups_that_cannot_be(cli, two_kinds, word, code, words):
    ran = cli("compile", two_kinds, "--chips", "4", f"--head-groups={word}", "-o", "k.ticktrue")
    assert ran.status == 2
    assert ran.err.startswith(f"{code}: ")
    assert words in ran.err


def test_a_run_takes_the_head_groups_of_its_program(cli, two_kinds):
    run = ("run", "abc", "--raw", "--max-tokens", "2", "--model", two_kinds)
    target = ("--chips", "4", "--max-model-len", "100", "--head-groups", "1")
    made = cli(*run, *target, "-o", "p.ticktrue", "--json").document
    again = cli(*run, "--program", "p.ticktrue", "--json").document
    assert again["system"]["head_groups"] == made["system"]["head_groups"] == [1, 1]
    assert again["token_ids"] == made["token_ids"]
    own = cli(*run, *target[:4], "--json").document  # from no cache entry of the other choice
    assert own["system"]["head_groups"] == [1, 2]
    assert own["token_ids"] == made["token_ids"]
    assert own["program_sha256"] != made["program_sha256"]
