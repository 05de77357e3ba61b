"""What a model weighs: parameters, parameters of one token, and elements of its KV cache, exact from the shapes."""

from dataclasses import replace
from importlib.resources import as_file, files
from math import prod

from ticktrue.errors import InputError
from ticktrue.model.huggingface import read_spec
from ticktrue.model.spec import ModelSpec
from ticktrue.model.weights import canonical_shapes

_CONFIGS = "configs"


def known_shapes() -> tuple[str, ...]:
    """Names of the models whose shape comes with the package."""
    folder = files("ticktrue.model").joinpath(_CONFIGS)
    names = (entry.name for entry in folder.iterdir())
    return tuple(sorted(name.removesuffix(".json") for name in names if name.endswith(".json")))


def known_spec(name: str) -> ModelSpec:
    """The ModelSpec of a model whose shape comes with the package; it need not be one that runs.

    Raises:
        InputError: T340, for another name.
    """
    if name not in known_shapes():
        raise InputError(
            f"no shape is called {name!r}",
            code="T340",
            where="configs",
            hint=f"known: {', '.join(known_shapes())}",
        )
    with as_file(files("ticktrue.model").joinpath(_CONFIGS, f"{name}.json")) as path:
        return replace(read_spec(path), name=name)


def parameters(spec: ModelSpec) -> int:
    """Trained numbers of the text model; layer scalars, which are not trained, are left out."""
    return sum(
        prod(shape) for name, shape in canonical_shapes(spec).items() if not name.endswith("layer_scalar")
    )


def active_parameters(spec: ModelSpec) -> int:
    """Parameters that one token meets: of the experts only those it is sent to; embedding and head count whole."""
    if spec.experts is None:
        return parameters(spec)
    idle = sum(prod(shape) for name, shape in canonical_shapes(spec).items() if ".experts." in name)
    return parameters(spec) - idle * (spec.experts.count - spec.experts.per_token) // spec.experts.count


def kv_elements(spec: ModelSpec, context: int) -> int:
    """Numbers in the KV cache of one sequence of `context` positions; a sliding layer keeps at most its window.

    K and V count apart also where one projection makes both. Latent attention keeps the compressed KV and one rotary key.

    Raises:
        InputError: T342, for a context that is negative.
    """
    if context < 0:
        raise InputError(
            f"context must be 0 or more positions, found {context}", code="T342", where="context"
        )
    if spec.latent is not None:
        return spec.layers * (spec.latent.kv_rank + spec.latent.rope_dim) * context
    total = 0
    for layer in range(spec.layers):
        at = spec.attention(layer)
        kept = min(context, at.window) if at.window else context
        total += 2 * at.kv_heads * at.head_dim * kept
    return total
