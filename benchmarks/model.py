"""Where the benchmarks take SmolLM2-135M-Instruct from: the user's cache, fetched once."""

import os

from ticktrue.model import DEFAULT_MODEL, Model, default_cache_dir, fetch, load_model


def smollm2() -> Model:
    """The default model, loaded."""
    return load_model(str(fetch(DEFAULT_MODEL, default_cache_dir(os.environ))))
