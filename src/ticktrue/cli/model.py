"""`ticktrue model`: the models that can be run."""

from ticktrue.cli.output import PLAIN, Output, Terminal


def list(*, output: Output = PLAIN) -> int:  # noqa: A001 - the verb
    """Models that have a name. Any Llama-shaped Hugging Face directory or .gguf file can be run too.

    Example: `ticktrue model list`

    Args:
        output: How the result is shown.
    """
    from ticktrue.cli.model_job import tell_list

    tell_list(Terminal(output))
    return 0


def fetch(name: str, /, *, output: Output = PLAIN) -> int:
    """Fetches a model into the cache and prints its path.

    A fetched file is checked against its pinned sha256; whatever goes wrong, no half file stays.

    Example: `ticktrue model fetch smollm2-135m-instruct`

    Args:
        name: A name of `ticktrue model list`.
        output: How the result is shown.
    """
    from ticktrue.cli.model_job import tell_fetched

    terminal = Terminal(output)
    try:
        tell_fetched(name, terminal)
    finally:
        terminal.close()
    return 0


def show(ref: str, /, *, output: Output = PLAIN) -> int:
    """Shape and constants of a model; nothing is fetched.

    Example: `ticktrue model show ./my-model`

    Args:
        ref: A name of `ticktrue model list`, a Hugging Face directory, or a .gguf file.
        output: How the result is shown.
    """
    from ticktrue.cli.model_job import tell_model

    tell_model(ref, Terminal(output))
    return 0
