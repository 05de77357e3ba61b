"""`ticktrue inspect`: what a program holds."""

from typing import Annotated

from cyclopts import Parameter

from ticktrue.cli.output import PLAIN, Output, Terminal


def inspect(
    file: str,
    /,
    *,
    layer: int | None = None,
    step: str = "",
    text: Annotated[bool, Parameter(negative="")] = False,
    output: Output = PLAIN,
) -> int:
    """What a program holds: a summary, its text form, or the timeline of a layer.

    The text form has one line per region, weight piece, template row and chain, and gives the program back exactly.

    Example: `ticktrue inspect smollm2.ticktrue --layer 3`

    Args:
        file: A program file, or one in text form; `-` is standard input.
        layer: Show how busy each unit is over time while this layer runs.
        step: Take the timetable with this label for --layer, e.g. T1.S1.B21.last.chip.
        text: Print the text form of the whole program.
        output: How the result is shown.
    """
    from ticktrue.cli.inspect_job import Asked, perform

    terminal = Terminal(output)
    try:
        return perform(file, Asked(layer, step, text), terminal)
    finally:
        terminal.close()
