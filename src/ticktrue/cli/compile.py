"""`ticktrue compile`: a model becomes a program file, proved before it is written."""

from dataclasses import dataclass, replace
from typing import Annotated

from cyclopts import Parameter

from ticktrue.cli.output import PLAIN, Output, Terminal
from ticktrue.cli.target import DEFAULT_MODEL, TARGET, Target
from ticktrue.errors import UsageError


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Which timetables to compile: every pair of the given tokens and contexts."""

    tokens: Annotated[tuple[int, ...], Parameter(negative="")] = (1,)
    "Tokens per step; repeat the flag for more. Rounded up to 1, 2, 4, 8 or 64."
    context: Annotated[tuple[int, ...], Parameter(negative="")] = ()
    "Context to reach, the step's own tokens included; repeat the flag for more [default: --max-model-len]."
    logits: str = "last"
    "Logits of the last token only, or of all: last, all."
    sampler: str = "chip"
    "Who chooses the next token (greedy, temperature): chip; or host, which gets the logits and can do more."


STEPS = Steps()


def compile(  # noqa: A001 - the verb
    model_ref: str = "",
    /,
    *,
    output_file: Annotated[str, Parameter(name=("--output", "-o"), allow_leading_hyphen=True)],
    target: Target = TARGET,
    steps: Steps = STEPS,
    output: Output = PLAIN,
) -> int:
    """Compiles a model into a program file.

    The program is proved before it is written: a program that breaks a rule of the machine, or computes another expression
    than the model's, gives exit status 1 and no file.

    Example: `ticktrue compile --chips 16 --context 1300 -o smollm2.ticktrue`

    Args:
        model_ref: The model, as in --model.
        output_file: The file to write; `-` is standard output.
        target: Model and machine.
        steps: Which timetables to compile.
        output: How the result is shown.
    """
    if model_ref:
        if target.model not in (DEFAULT_MODEL, model_ref):
            raise UsageError(
                f"expected one model, found {model_ref!r} and {target.model!r}", code="T105", where="--model"
            )
        target = replace(target, model=model_ref)
    if output.json and output_file == "-":
        raise UsageError("--json and -o - both want standard output", code="T105", where="--output")
    from ticktrue.cli.compile_job import perform

    terminal = Terminal(output)
    try:
        return perform(target, steps, output_file, terminal)
    finally:
        terminal.close()
