"""`ticktrue verify`: both proofs of every timetable of a program file, and the replay."""

from ticktrue.cli.output import PLAIN, Output, Terminal


def verify(file: str, /, *, model: str = "", output: Output = PLAIN) -> int:
    """Proves that a program is legal, and that it computes the right expression.

    Three checks of every timetable: the rules of the machine hold for every input; the rows, evaluated symbolically, give
    the dataflow digest that the compiler took from the model's graph; the replay gives every stated cycle. Exit status 1 if
    one of them fails.

    Example: `ticktrue verify smollm2.ticktrue`

    Args:
        file: A program file; `-` is standard input.
        model: Take the dataflow digest from this model's graph instead of from the file, so that the file is not trusted.
        output: How the result is shown.
    """
    from ticktrue.cli.verify_job import perform

    terminal = Terminal(output)
    try:
        return perform(file, model, terminal)
    finally:
        terminal.close()
