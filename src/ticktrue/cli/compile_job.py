"""What `ticktrue compile` does: look up, compile and prove every step kind, write one file."""

import sys
import time
from pathlib import Path

from ticktrue.cli.compile import Steps
from ticktrue.cli.documents import CompileDocument, encode, header
from ticktrue.cli.kernels_watch import watch_kernels
from ticktrue.cli.output import Terminal
from ticktrue.cli.program_file import degrees, tell_hypothetical
from ticktrue.cli.prove import Maker, Rejected, Source, open_cache
from ticktrue.cli.run_report import model_input, proof_part, system_input, tell_rejected
from ticktrue.cli.target import Target, check_fits, look_up
from ticktrue.compile import T_MAX, Options, assemble, bucket, image_blocks, tokens_kind
from ticktrue.errors import UsageError
from ticktrue.model import load_weights
from ticktrue.program import Program, StepKind, check_writable, program_digest, write_program
from ticktrue.program import encode as encode_program

LOGITS = ("last", "all")
SAMPLERS = ("chip", "host")


def perform(target: Target, steps: Steps, file: str, terminal: Terminal) -> int:
    """Compiles, proves and writes; gives the exit status."""
    begin = time.perf_counter()
    check_steps(steps)
    if file != "-":
        check_writable(Path(file))
    with watch_kernels(terminal) as kernels:
        found = look_up(target, terminal)
        kinds = wanted_kinds(steps, found.options)
        check_fits(found)
        with terminal.stage("reading weights"):
            weights = load_weights(found.model).digest(found.options.fmt)
        source = Source(found.model.spec, found.system, found.options, weights)
        maker = Maker(
            source,
            open_cache(source, keep=target.cache),
            terminal,
            lambda: time.perf_counter() - kernels.seconds,
        )
        image = maker.image
        try:
            program = assemble(image, [maker.obtain(kind) for kind in kinds])
        except Rejected as no:
            tell_rejected(no, maker.proofs, terminal)
            return 1
    size = write(program, file)
    sha256 = program_digest(program)
    if terminal.json:
        document = CompileDocument(
            **header(sys.argv[1:]), model=model_input(found, target.model, weights),
            system=system_input(found, image.key.plan), program_sha256=sha256, output=file, size_bytes=size,
            proofs=tuple(proof_part(p) for p in maker.proofs), wall_compile_s=maker.seconds,
            wall_total_s=time.perf_counter() - begin,
        )  # fmt: skip
        terminal.document(encode(document))
    elif file != "-":
        lines(program, maker, terminal)
        terminal.line(f"written    {file}, {size:,} bytes, sha256 {sha256}")
        terminal.note(f"compiled and verified in {maker.seconds:.1f} s")
    return 0


def lines(program: Program, maker: Maker, terminal: Terminal) -> None:
    """The program for a person, a line per timetable."""
    key = program.image.key
    terminal.line(f"model      {key.model}, {key.fmt}, context up to {key.max_context:,}")
    terminal.line(f"system     {key.system}, {key.plan.chips} chips ({degrees(key)})")
    tell_hypothetical(key, terminal)
    proofs = {p.kind: p for p in maker.proofs}
    for t in program.timetables:
        how = "proved earlier, from the cache" if proofs[t.kind].cached else "proved now"
        terminal.line(f"timetable  {t.kind.label()}: {len(t.chains):,} chains, {t.duration:,} cycles; {how}")


def check_steps(steps: Steps) -> None:
    """Checks what can be checked before the model is known.

    Raises:
        UsageError: T103.
    """
    if steps.logits not in LOGITS:
        raise UsageError(f"expected last or all, found {steps.logits!r}", code="T103", where="--logits")
    if steps.sampler not in SAMPLERS:
        raise UsageError(f"expected chip or host, found {steps.sampler!r}", code="T103", where="--sampler")
    for tokens in steps.tokens:
        if not 1 <= tokens <= T_MAX:
            raise UsageError(f"expected 1 to {T_MAX} tokens, found {tokens}", code="T103", where="--tokens")


def wanted_kinds(steps: Steps, options: Options) -> list[StepKind]:
    """One step kind for every pair of tokens and context.

    Raises:
        UsageError: T103 for a context that is too short for its step, or longer than the longest.
    """
    blocks = image_blocks(options.max_context)
    kinds = []
    for tokens in steps.tokens or (1,):
        wide = tokens_kind(tokens)
        for context in steps.context or (max(options.max_context, wide),):
            if not tokens <= context <= max(options.max_context, wide):
                raise UsageError(f"expected a context of {tokens:,} to {options.max_context:,} tokens, found {context:,}",
                                 code="T103", where="--context", hint="or a larger --max-model-len")  # fmt: skip
            kinds.append(StepKind(wide, 1, bucket(max(context, wide), blocks), steps.logits, steps.sampler))
    return sorted(set(kinds))


def write(program: Program, file: str) -> int:
    """Writes the program; gives its size in bytes."""
    if file == "-":
        data = encode_program(program)
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return len(data)
    write_program(program, Path(file))
    return Path(file).stat().st_size
