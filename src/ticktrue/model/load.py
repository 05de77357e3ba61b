"""From a reference (directory, GGUF file, registry name, org/name) to a model that can be run."""

from pathlib import Path

from ticktrue.errors import InputError
from ticktrue.model.huggingface import HuggingFaceNaming, read_config
from ticktrue.model.safetensor import open_safetensors
from ticktrue.model.spec import ModelSpec
from ticktrue.model.weights import Weights


class Model:
    """What is to be run: `spec` at once, weights, tokenizer and chat template when they are asked for."""

    __slots__ = ("_weights", "path", "spec")

    def __init__(self, spec: ModelSpec, path: Path) -> None:
        self.spec = spec
        self.path = path
        self._weights: Weights | None = None

    def weights(self) -> Weights:
        """The canonical weights, opened and checked; tensors are converted at their first use."""
        if self._weights is None:
            self._weights = Weights(
                self.spec, open_safetensors(self.path), HuggingFaceNaming(), str(self.path)
            )
        return self._weights


def load_model(ref: str | Path) -> Model:
    """The model at `ref`."""
    path = Path(ref)
    if path.is_dir():
        return Model(read_config(path), path)
    raise InputError(f"no model at {ref}", code="T340")


def load_weights(model: Model) -> Weights:
    """The canonical weights of `model`, every tensor converted."""
    weights = model.weights()
    weights.load()
    return weights
