"""The default model: shape, load time, digest, chat template, tokenizer against 1,000 golden strings."""

import json
import time
from pathlib import Path

import numpy as np
import pytest
from tests.models import smollm2

from ticktrue.errors import InputError
from ticktrue.model import DEFAULT_MODEL, Model, load_model, load_weights, resolve
from ticktrue.model.bf16 import from_bf16

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parents[2] / "golden" / "tokenizer_smollm2.json"
LOAD_GOAL_S = 1.5
SLACK = 3  # shared machines


@pytest.fixture(scope="module")
def model() -> Model:
    return load_model(smollm2())


def test_spec(model: Model) -> None:
    spec = model.spec
    assert (spec.layers, spec.hidden, spec.ffn, spec.vocab) == (30, 576, 1_536, 49_152)
    assert (spec.heads, spec.kv_heads, spec.head_dim) == (9, 3, 64)
    assert (spec.rope_theta, spec.max_positions, spec.tied_embeddings) == (100_000.0, 8_192, True)
    assert (spec.bos, spec.eos) == ((1,), (2,))


def test_loads_in_time_and_to_the_same_bits() -> None:
    start = time.perf_counter()
    weights = load_weights(load_model(smollm2()))
    assert time.perf_counter() - start < LOAD_GOAL_S * SLACK
    assert weights.digest() == "e6af8dce6f582cc64f5bac92452163517c86503042f9a0a85c34114f4fa1a30b"


def test_embedding_is_q8_and_the_rest_q4_1(model: Model) -> None:
    """The default file's trap: two block types, and a head that is the embedding."""
    weights = model.weights()
    assert weights.tensor("lm_head") is weights.tensor("embed")
    row = from_bf16(np.asarray(weights.tensor("embed"))[0])
    assert len(np.unique(row)) > 100


def test_tokenizer_equals_the_references_on_a_thousand_strings(model: Model) -> None:
    cases = json.loads(GOLDEN.read_text())["cases"]
    tokenizer = model.tokenizer()
    assert len(cases) == 1_000
    assert [text for text, ids in cases if tokenizer.encode(text) != ids] == []
    assert [text for text, ids in cases if tokenizer.decode(ids, skip_special=False) != text] == []
    for text, ids in cases:
        stream = tokenizer.stream(skip_special=False)
        assert "".join(stream.push(token) for token in ids) + stream.finish() == text


def test_chat_template(model: Model) -> None:
    template = model.chat_template()
    assert template is not None
    text = template.render([{"role": "user", "content": "Hi 12"}])
    assert text == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi 12<|im_end|>\n<|im_start|>assistant\n"
    )
    ids = model.tokenizer().encode(text, add_special=False)
    assert (ids[0], ids.count(2), ids.count(1)) == (1, 2, 3)


def test_registry_name_resolves_to_the_fetched_file() -> None:
    path = smollm2()
    assert resolve(DEFAULT_MODEL, cache=path.parent) == path


def test_truncated_download_is_one_clear_error(tmp_path: Path) -> None:
    whole = smollm2()
    cut = tmp_path / "cut.gguf"
    with whole.open("rb") as source:
        cut.write_bytes(source.read(50_000_000))
    with pytest.raises(InputError, match="truncated") as refusal:
        load_model(cut)
    assert refusal.value.code == "T343"
