"""`ticktrue run`: a prompt, answered by a program that is compiled, proved, executed and timed."""

from typing import Annotated

from cyclopts import Parameter

from ticktrue.cli.output import PLAIN, Output, Terminal
from ticktrue.cli.target import TARGET, Target, whole
from ticktrue.errors import UsageError

DEFAULT_PROMPT = "Explain in one sentence why the sky is blue."


def run(
    prompt: str = DEFAULT_PROMPT,
    /,
    *,
    target: Target = TARGET,
    max_tokens: Annotated[int, Parameter(converter=whole)] = 128,
    output_file: Annotated[str, Parameter(name=("--output", "-o"))] = "",
    raw: Annotated[bool, Parameter(negative="")] = False,
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
        output_file: Keep the program that was used, exactly its timetables, in this file.
        raw: Continue the prompt as it stands, without the model's chat template.
        output: How the result is shown.
    """
    if max_tokens < 1:
        raise UsageError(f"expected at least 1 token, found {max_tokens}", code="T103", where="--max-tokens")
    from ticktrue.cli.run_job import Job, perform

    terminal = Terminal(output)
    try:
        return perform(Job(prompt, target, max_tokens, raw, output_file), terminal)
    finally:
        terminal.close()
