"""A program file as a verb gets it: read whole, with the machine it was made for."""

import sys
from dataclasses import dataclass
from pathlib import Path

from ticktrue.cli.output import Terminal
from ticktrue.cli.surroundings import STDIN
from ticktrue.errors import DoesNotFit, Error, InputError, UsageError
from ticktrue.hw import System, load_system
from ticktrue.model import ModelSpec
from ticktrue.program import Decoded, ImageKey, Program, Timetable, decode, program_digest
from ticktrue.program.text import from_text
from ticktrue.program.text_words import FIRST_LINE


@dataclass(frozen=True, slots=True)
class ProgramFile:
    """A program, where it came from, and whether its bytes are those that were sealed."""

    where: str
    decoded: Decoded

    @property
    def program(self) -> Program:
        """The program itself."""
        return self.decoded.program


def tell_hypothetical(key: ImageKey, terminal: Terminal) -> None:
    """Says with a result that its number format is one that the chip is known not to have."""
    if key.hypothetical:
        terminal.line(f"           HYPOTHETICAL: {key.fmt} is allowed although the chip may not have it")


def read_file(file: str) -> ProgramFile:
    """The program in `file`, as bytes or in text form; `-` is standard input.

    Raises:
        InputError: T350-T353 for what is not a whole program of this version, T354 for a line of text.
    """
    where = "standard input" if file == STDIN else file
    data = sys.stdin.buffer.read() if file == STDIN else _bytes(Path(file))
    if data.startswith(FIRST_LINE.encode()):
        try:
            program = from_text(data.decode(), where)
        except UnicodeDecodeError as problem:
            raise InputError(f"the text form is not UTF-8: {problem}", code="T354", where=where) from None
        digest = program_digest(program)
        return ProgramFile(where, Decoded(program, digest, digest))
    return ProgramFile(where, decode(data, where))


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as problem:
        raise InputError(
            f"cannot read the program: {problem.strerror}", code="T353", where=str(path)
        ) from None


def machine_of(file: ProgramFile) -> System:
    """The chips that a program was compiled for, as today's catalog has them.

    Raises:
        InputError: T366 where the catalog has no such system, or knows other facts of it; T367 for a number of chips it
            does not have.
    """
    key = file.program.image.key
    try:
        whole = load_system(key.system)
    except Error as problem:
        raise InputError(f"the program is for system {key.system!r}: {problem.message}", code="T366", where=file.where,
                         hint=problem.hint) from problem  # fmt: skip
    try:
        system = whole.subset(key.plan.chips)
    except (UsageError, DoesNotFit) as problem:
        raise InputError(f"the program is for {key.plan.chips} chips of {key.system}, which has {whole.chips}", code="T367",
                         where=file.where) from problem  # fmt: skip
    if system.fact_digest() != key.facts:
        raise InputError(f"the program was made for other facts of {key.system}: expected {system.fact_digest()[:16]}..., "
                         f"found {key.facts[:16]}...", code="T366", where=file.where,
                         hint="compile it again; its cycles do not hold for the machine as it is known now")  # fmt: skip
    return system


def check_model(spec: ModelSpec, file: ProgramFile) -> None:
    """Returns if the program was made for a model of this shape.

    Raises:
        InputError: T368 if not.
    """
    key = file.program.image.key
    if spec.digest() != key.spec:
        raise InputError(f"the program was made from another model: expected the shape of {spec.name}, found that of {key.model}",
                         code="T368", where=file.where, hint="name the model that it was compiled from")  # fmt: skip


def pick_timetable(file: ProgramFile, step: str, context: int | None) -> Timetable | None:
    """The timetable labelled `step`, or the smallest of one token that serves `context`; the only one; or None.

    Raises:
        UsageError: T130 for a label or context that the program does not have, with those it has.
    """
    timetables = file.program.timetables
    have = ", ".join(t.kind.label() for t in timetables) or "none"
    if step:
        found = [t for t in timetables if t.kind.label() == step]
        if not found:
            raise UsageError(
                f"expected a timetable of the program ({have}), found {step!r}", code="T130", where="--step"
            )
        return found[0]
    if context is not None:
        if context < 1:
            raise UsageError(
                f"expected a context of at least 1 token, found {context}", code="T103", where="--context"
            )
        found = sorted(
            (t for t in timetables if t.kind.tokens == 1 and 64 * t.kind.blocks >= context),
            key=lambda t: t.kind,
        )
        if not found:
            raise UsageError(f"the program has no timetable of one token that reaches context {context:,} (it has: {have})",
                             code="T130", where="--context", hint=f"`ticktrue compile --context {context}`")  # fmt: skip
        return found[0]
    return timetables[0] if len(timetables) == 1 else None


def degrees(key: ImageKey) -> str:
    """How chips share the heads and the context: once, or for each kind of attention where they differ."""
    each = [
        f"{grid.h} head group{'s' * (grid.h != 1)} x {grid.cp} context lane{'s' * (grid.cp != 1)}"
        for grid in key.plan.grids
    ]
    if len(set(each)) == 1:
        return each[0]
    seen = [f"windows of {a.window:,}" if a.window else "all positions" for a in key.attention]
    return "; ".join(f"{what}: {how}" for what, how in zip(seen, each, strict=True))
