"""The flags that say which model runs on which machine, and what they name once looked up."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter, Token

from ticktrue.cli.output import Terminal
from ticktrue.cli.surroundings import model_cache
from ticktrue.errors import UsageError

if TYPE_CHECKING:
    from ticktrue.compile import Options
    from ticktrue.hw import System
    from ticktrue.model import Model, ModelSpec

DEFAULT_MODEL = "smollm2-135m-instruct"
DEFAULT_SYSTEM = "groq3-lpx-tray"
DEFAULT_CHIPS = 8
DEFAULT_CONTEXT = 2048


def whole(_type: object, tokens: Sequence[Token]) -> int:
    """A whole number, and nothing that merely rounds to one.

    Raises:
        ValueError: for anything else; the command line tells it with the flag's name.
    """
    word = tokens[0].value
    try:
        return int(word)
    except ValueError:
        raise ValueError(f"expected a whole number, found {word!r}") from None


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Model and machine."""

    model: str = DEFAULT_MODEL
    "A name of `ticktrue model list`, a Hugging Face directory, a .gguf file, or org/name of the hub."
    system: str = DEFAULT_SYSTEM
    "A name of `ticktrue hw list`."
    chips: Annotated[int | None, Parameter(converter=whole)] = None
    "How many chips of the system to use [default: 8, or all if there are fewer]."
    head_groups: str = ""
    """Head groups: a number, or one for each kind of attention (full=4,sliding=16) [default: the most that KV heads allow]."""
    format: str = "bf16"
    "Number format of weights and activations: bf16, int8, fp8 (e4m3), or f32 for debugging."
    kv_format: str = "auto"
    "Number format of keys and values in the cache: auto (that of activations), or fp8 (e4m3)."
    max_model_len: Annotated[int | None, Parameter(converter=whole)] = None
    "Longest context in tokens [default: 2048, or the model's if that is shorter]."
    hypothetical: Annotated[bool, Parameter(negative="")] = False
    "Allow a number format that the chip is known not to have; every result says so."
    cache: bool = True
    "Keep verified programs in the cache, and take them from there."


TARGET = Target()


@dataclass(frozen=True, slots=True)
class Found:
    """What a target names."""

    model: "Model"
    system: "System"
    options: "Options"


def look_up(target: Target, terminal: Terminal) -> Found:
    """The model (fetched where it must be), the chips, and the options of the compiler.

    Raises:
        Error: T110-T123 for a flag, T31x-T34x for a model that cannot be used, T41x where fetching fails.
    """
    from ticktrue.compile import Options
    from ticktrue.hw import load_system

    system = load_system(target.system)
    chips = min(DEFAULT_CHIPS, system.chips) if target.chips is None else target.chips
    if target.max_model_len is not None and target.max_model_len < 1:
        raise UsageError(f"expected a context of at least 1 token, found {target.max_model_len}", code="T123",
                         where="--max-model-len")  # fmt: skip
    subset = system.subset(chips)
    model = open_model(target.model, terminal)
    longest = min(DEFAULT_CONTEXT, model.spec.max_positions)
    context = longest if target.max_model_len is None else target.max_model_len
    heads = head_groups(target.head_groups, model.spec)
    options = Options(target.format, context, target.hypothetical, kv=target.kv_format, heads=heads)
    return Found(model, subset, options)


def head_groups(word: str, spec: "ModelSpec") -> tuple[int, ...]:
    """Head groups of each kind of attention of a model, one number for all, or none where `word` is empty.

    Raises:
        UsageError: T103 for what is neither a number nor one for each kind of the model.
    """
    if not word:
        return ()
    if word.isdecimal():
        return (int(word),)
    pairs = [part.partition("=") for part in word.split(",")]
    named = {kind.strip(): number.strip() for kind, _, number in pairs}
    kinds = [str(kind) for kind in spec.kinds]
    if len(named) < len(pairs) or set(named) != set(kinds) or not all(n.isdecimal() for n in named.values()):
        expected = ",".join(f"{kind}=NUMBER" for kind in kinds)
        raise UsageError(f"expected a number or {expected} (the kinds of attention of {spec.name}), found {word!r}",
                         code="T103", where="--head-groups")  # fmt: skip
    return tuple(int(named[kind]) for kind in kinds)


def open_model(ref: str, terminal: Terminal) -> "Model":
    """The model that `ref` names, fetched with a progress bar where it is not in the cache yet."""
    from ticktrue.model import load_model

    with terminal.bar() as progress:
        return load_model(ref, cache=model_cache(), progress=progress)


def check_fits(found: Found) -> None:
    """Returns if the model can be placed on the chips: before its weights are read, for that takes longer.

    Raises:
        Error: T120-T123 for a degree, format or context, T310 for a model that does not fit.
    """
    from ticktrue.compile import compile_image

    compile_image(found.model.spec, found.system, found.options)
