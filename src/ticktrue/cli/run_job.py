"""What `ticktrue run` does, in order: look up, compile and prove, execute while the text streams, time, tell."""

import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from ticktrue.cli.kernels_watch import watch_kernels
from ticktrue.cli.output import Terminal
from ticktrue.cli.program_file import ProgramFile, check_model, machine_of, read_file
from ticktrue.cli.prove import Maker, Proof, Rejected, Source, open_cache
from ticktrue.cli.run import CHOOSING, Choosing
from ticktrue.cli.surroundings import STDIN
from ticktrue.cli.target import Found, Target, check_fits, look_up, open_model
from ticktrue.compile import T_MAX, Options, assemble
from ticktrue.errors import InputError, UsageError
from ticktrue.execute import Machine
from ticktrue.generate import Sampling, Session, Step, step_kind
from ticktrue.model import load_weights
from ticktrue.program import Program, StepKind, check_writable, write_program


@dataclass(frozen=True, slots=True)
class Job:
    """What the user asked for."""

    prompt: str
    target: Target
    raw: bool
    choosing: Choosing = CHOOSING
    output_file: str = ""
    program_file: str = ""

    @property
    def max_tokens(self) -> int:
        """Longest answer in tokens."""
        return self.choosing.max_tokens


@dataclass(frozen=True, slots=True)
class Timed:
    """A step and the seconds of this host that its execution took, compiling and proving left out."""

    step: Step
    wall_s: float


@dataclass(frozen=True, slots=True)
class Answer:
    """Everything that came out; `program` holds exactly the timetables that were used."""

    job: Job
    sampling: Sampling
    found: Found
    weights: str
    prompt: str
    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    text: str
    steps: tuple[Timed, ...]
    program: Program
    proofs: tuple[Proof, ...]
    kernels_s: float
    compile_s: float
    begin: float

    @property
    def final_context(self) -> int:
        """Positions that the last step has seen, its own tokens included."""
        last = self.steps[-1].step
        return last.pos + last.taken

    @property
    def prefill(self) -> tuple[Timed, ...]:
        """The steps that took the prompt."""
        return tuple(t for t in self.steps if t.step.prefill)

    @property
    def decode(self) -> tuple[Timed, ...]:
        """The steps that took a chosen token."""
        return tuple(t for t in self.steps if not t.step.prefill)


def perform(job: Job, terminal: Terminal) -> int:
    """Runs the job; gives the exit status."""
    from ticktrue.cli.run_report import tell_answer, tell_rejected

    begin = time.perf_counter()
    sampling = sampling_of(job.choosing)
    if job.output_file:
        check_writable(Path(job.output_file))
    with watch_kernels(terminal) as kernels:
        given = read_file(job.program_file) if job.program_file else None
        found = look_up_for(given, job.target, terminal) if given else look_up(job.target, terminal)
        prompt = sys.stdin.read() if job.prompt == STDIN else job.prompt
        ids = prompt_ids(found, prompt, raw=job.raw)
        check_given(found, given)
        if not job.raw and found.model.chat_template() is None:
            terminal.note(
                f"{found.model.spec.name} has no chat template (a base model): it continues the prompt as it stands"
            )
        with terminal.stage("reading weights"):
            weights = load_weights(found.model).digest(found.options.fmt)
        source = Source(found.model.spec, found.system, found.options, weights)
        maker = Maker(
            source,
            open_cache(source, keep=job.target.cache),
            terminal,
            lambda: time.perf_counter() - kernels.seconds,
            given.decoded if given else None,
        )
        execution = _Execution(job, found, maker, terminal, sampling)
        try:
            program = execution.run(ids)
        except Rejected as no:
            tell_rejected(no, maker.proofs, terminal)
            return 1
        tokens = tuple(t.step.chosen for t in execution.steps if chooses(t.step, len(ids)))
        used = {t.kind for t in program.timetables}
        proofs = tuple(p for p in maker.proofs if p.kind in used)
        answer = Answer(job, sampling, found, weights, prompt, ids, tokens, execution.text, tuple(execution.steps), program,
                        proofs, kernels.seconds, maker.seconds, begin)  # fmt: skip
        if job.output_file:
            write_program(program, Path(job.output_file))
        return tell_answer(answer, terminal)


def look_up_for(given: ProgramFile, target: Target, terminal: Terminal) -> Found:
    """The model that is named, on the machine and with the options that a program file was made for.

    Raises:
        UsageError: T105 for a flag that the file decides.
        InputError: T368 for another model than the file's.
    """
    plain = Target(model=target.model, cache=target.cache)
    if target != plain:
        raise UsageError("--program decides system, chips, head groups, format and context; another flag names one too",
                         code="T105", where="--program")  # fmt: skip
    key = given.program.image.key
    kv = "fp8" if key.kv == "fp8" else "auto"
    heads, scales = tuple(grid.h for grid in key.plan.grids), given.program.image.kv_scales
    options = Options(
        key.fmt,
        key.max_context,
        key.hypothetical,
        key.slots,
        key.t_max,
        kv,
        heads=heads,
        kv_scales=scales,
        experts=key.experts,
    )
    model = open_model(target.model, terminal)
    check_model(model.spec, given)
    return Found(model, machine_of(given), options)


