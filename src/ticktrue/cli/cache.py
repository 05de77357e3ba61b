"""Verified programs on disk, one timetable each, so that the same work is not done twice.

An entry is found by what it was made from, and believed only if its bytes give the sha256 that was proved. A damaged entry is as
good as none. Knows nothing of how programs are made.
"""

import hashlib
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.metadata import version
from importlib.resources.abc import Traversable
from pathlib import Path

import msgspec

from ticktrue.errors import InputError
from ticktrue.program import SCHEMA, Program, StepKind, decode, encode, program_digest

CACHE_SCHEMA = "ticktrue/cached-verdict/v1"
_MAKERS = ("compile", "graph", "partition", "place", "schedule", "program", "isa", "hw", "verify", "kernels")


class CachedVerdict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """That the program with this sha256 was proved: by the machine rules over `rows` class rows, and by its dataflow digest."""

    schema: str
    sha256: str
    dataflow: str
    rows: int
    chips: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A program of one timetable, and what was proved of it."""

    program: Program
    verdict: CachedVerdict


class ProgramCache:
    """A directory of verified programs; a None directory keeps nothing."""

    def __init__(self, directory: Path | None, parts: Sequence[str]) -> None:
        self.directory = directory
        self._parts = (
            (version("ticktrue"), SCHEMA, CACHE_SCHEMA, makers_digest(), *parts) if directory else ()
        )

    def get(self, kind: StepKind) -> Entry | None:
        """The program of `kind`, if it is there whole."""
        if self.directory is None:
            return None
        program, verdict = self._paths(self.directory, kind)
        try:
            known = msgspec.json.decode(verdict.read_bytes(), type=CachedVerdict)
            found = decode(program.read_bytes(), str(program))
        except (OSError, msgspec.MsgspecError, InputError):
            return None
        timetables = found.program.timetables
        whole = found.intact and found.computed == known.sha256 and known.schema == CACHE_SCHEMA
        right = (
            len(timetables) == 1 and timetables[0].kind == kind and timetables[0].dataflow == known.dataflow
        )
        return Entry(found.program, known) if whole and right else None

    def put(self, program: Program, rows: int) -> str:
        """Keeps a proved program of one timetable; gives the reason why that could not be done, or nothing."""
        if self.directory is None:
            return ""
        timetable = program.timetables[0]
        known = CachedVerdict(
            CACHE_SCHEMA, program_digest(program), timetable.dataflow, rows, program.image.key.plan.chips
        )
        path, verdict = self._paths(self.directory, timetable.kind)
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            _replace(path, encode(program))
            _replace(verdict, msgspec.json.encode(known))
        except OSError as problem:
            return f"cannot keep the program in {self.directory}: {problem.strerror}"
        return ""

    def _paths(self, directory: Path, kind: StepKind) -> tuple[Path, Path]:
        digest = hashlib.sha256("\n".join((*self._parts, kind.label())).encode()).hexdigest()
        return directory / f"{digest}.ticktrue", directory / f"{digest}.json"


def _replace(path: Path, data: bytes) -> None:
    """Writes a file as a whole, beside its place first; two writers at once do not meet."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name[:16]}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def makers_digest() -> str:
    """Sha256 over the sources that decide what a program holds and what is proved of it: other sources, other entries."""
    total = hashlib.sha256()
    root = resources.files("ticktrue")
    for folder in _MAKERS:
        for item in sorted(_sources(root / folder), key=lambda f: f.name):
            total.update(f"{folder}/{item.name}\n".encode())
            total.update(item.read_bytes())
    return total.hexdigest()


def _sources(folder: Traversable) -> list[Traversable]:
    return [item for item in folder.iterdir() if item.name.endswith(".py")]
