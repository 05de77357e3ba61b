"""Gemma 3 270M and Qwen2.5-Coder 0.5B as they are fetched: shape, weights, tokenizer against references, chat template."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from tests.models import registry_file

from ticktrue.model import LayerKind, Model, load_model
from ticktrue.model.bf16 import to_bf16

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parents[2] / "golden"
GEMMA_BF16 = "86d54059f209b7b4745a4d18a2ecfbce9317906b9150d6d4fa8bfd5b6513c019"
GEMMA_INT8 = "20bbe385bed84689ca666664f2f0c586045240403b8161fe37e2894e6a20a1ec"
GEMMA_FP8 = "001ee8e05a89478387869a6ebbf0657721618d9c3c2599fd9f80de9ccd31d223"


@pytest.fixture(scope="module")
def gemma() -> Model:
    return load_model(registry_file("gemma-3-270m"))


@pytest.fixture(scope="module")
def qwen() -> Model:
    return load_model(registry_file("qwen2.5-coder-0.5b"))


def test_gemma_shape(gemma: Model) -> None:
    spec = gemma.spec
    assert (spec.layers, spec.hidden, spec.ffn, spec.vocab) == (18, 640, 2_048, 262_144)
    assert [i for i in range(18) if spec.kind(i) == LayerKind.FULL] == [5, 11, 17]
    assert (spec.attention(0).window, spec.attention(0).rope_theta) == (512, 1e4)
    assert (spec.attention(5).window, spec.attention(5).rope_theta) == (0, 1e6)
    assert spec.attention(0).scale == 256**-0.5
    assert (spec.bos, spec.eos, spec.tied_embeddings) == ((2,), (1,), True)
    assert gemma.chat_template() is None  # a base model


def test_qwen_shape(qwen: Model) -> None:
    spec = qwen.spec
    assert (spec.layers, spec.hidden, spec.ffn, spec.vocab) == (24, 896, 4_864, 151_936)
    assert (spec.heads, spec.kv_heads, spec.head_dim) == (14, 2, 64)
    assert (spec.rope_theta, spec.attention_bias, spec.tied_embeddings) == (1e6, True, False)
    assert spec.eos == (151_645,)


@pytest.mark.parametrize("family", ["gemma3", "qwen2"])
def test_tokenizer_equals_the_references(family: str, gemma: Model, qwen: Model) -> None:
    tokenizer = (gemma if family == "gemma3" else qwen).tokenizer()
    cases = json.loads((GOLDEN / f"tokenizer_{family}.json").read_text())
    assert len(cases) > 1_000
    assert [text for text, ids in cases if tokenizer.encode(text, add_special=False) != ids] == []
    for _, ids in cases:
        stream = tokenizer.stream()
        assert "".join(stream.push(token) for token in ids) + stream.finish() == tokenizer.decode(ids)


def test_gemma_text_comes_back_whole(gemma: Model) -> None:
    tokenizer = gemma.tokenizer()
    cases = json.loads((GOLDEN / "tokenizer_gemma3.json").read_text())
    assert [text for text, ids in cases if tokenizer.decode(ids, skip_special=False) != text] == []
    assert tokenizer.encode("x")[0] == 2


def test_qwen_chat_template(qwen: Model) -> None:
    template = qwen.chat_template()
    assert template is not None
    text = template.render([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}])
    expected = (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert text == expected
    assert template.render([{"role": "user", "content": "Hi"}]).startswith("<|im_start|>system\nYou are Qwen")
    ids = qwen.tokenizer().encode(text, add_special=False)
    assert ids.count(151_644) == 3
    assert ids.count(151_645) == 2


def test_digests(gemma: Model) -> None:
    weights = gemma.weights()
    assert weights.digest() == GEMMA_BF16
    assert weights.digest("int8") == GEMMA_INT8
    assert weights.digest("fp8") == GEMMA_FP8


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")  # transformers and torch warn as they please
@pytest.mark.parametrize("family", ["gemma3", "qwen2"])
def test_weights_and_constants_are_those_that_transformers_reads(
    family: str, gemma: Model, qwen: Model
) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model = gemma if family == "gemma3" else qwen
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = transformers.AutoModelForCausalLM.from_pretrained(
            model.path.parent, gguf_file=model.path.name, dtype=torch.float32
        )
    state, weights = theirs.state_dict(), model.weights()
    parts = {"q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "o": "self_attn.o_proj",
             "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj"}  # fmt: skip
    for layer in (0, 5, model.spec.layers - 1):
        for part, name in parts.items():
            values = state[f"model.layers.{layer}.{name}.weight"].numpy()
            assert np.array_equal(weights.values(f"layers.{layer}.{part}"), values), name
            assert np.array_equal(weights.tensor(f"layers.{layer}.{part}"), to_bf16(values, name))
    vectors = {"attn_norm": "input_layernorm", "post_attn_norm": "post_attention_layernorm", "q_norm": "self_attn.q_norm",
               "ffn_norm": "pre_feedforward_layernorm", "post_ffn_norm": "post_feedforward_layernorm"}  # fmt: skip
    if family == "qwen2":
        for part in "qkv":
            values = state[f"model.layers.3.self_attn.{part}_proj.bias"].numpy()
            assert np.array_equal(weights.tensor(f"layers.3.{part}_bias"), values)
    else:
        for part, name in vectors.items():  # theirs are stored minus 1
            values = state[f"model.layers.3.{name}.weight"].numpy() + np.float32(1)
            assert np.allclose(weights.tensor(f"layers.3.{part}"), values, rtol=1e-6, atol=0), name
