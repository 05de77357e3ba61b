"""`ticktrue opcheck`: what of a model is covered."""

from typing import Annotated

from cyclopts import Parameter

from ticktrue.cli.output import PLAIN, Output, Terminal


def opcheck(
    model: str,
    /,
    *,
    all_fields: Annotated[bool, Parameter(name="--all", negative="")] = False,
    output: Output = PLAIN,
) -> int:
    """Which operators and architecture features of a model are covered, and which are not, before anyone plans a migration.

    Takes any config.json, also of an architecture that is not read: its fields are then looked up one by one. "planned" is what
    `ticktrue fit` counts and no program computes yet; "unknown" is a field that nobody has looked at. Exit status 0: the text
    model runs; 1: it does not.

    Example: `ticktrue opcheck ./my-model/config.json`

    Args:
        model: A config.json, a directory, a .gguf file, a name of `ticktrue model list`, or a shape that comes with ticktrue.
        all_fields: Also list fields that have no effect.
        output: How the result is shown.
    """
    from ticktrue.cli.opcheck_job import perform

    return perform(model, Terminal(output), all_fields=all_fields)
