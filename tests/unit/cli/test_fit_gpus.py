"""`ticktrue fit` beside GPUs: rows by memory alone, from the catalog."""

import json

import pytest

from ticktrue.cli.main import main
from ticktrue.hw import list_gpus, load_gpu
from ticktrue.units import ceil_div


def _document(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, object]:
    with pytest.raises(SystemExit):
        main(["fit", *args, "--json"])
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_gpus_are_weighed_by_their_memory(capsys: pytest.CaptureFixture[str]) -> None:
    names = ",".join(gpu.name for gpu in list_gpus())
    found = _document(capsys, "kimi-k2", "--systems", names, "--format", "fp8", "--context", "100000")
    rows = {row["system"]: row for row in found["memories"]}  # type: ignore[attr-defined]
    (numbers,) = found["precisions"]  # type: ignore[misc]
    assert sorted(rows) == sorted(gpu.name for gpu in list_gpus())
    for name, row in rows.items():
        gpu = load_gpu(name)
        capacity, has = int(gpu.fact("memory_bytes").value), int(gpu.fact("domain_gpus").value)
        needed = ceil_div(numbers["total_bytes"], capacity)
        assert (row["capacity_bytes"], row["devices"], row["needed_devices"]) == (capacity, has, needed)
        assert row["fits"] == (needed <= has)
    assert rows["gb300-nvl72"]["fits"]
    assert not rows["a100"]["fits"]


def test_both_kinds_of_system_are_named_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    found = _document(capsys, "gemma-4-31b", "--systems", "h200,groq3-lpx", "--format", "fp8")
    assert {row["system"] for row in found["rows"]} == {"groq3-lpx"}  # type: ignore[attr-defined]
    assert {row["system"] for row in found["memories"]} == {"h200"}  # type: ignore[attr-defined]
    assert found["held"]


def test_a_name_in_neither_catalog_is_one_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["fit", "gemma-4-31b", "--systems", "h20"])
    assert stopped.value.code == 2
    assert "T110" in capsys.readouterr().err


@pytest.mark.parametrize("chips", ["10000000", "7808"])
def test_a_pipeline_has_no_more_stages_than_layers(capsys: pytest.CaptureFixture[str], chips: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["fit", "gemma-4-31b", "--chips", chips, "--format", "fp8"])
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert "T141" in error
    assert "nearest:" in error
