"""`ticktrue time`: cycles of a program, where they go, and on what assumptions they rest."""

from ticktrue.cli.output import PLAIN, Output, Terminal


def time(file: str, /, *, context: int | None = None, step: str = "", output: Output = PLAIN) -> int:
    """Cycles of a program, where they go, and on what assumptions they rest.

    Times are simulated, cycle by cycle, from the order of the program's rows; they say nothing of this host. Exit status 1
    if the replay does not give the cycles that the program states.

    Example: `ticktrue time smollm2.ticktrue --context 1300`

    Args:
        file: A program file; `-` is standard input.
        context: Take the smallest timetable of one token that reaches this context.
        step: Take the timetable with this label, e.g. T1.S1.B21.last.chip.
        output: How the result is shown.
    """
    from ticktrue.cli.time_job import perform

    terminal = Terminal(output)
    try:
        return perform(file, step, context, terminal)
    finally:
        terminal.close()
