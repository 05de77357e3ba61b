"""The same model as GGUF and as safetensors written by `transformers` from the GGUF: equal in every bit."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from tests.models import smollm2

from ticktrue.model import Model, load_model, load_weights

pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # transformers and torch warn as they please
]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face directory made by `transformers`: its own dequantisation, un-permutation and config."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    gguf, directory = smollm2(), tmp_path_factory.mktemp("written")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = transformers.AutoModelForCausalLM.from_pretrained(
            gguf.parent, gguf_file=gguf.name, dtype=torch.float32
        )
        # 5.24 calls the model quantised and will not save it, though its weights are float32: a plain copy.
        config = theirs.config
        del config.quantization_config
        plain = type(theirs)(config)
        plain.load_state_dict(theirs.state_dict())
        plain.save_pretrained(directory)
        transformers.AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(
            directory
        )
    return directory


@pytest.fixture(scope="module")
def pair(written: Path) -> tuple[Model, Model]:
    return load_model(smollm2()), load_model(written)


def test_specs_are_equal(pair: tuple[Model, Model]) -> None:
    ours, theirs = (model.spec for model in pair)
    assert ours.digest() == theirs.digest()
    assert (ours.bos, ours.eos) == (theirs.bos, theirs.eos)


def test_tensors_are_equal_to_the_bit(pair: tuple[Model, Model]) -> None:
    ours, theirs = (load_weights(model) for model in pair)
    assert ours.names() == theirs.names()
    for name in ours.names():
        assert np.array_equal(ours.tensor(name), theirs.tensor(name)), name
    assert ours.digest() == theirs.digest()


def test_chat_templates_are_equal(pair: tuple[Model, Model]) -> None:
    messages = [{"role": "user", "content": "What is 2+2?"}, {"role": "assistant", "content": "4"}]
    ours, theirs = (model.chat_template() for model in pair)
    assert ours is not None
    assert theirs is not None
    assert ours.render(messages) == theirs.render(messages)