def check_given(found: Found, given: ProgramFile | None) -> None:
    """`check_fits`; what a program file asks for is no fault of the command line.

    Raises:
        InputError: T369 for a file of options that no program can have.
    """
    try:
        check_fits(found)
    except UsageError as no:
        if given is None:
            raise
        raise InputError(f"no program can be so: {no.message}", code="T369", where=f"{given.where}, {no.where}",
                         hint="`ticktrue verify` says more; compile it again") from None  # fmt: skip


def prompt_ids(found: Found, prompt: str, *, raw: bool) -> tuple[int, ...]:
    """Token ids of the prompt, through the model's chat template unless `raw` or there is none."""
    if not prompt.strip():
        raise InputError("expected a prompt, found nothing but blanks", code="T365", where="prompt",
                         hint="say what to answer")  # fmt: skip
    tokenizer = found.model.tokenizer()
    template = None if raw else found.model.chat_template()
    if template is None:
        ids = tokenizer.encode(prompt)
    else:
        ids = tokenizer.encode(template.render([{"role": "user", "content": prompt}]), add_special=False)
    limit = found.options.max_context
    if not 1 <= len(ids) <= limit:
        raise InputError(f"expected a prompt of 1 to {limit:,} tokens, found {len(ids):,}", code="T365", where="prompt",
                         hint="a shorter prompt, or a larger --max-model-len")  # fmt: skip
    return tuple(ids)


def sampling_of(choosing: Choosing) -> Sampling:
    """The settings that the flags name.

    Raises:
        UsageError: T103 for a value out of its range.
    """
    try:
        return Sampling(**{name: value for name, value in asdict(choosing).items() if name != "max_tokens"})
    except InputError as no:
        raise UsageError(no.message, code="T103", where=f"--{no.where.replace('_', '-')}") from None


def chooses(step: Step, prompt: int) -> bool:
    """Whether the token that a step chose is part of the answer."""
    return not step.prefill or step.pos + step.taken == prompt


class _Execution:
    """Steps one session to its end, streaming the text."""

    def __init__(self, job: Job, found: Found, maker: Maker, terminal: Terminal, sampling: Sampling) -> None:
        self._job, self._found, self._maker, self._terminal = job, found, maker, terminal
        self._sampling = sampling
        self._stop = frozenset(found.model.tokenizer().eos)
        self.steps: list[Timed] = []
        self.text = ""

    def run(self, ids: tuple[int, ...]) -> Program:
        """Proves what is needed from the start, then executes; gives the program of the timetables used."""
        terminal, maker = self._terminal, self._maker
        kinds = self._kinds(len(ids))
        image = maker.image
        for kind in kinds:
            maker.obtain(kind)
        with terminal.stage("packing weights"):
            machine = Machine(image, self._found.model.weights(), self._found.system, threads=None)
        session = Session(machine, maker.obtain, sampling=self._sampling)
        with terminal.stage("executing"):
            for timed in self._timed(session.generate(ids, self._job.max_tokens, self._stop), len(ids)):
                self.steps.append(timed)
        return assemble(image, session.timetables())

    def _kinds(self, prompt: int) -> list[StepKind]:
        """Kinds of the prefill steps and of the first decode step."""
        limit, sampler = self._found.options.max_context, "host" if self._sampling.on_host else "chip"
        last = (prompt - 1) // T_MAX * T_MAX
        kinds = [step_kind(at, T_MAX, limit) for at in range(0, last, T_MAX)]
        kinds.append(step_kind(last, prompt - last, limit, sampler))
        if self._job.max_tokens > 1 and prompt < limit:
            kinds.append(step_kind(prompt, 1, limit, sampler))
        return list(dict.fromkeys(kinds))

    def _timed(self, steps: Iterator[Step], prompt: int) -> Iterator[Timed]:
        """The steps with their seconds; text goes out as it becomes certain."""
        stream, clock, maker = self._found.model.tokenizer().stream(), self._maker.clock, self._maker
        while True:
            before = clock() - maker.seconds
            step = next(steps, None)
            if step is None:
                break
            yield Timed(step, clock() - maker.seconds - before)
            if chooses(step, prompt) and step.chosen not in self._stop:
                self._say(stream.push(step.chosen))
        self._say(stream.finish())

    def _say(self, text: str) -> None:
        self.text += text
        if not self._terminal.json:
            self._terminal.stream(text)
