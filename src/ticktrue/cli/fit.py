"""`ticktrue fit`: which systems hold a model."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from ticktrue.cli.output import PLAIN, Output, Terminal
from ticktrue.cli.target import whole


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is to be held."""

    context: Annotated[int | None, Parameter(converter=whole)] = None
    "Positions of each sequence [default: 100000, or the model's longest if that is shorter]."
    slots: Annotated[int, Parameter(converter=whole)] = 1
    "Sequences held at once."
    tokens: Annotated[int, Parameter(converter=whole)] = 1
    "Most tokens of a sequence in one step: 1 decodes; more need scratch (`run` and `compile` reserve for 64)."
    format: Annotated[tuple[str, ...], Parameter(negative="")] = ()
    "Number format of weights and activations: bf16, fp8, int8; repeat the flag for more [default: all three]."
    kv_format: str = "auto"
    "Number format of keys and values in the cache: auto (that of activations, bf16), or fp8 (e4m3)."


LOAD = Load()


def fit(
    model: str,
    /,
    *,
    load: Load = LOAD,
    systems: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    chips: Annotated[int | None, Parameter(converter=whole)] = None,
    output: Output = PLAIN,
) -> int:
    """Which systems hold a model: weights, KV cache and activations by number format, and how many chips it takes.

    Bytes on LPU chips are counted as the compiler places them: shards packed, windows as rings, the embedding beside the head.
    One group of chips is what `ticktrue compile` makes; pipelines of groups, and families that do not run yet, are weighed by the
    same rules and marked. Exit status 1: nothing that was asked about holds the model.

    Example: `ticktrue fit gemma-4-31b --context 100000 --format fp8`

    Args:
        model: A shape that comes with ticktrue (gemma-4-31b, llama-3.3-70b, ...), a config.json, a directory, a .gguf file,
            or a name of `ticktrue model list` that is in the cache.
        load: What is to be held.
        systems: A name of `ticktrue hw list` or of a GPU system (docs/gpu.md); repeat the flag or separate by commas for more
            [default: groq3-lpx and, by memory alone, h200, b200, gb300-nvl72, rubin-nvl72].
        chips: Ask about this number of chips, as one group or as a pipeline of whole trays; what would do is named where they do
            not.
        output: How the result is shown.
    """
    from ticktrue.cli.fit_job import perform

    return perform(model, load, (systems, chips), Terminal(output))
