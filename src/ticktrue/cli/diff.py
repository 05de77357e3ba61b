"""`ticktrue diff`: differences between two programs."""

from ticktrue.cli.output import PLAIN, Output, Terminal

SHOWN_PER_SECTION = 12


def diff(first: str, second: str, /, *, everything: bool = False, output: Output = PLAIN) -> int:
    """Differences between two programs.

    Exit status 0 if they are the same program, 1 if they are not.

    Example: `ticktrue diff before.ticktrue after.ticktrue`

    Args:
        first: A program file, or one in text form.
        second: Another.
        everything: Print every difference, not only the first of each section.
        output: How the result is shown.
    """
    from ticktrue.cli.diff_job import perform

    terminal = Terminal(output)
    try:
        return perform(first, second, terminal, everything=everything)
    finally:
        terminal.close()
