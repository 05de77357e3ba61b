"""A catalog that is wrong gives one InputError that says where."""

import shutil
from importlib import resources
from pathlib import Path

import pytest

from ticktrue.errors import InputError, UsageError
from ticktrue.hw import list_gpus, list_systems, load_system

SHIPPED = Path(str(resources.files("ticktrue.hw") / "catalog"))


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    for name in ("sources.toml", "chip/tiny.toml", "system/tiny-4.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(SHIPPED / name, tmp_path / name)
    return tmp_path


def edit(catalog: Path, file: str, old: str, new: str) -> None:
    text = (catalog / file).read_text()
    assert old in text
    (catalog / file).write_text(text.replace(old, new, 1))


def test_catalog_of_the_user_is_read_like_the_shipped_one(catalog: Path) -> None:
    assert load_system("tiny-4", catalog) == load_system("tiny-4")
    assert [item.name for item in list_systems(catalog)] == ["tiny-4"]
    with pytest.raises(UsageError):
        load_system("tiny-16", catalog)


CHIP = "chip/tiny.toml"
SYSTEM = "system/tiny-4.toml"
NAME = 'name = "tiny"'
STREAMS = "[fact.streams]"
LANES = 'lanes = "tray_lanes"'
CASES = {
    "unknown-key-of-a-fact": (CHIP, STREAMS, STREAMS + "\nhue = 1", "T370", "hue", "fact streams"),
    "unknown-key-of-a-chip": (CHIP, NAME, NAME + "\nowner = 1", "T370", "owner", CHIP),
    "fact-misspelled": (CHIP, STREAMS, "[fact.stream]", "T370", "streams", "tiny"),
    "not-toml": (CHIP, STREAMS, "[fact.streams", "T370", "TOML", CHIP),
    "text-for-a-number": (CHIP, "value = 320", 'value = "320"', "T370", "value", "fact vector_bytes"),
    "unknown-grade": (CHIP, '"assumed"', '"guess"', "T370", "guess", "format bf16"),
    "unknown-source": (CHIP, 'source = "TINY"', 'source = "TINNY"', "T370", "TINNY", "format bf16"),
    "no-reason": (CHIP, 'why = "short"\n', "", "T370", "why", "fact"),
    "low-above-value": (CHIP, "low = 320", "low = 321", "T371", "low <= value", "fact vector_bytes"),
    "half-a-range": (CHIP, "low = 320\n", "", "T371", "both low and high", "fact vector_bytes"),
    "other-unit": (CHIP, 'unit = "bytes"', 'unit = "rows"', "T371", "unit bytes", "fact vector_bytes"),
    "fraction": (CHIP, "value = 5\n", "value = 5.5\n", "T371", "whole number", "fact"),
    "other-schema": (CHIP, "chip/v1", "chip/v9", "T370", "schema", CHIP),
    "unknown-chip": (SYSTEM, 'chip = "tiny"', 'chip = "tinny"', "T370", "tinny", SYSTEM),
    "other-name": (SYSTEM, 'name = "tiny-4"', 'name = "tiny-5"', "T370", "tiny-5", SYSTEM),
    "fact-not-used": (SYSTEM, "[fact.tray_lanes]", "[fact.tray_lane]", "T370", "tray_lane", SYSTEM),
    "fact-not-there": (SYSTEM, LANES, LANES + '\nindex = "one"', "T370", "one", SYSTEM),
    "no-hop": (SYSTEM, "[[hop]]", "[[hops]]", "T370", "hop", SYSTEM),
    "bad-nest": (SYSTEM, LANES, LANES + '\nindex = "tray_lanes"', "T374", "index of", "hop tray"),
    "bad-date": ("sources.toml", 'where"\ndate = "2', 'where"\ndate = "in 2', "T370", "date", "TINY"),
}


@pytest.mark.parametrize(("file", "old", "new", "code", "words", "where"), CASES.values(), ids=list(CASES))
def test_malformed_catalog(
    catalog: Path, file: str, old: str, new: str, code: str, words: str, where: str
) -> None:
    edit(catalog, file, old, new)
    with pytest.raises(InputError) as err:
        load_system("tiny-4", catalog)
    assert err.value.code == code
    assert words in str(err.value)
    assert where in err.value.where
    assert err.value.exit_code == 3


def test_every_source_of_the_shipped_catalog_is_used() -> None:
    used = {fact.source for item in list_systems() for _, fact in load_system(item.name).facts()}
    used |= {fact.source for gpu in list_gpus() for fact in gpu.facts}
    keys = {source.split(":")[0] for source in used}
    text = (SHIPPED / "sources.toml").read_text()
    assert keys == {line[len("[source.") : -1] for line in text.splitlines() if line.startswith("[source.")}


@pytest.mark.parametrize("gone", ["sources.toml", "system", "chip"])
def test_catalog_with_a_part_missing(catalog: Path, gone: str) -> None:
    if (catalog / gone).is_dir():
        shutil.rmtree(catalog / gone)
    else:
        (catalog / gone).unlink()
    with pytest.raises(InputError, match="found none") as err:
        load_system("tiny-4", catalog)
    assert err.value.code == "T370"
