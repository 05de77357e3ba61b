"""`ticktrue run`: a prompt, answered by a program that is compiled, proved, executed and timed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter, Token

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


def number(_type: object, tokens: Sequence[Token]) -> float:
    """A decimal number.

    Raises:
        ValueError: for anything else; the command line tells it with the flag's name.
    """
    word = tokens[0].value
    try:
        return float(word)
    except ValueError:
        raise ValueError(f"expected a number, found {word!r}") from None


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Choosing:
    """How many tokens, and how each is chosen. Temperature alone is done on the chips; the rest brings the logits to the host."""

    max_tokens: Annotated[int, Parameter(converter=whole)] = 128
    "Longest answer in tokens."
    temperature: Annotated[float, Parameter(converter=number)] = 0.0
    "0 takes the most likely token; above, tokens are drawn, the flatter the higher."
    seed: Annotated[int, Parameter(converter=whole)] = 0
    "Which random draw: the same seed gives the same text, on any number of chips."
    top_k: Annotated[int, Parameter(converter=whole)] = 0
    "Draw from the k most likely tokens only; 0 for all."
    top_p: Annotated[float, Parameter(converter=number)] = 1.0
    "Draw from the most likely tokens that together have this probability."
    min_p: Annotated[float, Parameter(converter=number)] = 0.0
    "Draw from tokens at least this likely, relative to the most likely one."
    repetition_penalty: Annotated[float, Parameter(converter=number)] = 1.0
    "Divide (where negative, multiply) the logits of all tokens so far by this."
    presence_penalty: Annotated[float, Parameter(converter=number)] = 0.0
    "Subtract this from the logits of tokens of the answer so far."
    frequency_penalty: Annotated[float, Parameter(converter=number)] = 0.0
    "Subtract this from the logits of tokens of the answer so far, for each time they stand there."
    logprobs: Annotated[int | None, Parameter(converter=whole)] = None
    "Tell the log-probability of each token, and of this many of the most likely ones."


CHOOSING = Choosing()


def run(
    prompt: str = DEFAULT_PROMPT,
    /,
    *,
    target: Target = TARGET,
    raw: Annotated[bool, Parameter(negative="")] = False,
    choosing: Choosing = CHOOSING,
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
        raw: Continue the prompt as it stands, without the model's chat template.
        choosing: How tokens are chosen.
        files: Program files.
        output: How the result is shown.
    """
    if choosing.max_tokens < 1:
        raise UsageError(
            f"expected at least 1 token, found {choosing.max_tokens}", code="T103", where="--max-tokens"
        )
    from ticktrue.cli.run_job import Job, perform

    terminal = Terminal(output)
    try:
        job = Job(prompt, target, raw, choosing, files.output_file, files.program)
        return perform(job, terminal)
    finally:
        terminal.close()
