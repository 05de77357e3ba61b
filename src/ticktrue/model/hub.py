"""A model of the Hugging Face hub, through `huggingface_hub` and its cache."""

from pathlib import Path

from ticktrue.errors import EnvironmentProblem, InputError

# What a model is made of; never pickles.
_PATTERNS = ("*.safetensors", "*.safetensors.index.json", "config.json", "generation_config.json",
             "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")  # fmt: skip


def hub_directory(ref: str, cache: Path) -> Path:
    """A local directory with the files of `org/name`, fetched where they are not in `cache` already.

    Raises:
        InputError: T340, where the hub has no such model, or keeps it behind a login.
        EnvironmentProblem: T414, where the hub cannot be reached.
    """
    from huggingface_hub import errors, snapshot_download

    try:
        found = snapshot_download(ref, allow_patterns=list(_PATTERNS), cache_dir=cache / "hub")
    except (errors.RepositoryNotFoundError, errors.HFValidationError) as problem:
        raise InputError(
            f"the hub has no model {ref!r} that can be read without a login",
            code="T340",
            where="huggingface.co",
        ) from problem
    except Exception as problem:  # each HTTP library raises its own
        raise EnvironmentProblem(
            f"cannot fetch {ref!r} from the hub: {_first_line(problem)}",
            code="T414",
            where="huggingface.co",
            hint="check the network, or give a local directory or .gguf file",
        ) from problem
    return Path(found)


def _first_line(problem: Exception) -> str:
    return str(problem).strip().split("\n", 1)[0] or type(problem).__name__
