"""The environment, read here and nowhere below: where caches lie."""

import os
from collections.abc import Mapping
from pathlib import Path

from ticktrue.errors import EnvironmentProblem

CACHE_VARIABLE = "TICKTRUE_CACHE"
STDIN = "/dev/stdin"
"""What `-` stands for as an argument, spelled so that it does not look like a flag."""


def cache_root(env: Mapping[str, str] | None = None) -> Path:
    """The cache directory: $TICKTRUE_CACHE, else ticktrue/ in $XDG_CACHE_HOME or ~/.cache.

    Raises:
        EnvironmentProblem: T415, where none of them is an absolute path.
    """
    env = os.environ if env is None else env
    own = env.get(CACHE_VARIABLE, "")
    if own:
        if Path(own).is_absolute():
            return Path(own)
        raise EnvironmentProblem(
            f"expected an absolute path, found {own!r}", code="T415", where=CACHE_VARIABLE
        )
    from ticktrue.model.registry import default_cache_dir

    return default_cache_dir(env).parent


def model_cache(env: Mapping[str, str] | None = None) -> Path:
    """Where fetched models are kept."""
    return cache_root(env) / "models"


def program_cache(env: Mapping[str, str] | None = None) -> Path:
    """Where verified programs are kept."""
    return cache_root(env) / "programs"
