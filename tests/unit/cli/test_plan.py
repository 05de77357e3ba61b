"""`fit` and `opcheck` on the command line."""

import json
from pathlib import Path

import msgspec
import pytest

from ticktrue.cli.plan_documents import FitDocument, OpcheckDocument


def test_fit_prints_bytes_and_the_smallest_number_of_chips(cli):
    ran = cli("fit", "gemma-4-31b", "--format", "fp8", "--context", "100000")
    assert ran.status == 0
    assert "30,697,345,280 parameters" in ran.out
    assert "4,515,430,400 numbers of KV" in ran.out
    assert "groq3-lpx, fp8: 128 chips hold it, one group" in ran.out
    assert "30.70" in ran.out
    assert any(
        line.split() == ["262,144", "11,156,848,640", "22.31", "11.16", "11.16"]
        for line in ran.out.splitlines()
    )


def test_fit_refuses_64_chips_with_the_bytes(cli):
    ran = cli("fit", "gemma-4-31b", "--format", "fp8", "--chips", "64")
    assert ran.status == 1
    found = msgspec.json.decode(
        cli("fit", "gemma-4-31b", "--format", "fp8", "--chips", "64", "--json").out, type=FitDocument
    )
    row, enough = found.rows
    assert (enough.chips, enough.fits, enough.smallest) == (128, True, True)
    assert "128 chips hold it, one group" in ran.out
    assert not found.held
    assert (row.chips, row.stages, row.fits) == (64, 1, False)
    assert (
        row.over_bytes
        == row.bytes_per_chip - 500_000_000
        == sum(c.bytes_per_chip for c in row.bytes_by_class) - 500_000_000
    )
    assert f"64 chips do not hold it: {row.over_bytes:,} bytes a chip too many" in ran.out


def test_fit_json_is_one_document(cli, model):
    ran = cli(
        "fit",
        model,
        "--context",
        "200",
        "--systems",
        "groq3-lpx-tray,tiny-4",
        "--systems",
        "groq-tsp-v1-node",
        "--json",
    )
    assert ran.status == 0
    found = msgspec.json.decode(ran.out, type=FitDocument)
    assert {r.system for r in found.rows} == {"groq3-lpx-tray", "tiny-4", "groq-tsp-v1-node"}
    assert [p.format for p in found.precisions] == ["bf16", "fp8", "int8"]
    assert (found.context_tokens, found.slots, found.step_tokens) == (200, 1, 1)
    assert {(r.system, r.format) for r in found.rows if r.smallest} == {
        (r.system, r.format) for r in found.rows
    }
    assert {(s.system, s.format) for s in found.skipped} == {
        ("groq-tsp-v1-node", "bf16"),
        ("groq-tsp-v1-node", "fp8"),
    }


def test_fit_says_what_no_program_does_yet(cli):
    ran = cli("fit", "deepseek-v3", "--format", "fp8")
    assert ran.status == 0
    assert "would fit" in ran.out
    assert "no program yet: deepseek_v3: multi-head latent attention" in ran.out
    assert "no program yet: groups of chips one after another" in ran.out


def test_fit_names_the_piece_that_no_bank_group_holds(cli):
    ran = cli(
        "fit", "gemma-4-31b", "--format", "fp8", "--kv-format", "fp8", "--chips", "80", "--context", "1000"
    )
    assert ran.status == 1
    assert "embed takes 335,544,320 bytes in one piece, a bank group holds 125,000,000" in ran.out


@pytest.mark.parametrize(
    ("flags", "code", "status"),
    [
        (("gemma-4-31b", "--context", "-1"), "T123", 2),
        (("gemma-4-31b", "--context", "1e5"), "T103", 2),
        (("gemma-4-31b", "--systems", "gpu-3000"), "T110", 2),
        (("gemma-4-31b", "--chips", "71"), "T141", 2),
        (("gemma-4-31b", "--chips", "0"), "T111", 2),
        (("gemma-4-31b", "--slots", "0"), "T140", 2),
        (("gemma-4-31b", "--format", "fp4"), "T122", 2),
        (("gemma-5",), "T340", 3),
        (("smollm2-135m-instruct",), "T340", 3),
    ],
    ids=lambda v: " ".join(v[1:] or v) if isinstance(v, tuple) else str(v),
)
def test_fit_refuses_wrong_input_with_one_error(cli, flags, code, status):
    ran = cli("fit", *flags)
    assert (ran.status, ran.out) == (status, "")
    assert ran.err.startswith(f"{code}: ")
    assert ran.err.count("\nT") == 0
    assert cli("fit", *flags, "--json").document["code"] == code


def test_opcheck_of_a_model_that_runs(cli, model):
    ran = cli("opcheck", model)
    assert ran.status == 0
    assert "runs (text)" in ran.out
    found = msgspec.json.decode(cli("opcheck", model, "--json").out, type=OpcheckDocument)
    assert (found.runs, found.state, found.family) == (True, "covered", "llama")
    assert "no effect" not in ran.out.split("\n\n")[1]
    assert "no effect" in cli("opcheck", model, "--all").out


def test_opcheck_of_a_planned_shape(cli):
    ran = cli("opcheck", "gpt-oss-120b")
    assert ran.status == 1
    assert "its shape is counted" in ran.out
    assert "attention sinks" in ran.out


def test_opcheck_of_an_unknown_architecture(cli, tmp_path: Path):
    path = tmp_path / "some.json"
    path.write_text(
        json.dumps({"model_type": "brand_new", "hidden_size": 8, "ssm_state_size": 4, "twist": 1})
    )
    ran = cli("opcheck", str(path))
    assert ran.status == 1
    assert "family brand_new: does not run" in ran.out
    lines = ran.out.splitlines()
    assert any(
        line.startswith("not covered") and "ssm_state_size" in line and "Mamba" in line for line in lines
    )
    assert any(line.startswith("unknown") and "twist" in line for line in lines)
    found = msgspec.json.decode(cli("opcheck", str(path), "--json").out, type=OpcheckDocument)
    assert {f.name: f.state for f in found.findings}["twist"] == "unknown"


def test_opcheck_of_what_is_no_config(cli, tmp_path: Path):
    path = tmp_path / "config.json"
    path.write_text("not json")
    ran = cli("opcheck", str(path))
    assert (ran.status, ran.out) == (3, "")
    assert ran.err.startswith("T341: ")
