"""A mixture of experts on the command line: whole experts are asked for, told of, kept in the file and run from it."""

from pathlib import Path

import pytest
from tests.families import write_family

from ticktrue.program import read_program


@pytest.fixture(scope="session")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(
        write_family(tmp_path_factory.mktemp("moe") / "moe", "qwen3_moe", 3, max_position_embeddings=256)
    )


def test_whole_experts_are_compiled_and_run(cli, mixture, tmp_path: Path):
    flags = ("--chips", "4", "--experts", "parallel", "--context", "64")
    ran = cli("compile", mixture, *flags, "-o", "whole.ticktrue")
    assert ran.status == 0, ran.err
    assert "2 whole on each chip, run in 2 slots a token; of the 8 on 4 chips a token needs 2" in ran.out
    program = read_program(tmp_path / "whole.ticktrue").program
    assert program.image.key.experts == "parallel"
    assert cli("verify", "whole.ticktrue").status == 0
    cut = cli("compile", mixture, "--chips", "4", "--context", "64", "-o", "cut.ticktrue")
    assert cut.status == 0
    assert "whole on each chip" not in cut.out
    assert read_program(tmp_path / "cut.ticktrue").program.image.key.experts == "cut"
    answer = ["run", "--raw", "--model", mixture, "hello", "--max-tokens", "4"]
    texts = []
    for more in (
        ["--chips", "4"],
        ["--chips", "4", "--experts", "parallel"],
        ["--chips", "2", "--experts", "parallel"],
    ):
        ran = cli(*answer, *more, "--json")
        assert ran.status == 0, ran.err
        texts.append((ran.document["token_ids"], ran.document["system"]["experts"]))
    assert [experts for _, experts in texts] == ["cut", "parallel", "parallel"]
    assert texts[0][0] == texts[1][0] == texts[2][0]
    assert cli(*answer, "--program", "whole.ticktrue").status == 0


def test_another_form_is_refused(cli, mixture, model):
    for what, form in ((mixture, "sorted"), (model, "parallel")):
        ran = cli("compile", what, "--chips", "2", "--experts", form, "--context", "64", "-o", "x.ticktrue")
        assert ran.status != 0
        assert "T122" in ran.err
