"""Model families by name: which are known, which can be read, which can be run, and what the others lack."""

from enum import StrEnum

from ticktrue.errors import UnsupportedModel


class Family(StrEnum):
    """Model families known by name; only those in `RUNNABLE` can be loaded."""

    LLAMA = "llama"
    MISTRAL = "mistral"
    MIXTRAL = "mixtral"
    QWEN2 = "qwen2"
    QWEN3 = "qwen3"
    QWEN3_MOE = "qwen3_moe"
    GEMMA2 = "gemma2"
    GEMMA3 = "gemma3"
    GEMMA4 = "gemma4"
    GPT_OSS = "gpt_oss"
    DEEPSEEK_V3 = "deepseek_v3"
    PHI3 = "phi3"
    SMOLLM3 = "smollm3"


RUNNABLE = frozenset(
    {
        Family.LLAMA,
        Family.MISTRAL,
        Family.QWEN2,
        Family.QWEN3,
        Family.QWEN3_MOE,
        Family.GEMMA3,
        Family.GEMMA4,
    }
)

# Their shape is read, for planning; docs/numerics.md has no complete set of rows for them.
PLANNED = {
    Family.GPT_OSS: "attention sinks, the clamped gate, biases of router and experts, YaRN",
    Family.DEEPSEEK_V3: "multi-head latent attention, a sigmoid router in groups, shared experts, YaRN",
}

_ALIASES = {
    "gemma3_text": Family.GEMMA3,
    "gemma4_text": Family.GEMMA4,
    "gpt-oss": Family.GPT_OSS,
    "deepseek2": Family.DEEPSEEK_V3,
    "kimi_k2": Family.DEEPSEEK_V3,
    "qwen3moe": Family.QWEN3_MOE,
}


def family_of(kind: str, where: str, *, planned: bool = False) -> Family:
    """The family called `kind` (`model_type` or `general.architecture`), if it can be run.

    Args:
        kind: as the file spells it.
        where: the file, for the error.
        planned: whether a family that can only be read will do.

    Raises:
        UnsupportedModel: T330, naming the family.
    """
    known = _ALIASES.get(kind) or next((family for family in Family if family == kind), None)
    if known is not None and (known in RUNNABLE or (planned and known in PLANNED)):
        return known
    what = f"family {kind!r} is known but not runnable yet" if known else f"unknown model family {kind!r}"
    raise UnsupportedModel(
        f"{what}; expected one of: {', '.join(sorted(RUNNABLE))}",
        where=where,
        hint="models of these families run; `ticktrue model list` names some",
    )


def check_runnable(family: Family, where: str) -> None:
    """Refuse a family whose shape is known and whose arithmetic is not.

    Raises:
        UnsupportedModel: T334, naming what is missing.
    """
    if family not in RUNNABLE:
        missing = PLANNED.get(family, "its operations")
        raise UnsupportedModel(
            f"family {family} can be read for planning, not run; missing: {missing}", code="T334", where=where
        )
