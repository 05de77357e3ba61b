"""The command line, run in this process on a tiny model; caches lie in a directory of the test session."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from tests.models import TINY_KV3, write_llama

from ticktrue.cli.main import status_of


@dataclass(frozen=True)
class Ran:
    """What a command left: exit status, stdout, stderr."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> dict:
        return msgspec.json.decode(self.out)


Cli = Callable[..., Ran]


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a tiny model; its cache fills as tests go."""
    root = tmp_path_factory.mktemp("cli")
    write_llama(root / "tiny", shape=TINY_KV3, max_positions=256)
    return root


@pytest.fixture
def model(shared: Path) -> str:
    return str(shared / "tiny")


@pytest.fixture
def cli(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Cli:
    monkeypatch.setenv("TICKTRUE_CACHE", str(shared / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    def run(*argv: str) -> Ran:
        monkeypatch.setattr("sys.argv", ["ticktrue", *argv])
        capsys.readouterr()
        status = status_of(argv)
        captured = capsys.readouterr()
        return Ran(status, captured.out, captured.err)

    return run


@pytest.fixture
def program(shared: Path, cli: Cli, model: str) -> str:
    """A program file of two timetables on 2 chips; compiled once per session."""
    path = shared / "tiny.ticktrue"
    if not path.exists():
        flags = ("--chips", "2", "--context", "64", "--context", "200", "--tokens", "1", "--quiet")
        ran = cli("compile", model, *flags, "-o", str(path))
        assert ran.status == 0, ran
    return str(path)
