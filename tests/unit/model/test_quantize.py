"""Weights in 8 bits against exact arithmetic: every bfloat16, halfway cases, scales, and the files they come from."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from tests.families import FAMILIES, write_family
from tests.models import TINY_D128, TINY_KV2, random_tensors, write_gguf, write_llama

from ticktrue.errors import InputError
from ticktrue.model import load_model
from ticktrue.model.bf16 import from_bf16
from ticktrue.model.quantize import from_e4m3, int8_rows, quantise, row_scales, to_e4m3
from ticktrue.model.tensor_file import StoredTensor


def e4m3_value(code: int) -> Fraction:
    """The value of a non-negative e4m3 code (OCP 8-bit floating point: bias 7, no infinity)."""
    exponent, mantissa = code >> 3, code & 7
    if exponent == 0:
        return Fraction(mantissa, 512)
    return Fraction(8 + mantissa, 8) * Fraction(2) ** (exponent - 7)


VALUES = [e4m3_value(code) for code in range(0x7F)]  # 0x7F is NaN


def nearest(x: Fraction) -> int:
    """The code nearest to x >= 0, ties to the even code, saturating."""
    if x >= VALUES[-1]:
        return 0x7E
    low = max(code for code, value in enumerate(VALUES) if value <= x)
    below, above = x - VALUES[low], VALUES[low + 1] - x
    if below == above:
        return low if low % 2 == 0 else low + 1
    return low if below < above else low + 1


def test_every_finite_bfloat16_rounds_to_the_nearest_e4m3() -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    bits = bits[(bits & 0x7FFF) < 0x7F80]
    values = from_bf16(bits)
    codes = to_e4m3(values)
    assert np.array_equal(codes >> 7, (bits >> 15).astype(np.uint8))  # the sign stays, also of zero
    assert np.array_equal(to_e4m3(-values), codes ^ 0x80)
    # magnitudes that round to 0 or saturate are settled at their ends; those between one by one
    positive = {float(v): int(c) for v, c in zip(values, codes, strict=True) if v > 0}
    for value, code in positive.items():
        if 2.0**-12 < value < 1_000.0:
            assert code == nearest(Fraction(value)), value
        else:
            assert code == (0 if value < 1 else 0x7E), value


def test_halfway_cases_and_their_neighbours() -> None:
    for low in range(0x7E):
        middle = (VALUES[low] + VALUES[low + 1]) / 2
        exact = np.float32(float(middle))
        assert Fraction(float(exact)) == middle
        around = [np.nextafter(exact, np.float32(0)), exact, np.nextafter(exact, np.float32(1e9))]
        even = low if low % 2 == 0 else low + 1
        assert to_e4m3(np.array(around, dtype=np.float32)).tolist() == [low, even, low + 1]
    assert to_e4m3(np.array([448, 464, 3e38, -0.0], dtype=np.float32)).tolist() == [0x7E, 0x7E, 0x7E, 0x80]


def test_widening_is_exact_and_comes_back() -> None:
    codes = np.array([c for c in range(256) if c & 0x7F != 0x7F], dtype=np.uint8)
    values = from_e4m3(codes)
    assert len(codes) == 254
    for code, value in zip(codes.tolist(), values.tolist(), strict=True):
        assert abs(Fraction(value)) == VALUES[code & 0x7F]
        assert np.signbit(value) == bool(code & 0x80)
    assert np.array_equal(to_e4m3(values), codes)


def rounded(x: Fraction) -> np.float32:
    """The float32 nearest to x (ties cannot occur in the tests that use it)."""
    guess = np.float32(float(x))
    near = [np.nextafter(guess, np.float32(-np.inf)), guess, np.nextafter(guess, np.float32(np.inf))]
    return min(near, key=lambda value: abs(Fraction(float(value)) - x))


def test_int8_against_fractions() -> None:
    rng = np.random.Generator(np.random.PCG64(7))
    values = rng.standard_normal((40, 50)).astype(np.float32) * np.float32(0.1)
    values[3] = 0
    values[4] = np.float32(-0.25)  # the largest magnitude is negative
    scale = row_scales(values, np.float32(127))
    q = int8_rows(values, scale)
    assert scale[3] == 1
    assert not q[3].any()
    assert (q[4] == -127).all()
    for row, s, found in zip(values.tolist(), scale.tolist(), q.tolist(), strict=True):
        peak = max(map(abs, row))
        if peak:
            assert np.float32(s) == rounded(Fraction(peak) / 127)
        steps = [
            round(Fraction(float(rounded(Fraction(w) / Fraction(s))))) for w in row
        ]  # Python rounds ties to even
        assert found == [max(-127, min(127, step)) for step in steps]


def test_int8_ties_go_to_even() -> None:
    values = np.array([[127, 0.5, 1.5, 2.5, -0.5, -1.5, 126.5]], dtype=np.float32)
    assert int8_rows(values, row_scales(values, np.float32(127))).tolist() == [[127, 0, 2, 2, 0, -2, 126]]


def test_a_row_too_small_for_a_scale_is_named() -> None:
    values = np.zeros((3, 4), dtype=np.float32)
    values[2, 1] = np.float32(1e-45)
    with pytest.raises(InputError, match="row 7") as refusal:
        row_scales(values, np.float32(448), "w", first=5)
    assert (refusal.value.code, refusal.value.where) == ("T346", "w[7]")


def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.Generator(np.random.PCG64(1)).standard_normal((97, 33)).astype(np.float32)
    tensor = StoredTensor("w", "F32", values.shape, 0, values.nbytes)
    raw = values.reshape(-1).view(np.uint8)
    whole = [quantise(raw, tensor, "w", fmt) for fmt in ("int8", "fp8")]
    monkeypatch.setattr("ticktrue.model.dequantize._CHUNK_VALUES", 100)
    for before, fmt in zip(whole, ("int8", "fp8"), strict=True):
        after = quantise(raw, tensor, "w", fmt)
        assert np.array_equal(before.q, after.q)
        assert np.array_equal(before.scale, after.scale)


def test_values_are_not_rounded_to_bfloat16(tmp_path: Path) -> None:
    tensors = random_tensors(TINY_KV2, 5)
    weights = load_model(write_llama(tmp_path, 5, TINY_KV2, "f32")).weights()
    down = tensors["model.layers.1.mlp.down_proj.weight"]
    assert np.array_equal(weights.values("layers.1.down"), down)
    scale = row_scales(down, np.float32(127))
    assert np.array_equal(weights.quantised("layers.1.down", "int8").scale, scale)
    assert np.array_equal(weights.quantised("layers.1.down", "int8").q, int8_rows(down, scale))
    assert np.array_equal(weights.values("final_norm"), tensors["model.norm.weight"])


def test_values_of_a_gguf_stand_in_the_hugging_face_order(tmp_path: Path) -> None:
    ours = load_model(write_gguf(tmp_path / "m.gguf", 5)).weights()
    q = random_tensors(TINY_KV2, 5)["model.layers.0.self_attn.q_proj.weight"]
    assert np.array_equal(ours.values("layers.0.q"), q)


@pytest.mark.parametrize("fmt", ["int8", "fp8"])
def test_tied_head_is_quantised_apart_from_the_embedding(tmp_path: Path, fmt: str) -> None:
    weights = load_model(write_llama(tmp_path, shape=TINY_D128)).weights()
    head = weights.quantised("lm_head", fmt)
    assert head.q.shape == weights.tensor("embed").shape
    assert not head.q.flags.writeable
    assert weights.quantised("lm_head", fmt) is head
    for name in ("embed", "layers.0.attn_norm"):
        with pytest.raises(InputError) as refusal:
            weights.quantised(name, fmt)
        assert refusal.value.code == "T345"


def test_router_stays_in_bfloat16(tmp_path: Path) -> None:
    weights = load_model(write_family(tmp_path, "qwen3_moe")).weights()
    with pytest.raises(InputError, match="not stored in 8 bits"):
        weights.quantised("layers.0.router", "int8")
    assert weights.quantised("layers.0.experts.down", "fp8").q.shape == (8 * 202, 170)


@pytest.mark.parametrize("family", FAMILIES)
def test_digest_of_each_format(tmp_path: Path, family: str) -> None:
    def digests(seed: int) -> dict[str, str]:
        weights = load_model(write_family(tmp_path / str(seed), family, seed)).weights()
        return {fmt: weights.digest(fmt) for fmt in ("bf16", "f32", "int8", "fp8")}

    first, again, other = digests(1), digests(1), digests(2)
    assert first == again
    assert first["bf16"] == first["f32"] == load_model(tmp_path / "1").weights().digest()
    assert len({*first.values(), *other.values()}) == 6


def test_digest_of_an_unknown_format(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="q4") as refusal:
        load_model(write_llama(tmp_path)).weights().digest("q4")
    assert refusal.value.code == "T330"


def test_digest_covers_scales(tmp_path: Path) -> None:
    """Twice the matrix has the same int8 values; only the scales tell them apart."""
    tensors = random_tensors(TINY_KV2, 5)
    from tests.models import write_safetensors

    digests = set()
    for factor in (1, 2):
        directory = write_llama(tmp_path / str(factor), 5, TINY_KV2, "f32")
        scaled = dict(tensors)
        scaled["model.layers.0.mlp.up_proj.weight"] = scaled[
            "model.layers.0.mlp.up_proj.weight"
        ] * np.float32(factor)
        write_safetensors(directory / "model.safetensors", {n: ("F32", v) for n, v in scaled.items()})
        weights = load_model(directory).weights()
        digests.add((weights.digest("int8"), weights.quantised("layers.0.up", "int8").q.tobytes()))
    assert len({digest for digest, _ in digests}) == 2
    assert len({q for _, q in digests}) == 1
