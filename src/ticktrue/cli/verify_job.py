"""What `ticktrue verify` does: the seal, then of each timetable the rules, the dataflow digest and the replay."""

import sys
from dataclasses import dataclass, replace
from itertools import pairwise

from ticktrue.cli.documents import ProofPart, VerifyDocument, ViolationPart, encode, header
from ticktrue.cli.kernels_watch import watch_kernels
from ticktrue.cli.output import Terminal
from ticktrue.cli.program_file import ProgramFile, check_model, machine_of, read_file, tell_hypothetical
from ticktrue.cli.prove import Proof, prove
from ticktrue.cli.run_report import SHOWN, proof_part, violation_lines, violation_parts
from ticktrue.cli.target import open_model
from ticktrue.compile import graph_of
from ticktrue.graph.digest import graph_digest
from ticktrue.hw import System
from ticktrue.model import ModelSpec
from ticktrue.program import Program, Timetable
from ticktrue.sim import Mismatch, simulate
from ticktrue.verify import Verdict
from ticktrue.verify import verify as check


@dataclass(frozen=True, slots=True)
class Checked:
    """What was found of one timetable; `replay` is None where rules are broken, for then there is nothing to replay."""

    proof: Proof
    replay: tuple[Mismatch, ...] | None

    @property
    def clean(self) -> bool:
        """Whether everything holds."""
        return self.proof.clean and not self.replay


def perform(file: str, ref: str, terminal: Terminal) -> int:
    """Checks the program; gives the exit status."""
    source = read_file(file)
    system = machine_of(source)
    with watch_kernels(terminal):
        spec = _spec(ref, source, terminal) if ref else None
        with terminal.stage("checking the image"):
            image = check(Program(source.program.image, ()), system)
        checked = [_check(source.program, t, system, spec, terminal) for t in source.program.timetables]
        order = _order(source.program, system, checked)
    general = image if not image.clean else order
    clean = source.decoded.intact and general.clean and all(c.clean for c in checked)
    if terminal.json:
        terminal.document(encode(_document(source, general, checked, clean=clean)))
    else:
        _lines(source, general, checked, terminal, by_model=bool(ref))
        terminal.line(f"verdict    {'clean' if clean else 'NOT CLEAN'}")
        if not clean:
            terminal.note("`ticktrue explain CODE` says what a rule means")
    return 0 if clean else 1


def _spec(ref: str, source: ProgramFile, terminal: Terminal) -> ModelSpec:
    spec = open_model(ref, terminal).spec
    check_model(spec, source)
    return spec


def _check(
    program: Program, timetable: Timetable, system: System, spec: ModelSpec | None, terminal: Terminal
) -> Checked:
    label = timetable.kind.label()
    proof = prove(program, timetable, system, terminal)
    if not proof.verdict.clean:
        return Checked(proof, None)
    if spec is not None:
        with terminal.stage(f"deriving the digest of {label} from the model's graph"):
            proof = replace(proof, stated=graph_digest(graph_of(spec, program.image, timetable.kind)))
    with terminal.stage(f"replaying {label}"):
        return Checked(proof, simulate(program, system, timetable).mismatches)


def _order(program: Program, system: System, checked: list[Checked]) -> Verdict:
    """What concerns timetables together: nothing, unless each is clean and the whole is not."""
    if program.timetables and all(c.proof.verdict.clean for c in checked):
        kinds = [t.kind for t in program.timetables]
        if any(not a < b for a, b in pairwise(kinds)):
            return check(program, system)
    return Verdict((), 0, 0, 0, 0)


def _seal(source: ProgramFile) -> str:
    d = source.decoded
    return "" if d.intact else f"the file states sha256 {d.stated}, its content gives {d.computed}"


def _document(
    source: ProgramFile, general: Verdict, checked: list[Checked], *, clean: bool
) -> VerifyDocument:
    seal = _seal(source)
    violations = violation_parts(general)
    if seal:
        broken = ViolationPart(
            code="V140", message=seal, chip=-1, cycle=-1, first="sha256", second="", where=source.where
        )
        violations = (broken, *violations)
    return VerifyDocument(
        **header(sys.argv[1:]), file=source.where, program_sha256=source.decoded.computed, clean=clean, violations=violations,
        proofs=tuple(_part(c) for c in checked),
        replay_mismatches=tuple(
            ViolationPart(code=m.code, message=m.message, chip=-1, cycle=m.stated, first=str(m.chain), second="",
                          where=c.proof.kind.label())
            for c in checked for m in (c.replay or ())
        ),
    )  # fmt: skip


def _part(checked: Checked) -> ProofPart:
    return proof_part(checked.proof)


def _lines(
    source: ProgramFile, general: Verdict, checked: list[Checked], terminal: Terminal, *, by_model: bool
) -> None:
    key = source.program.image.key
    terminal.line(
        f"program    {source.where}: {key.model}, {key.fmt}, {key.plan.chips} chips of {key.system}"
    )
    terminal.line(f"sha256     {source.decoded.computed}")
    tell_hypothetical(key, terminal)
    if seal := _seal(source):
        terminal.line(f"V140: {seal}")
    for violation in general.violations[:SHOWN]:
        terminal.line(str(violation))
    graph = "the model's graph" if by_model else "the graph, as the file states it"
    for c in checked:
        v = c.proof.verdict
        if not v.clean:
            terminal.line(f"timetable  {c.proof.kind.label()}: {v.total:,} violation{'s' * (v.total != 1)}")
        else:
            equal = f"equal to that of {graph}" if c.proof.dataflow_equal else f"NOT that of {graph}"
            replay = "clean" if not c.replay else f"{len(c.replay):,} stated cycles differ"
            terminal.line(f"timetable  {c.proof.kind.label()}: rules clean ({v.rows:,} rows on each of {v.chips} chips); "
                          f"dataflow digest {equal}; replay {replay}")  # fmt: skip
        for line in violation_lines(c.proof):
            terminal.line(line)
        for mismatch in (c.replay or ())[:SHOWN]:
            terminal.line(f"{mismatch.code}: {mismatch.message}")
