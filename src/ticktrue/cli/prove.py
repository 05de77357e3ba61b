"""Step kind -> timetable that may be executed: from the cache, or compiled and proved now.

Both proofs come before any execution: the machine rules, and the dataflow digest of the rows against that of the graph.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from ticktrue.cli.cache import ProgramCache
from ticktrue.cli.output import Terminal
from ticktrue.cli.surroundings import program_cache
from ticktrue.compile import Options, assemble, compile_image, compile_timetable, graph_of
from ticktrue.errors import EnvironmentProblem, InputError
from ticktrue.graph.digest import graph_digest
from ticktrue.hw import System
from ticktrue.model import ModelSpec
from ticktrue.program import Decoded, Program, StepKind, Timetable, image_digest, program_digest
from ticktrue.verify import Verdict, verify
from ticktrue.verify.dataflow import rows_digest

Clock = Callable[[], float]
"""Seconds of this host; what passes while kernels are compiled may be left out."""


@dataclass(frozen=True, slots=True)
class Source:
    """What programs are made from; `weights` is the digest of the model's weights."""

    spec: ModelSpec
    system: System
    options: Options
    weights: str

    def cache_parts(self) -> tuple[str, ...]:
        """Everything of it that can change a byte of a program."""
        o = self.options
        return (
            self.spec.name, self.spec.digest(), self.weights, self.system.name, self.system.fact_digest(), o.fmt,
            str(o.max_context), str(o.hypothetical), o.kv, str(o.slots), str(o.t_max), str(o.loops), str(o.heads),
            *([str(o.kv_scales)] if o.kv_scales else ()),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Proof:
    """What is known of one timetable. `sha256` is that of the program of this timetable alone.

    `verdict` is of the machine rules. `found` is the dataflow digest of the rows, to be equal to `stated`, the graph's.
    """

    kind: StepKind
    sha256: str
    verdict: Verdict
    stated: str
    found: str
    cached: bool
    compile_s: float = 0.0
    verify_s: float = 0.0
    dataflow_s: float = 0.0

    @property
    def dataflow_equal(self) -> bool:
        """Whether the rows compute the expression of the graph."""
        return self.stated == self.found

    @property
    def clean(self) -> bool:
        """Whether the timetable may be executed."""
        return self.verdict.clean and self.dataflow_equal


class Rejected(Exception):
    """A timetable that was not proved; nothing of it is executed."""

    def __init__(self, proof: Proof) -> None:
        super().__init__(proof.kind.label())
        self.proof = proof


def prove(
    program: Program,
    timetable: Timetable,
    system: System,
    terminal: Terminal,
    clock: Clock = time.perf_counter,
) -> Proof:
    """Both proofs of one timetable; the second only where the first holds, for rows that break a rule have no meaning."""
    alone, label = Program(program.image, (timetable,)), timetable.kind.label()
    begin = clock()
    with terminal.stage(f"verifying {label}: rules of the machine"):
        verdict = verify(alone, system)
    middle, found = clock(), ""
    if verdict.clean:
        with terminal.stage(f"verifying {label}: dataflow, for all inputs at once"):
            found = rows_digest(alone, timetable, system)
    return Proof(timetable.kind, program_digest(alone), verdict, timetable.dataflow, found, cached=False,
                 verify_s=middle - begin, dataflow_s=clock() - middle)  # fmt: skip


class Maker:
    """Makes proved timetables over one image; keeps the proofs in the order they were asked for."""

    def __init__(
        self,
        source: Source,
        cache: ProgramCache,
        terminal: Terminal,
        clock: Clock,
        given: Decoded | None = None,
    ) -> None:
        self.source = source
        self.clock = clock
        self.proofs: list[Proof] = []
        self._cache = cache
        self._terminal = terminal
        self._ready: dict[StepKind, Timetable] = {}
        begin = clock()
        self.image = compile_image(source.spec, source.system, source.options, source.weights)
        self._image_sha256 = image_digest(self.image)
        self._given = {t.kind: t for t in given.program.timetables} if given else {}
        if given:
            self._check_given(given)
        self.seconds = clock() - begin

    def obtain(self, kind: StepKind) -> Timetable:
        """A proved timetable of `kind`.

        Raises:
            Rejected: if a proof fails.
        """
        begin = self.clock()
        try:
            if kind not in self._ready:
                self._ready[kind] = self._from_file(kind) or self._cached(kind) or self._made(kind)
        finally:
            self.seconds += self.clock() - begin
        return self._ready[kind]

    def _check_given(self, given: Decoded) -> None:
        if not given.intact:
            raise InputError(
                "the program's bytes are not those that were sealed (V140)", code="T369", where="--program"
            )
        if image_digest(given.program.image) != self._image_sha256:
            raise InputError("the program is not of this model, its weights and this version of the compiler", code="T368",
                             where="--program", hint="name the model with --model, or compile it again")  # fmt: skip

    def _from_file(self, kind: StepKind) -> Timetable | None:
        """The given program's timetable, held to the machine's rules and to the model's own graph."""
        timetable = self._given.get(kind)
        if timetable is None:
            return None
        s = self.source
        proof = prove(assemble(self.image, [timetable]), timetable, s.system, self._terminal, self.clock)
        with self._terminal.stage(f"deriving the digest of {kind.label()} from the model's graph"):
            proof = replace(proof, stated=graph_digest(graph_of(s.spec, self.image, kind)))
        self.proofs.append(proof)
        if not proof.clean:
            raise Rejected(proof)
        return timetable

    def _cached(self, kind: StepKind) -> Timetable | None:
        entry = self._cache.get(kind)
        if entry is None or image_digest(entry.program.image) != self._image_sha256:
            return None
        known = entry.verdict
        verdict = Verdict((), 0, 1, known.rows, known.chips)
        self.proofs.append(Proof(kind, known.sha256, verdict, known.dataflow, known.dataflow, cached=True))
        return entry.program.timetables[0]

    def _made(self, kind: StepKind) -> Timetable:
        image, s = self.image, self.source
        begin = self.clock()
        with self._terminal.stage(
            f"compiling {kind.label()} for {s.system.chips} chip{'s' * (s.system.chips != 1)}"
        ):
            timetable = compile_timetable(s.spec, s.system, image, kind)
        program = assemble(image, [timetable])
        seconds = self.clock() - begin
        proof = replace(prove(program, timetable, s.system, self._terminal, self.clock), compile_s=seconds)
        self.proofs.append(proof)
        if not proof.clean:
            raise Rejected(proof)
        problem = self._cache.put(program, proof.verdict.rows)
        if problem:
            self._terminal.note(problem)
        return timetable


def open_cache(source: Source, *, keep: bool) -> ProgramCache:
    """The cache of programs, or one that keeps nothing: where that is asked for, or there is no place."""
    directory = None
    if keep:
        try:
            directory = program_cache()
        except EnvironmentProblem:
            directory = None
    return ProgramCache(directory, source.cache_parts() if directory else ())


def require_legal(program: Program, timetables: tuple[Timetable, ...], system: System, where: str) -> None:
    """Returns if the timetables break no rule: what does cannot be expanded or timed.

    Raises:
        InputError: T369 with the first violation.
    """
    verdict = verify(Program(program.image, timetables), system)
    if not verdict.clean:
        first = verdict.violations[0]
        raise InputError(f"the program is not legal: {first.code}: {first.message}", code="T369", where=where,
                         hint="`ticktrue verify FILE` lists everything")  # fmt: skip
