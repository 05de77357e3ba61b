"""`ticktrue run`: a prompt, answered by a program that is compiled, proved, executed and timed."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from ticktrue.cli.output import PLAIN, Output, Terminal
from ticktrue.cli.target import TARGET, Target, whole
from ticktrue.errors import UsageError

DEFAULT_PROMPT = "Explain in one sentence why the sky is blue."


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Program files that a run reads or keeps."""

    program: str = ""
    "Execute this program file: its machine, format and context count. Steps it has no timetable for are compiled."
    output_file: Annotated[str, Parameter(name=("--output", "-o"))] = ""
    "Keep the program that was used, exactly its timetables, in this file."


FILES = Files()


def run(
    prompt: str = DEFAULT_PROMPT,
    /,
    *,
    target: Target = TARGET,
    max_tokens: Annotated[int, Parameter(converter=whole)] = 128,
    raw: Annotated[bool, Parameter(negative="")] = False,
    files: Files = FILES,
    output: Output = PLAIN,
) -> int:
    """Answers a prompt on the simulated machine.

    The model is compiled into timetables in which every unit, port and link of every cycle is decided. Each is proved before
    it runs: legal by the rules of the machine, and computing the model's own expression. Then its tokens are computed to the
    bit, and its cycles are replayed.

    Example: `ticktrue run "Name three rivers." --chips 16 --max-tokens 40`

    Args:
        prompt: What to answer; `-` reads it from standard input.
        target: Model and machine.
        max_tokens: Longest answer in tokens.
        raw: Continue the prompt as it stands, without the model's chat template.
        files: Program files.
        output: How the result is shown.
    """
    if max_tokens < 1:
        raise UsageError(f"expected at least 1 token, found {max_tokens}", code="T103", where="--max-tokens")
    from ticktrue.cli.run_job import Job, perform

    terminal = Terminal(output)
    try:
        return perform(Job(prompt, target, max_tokens, raw, files.output_file, files.program), terminal)
    finally:
        terminal.close()
