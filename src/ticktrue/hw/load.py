"""Reads systems from a catalog of TOML files: the shipped one, or a folder of the user's with the same shape.

A catalog holds `sources.toml`, `chip/*.toml`, `system/*.toml` and, for planning, `gpu/*.toml`; the file of `x` is `x.toml`.
"""

from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable

from ticktrue.errors import InputError, UsageError
from ticktrue.hw.catalog_file import (
    ChipFile,
    GpuFile,
    SourcesFile,
    SystemFile,
    chip_of,
    decode,
    gpu_of,
    layout_of,
)
from ticktrue.hw.chip import Chip
from ticktrue.hw.fact import nearest
from ticktrue.hw.gpu import Gpu
from ticktrue.hw.system import System
from ticktrue.units import Bytes


@dataclass(frozen=True, slots=True)
class SystemSummary:
    """A system of the catalog in one line; `sram_bytes` is that of all chips together."""

    name: str
    title: str
    chip: str
    chips: int
    sram_bytes: Bytes
    hop_classes: tuple[str, ...]


def load_system(name: str, catalog: Traversable | None = None) -> System:
    """The system of that name from the shipped catalog, or from the folder `catalog`.

    Raises:
        UsageError: no such system; the hint lists the nearest names.
        InputError: a file of the catalog is malformed, or contradicts itself.
    """
    root = _shipped() if catalog is None else catalog
    known = _names(root, "system")
    if name not in known:
        raise UsageError(
            f"expected the name of a system, found {name!r}", code="T110", hint=nearest(name, known)
        )
    where = f"system/{name}.toml"
    sources = decode(_read(root, "sources.toml"), SourcesFile, "sources.toml")
    file = decode(_read(root, where), SystemFile, where)
    _check_name(file.name, name, where)
    layout = layout_of(file, sources, where)
    chips = _names(root, "chip")
    if file.chip not in chips:
        raise InputError(
            f"expected a chip of the catalog, found {file.chip!r}",
            code="T370",
            where=where,
            hint=nearest(file.chip, chips),
        )
    return System(file.name, file.title, _chip(root, file.chip, sources), layout.value("chips"), layout)


def list_systems(catalog: Traversable | None = None) -> tuple[SystemSummary, ...]:
    """All systems of the catalog, sorted by name."""
    root = _shipped() if catalog is None else catalog
    return tuple(_summary(load_system(name, root)) for name in _names(root, "system"))


def load_gpu(name: str, catalog: Traversable | None = None) -> Gpu:
    """The GPU of that name from the shipped catalog, or from the folder `catalog`.

    Raises:
        UsageError: T110, no such GPU; the hint lists all.
        InputError: a file of the catalog is malformed, or contradicts itself.
    """
    root = _shipped() if catalog is None else catalog
    known = _names(root, "gpu")
    if name not in known:
        raise UsageError(
            f"expected the name of a GPU system, found {name!r}",
            code="T110",
            hint=f"known: {', '.join(known)}",
        )
    where = f"gpu/{name}.toml"
    sources = decode(_read(root, "sources.toml"), SourcesFile, "sources.toml")
    file = decode(_read(root, where), GpuFile, where)
    _check_name(file.name, name, where)
    return gpu_of(file, sources, where)


def gpu_names() -> tuple[str, ...]:
    """Names of the GPU systems of the shipped catalog, sorted."""
    return _names(_shipped(), "gpu")


def list_gpus(catalog: Traversable | None = None) -> tuple[Gpu, ...]:
    """All GPUs of the catalog, sorted by name."""
    root = _shipped() if catalog is None else catalog
    return tuple(load_gpu(name, root) for name in _names(root, "gpu"))


def _summary(system: System) -> SystemSummary:
    """The line of one system."""
    sram = Bytes(system.chips * system.chip.value("sram_bytes"))
    return SystemSummary(system.name, system.title, system.chip.name, system.chips, sram, system.hop_classes)


def _chip(root: Traversable, name: str, sources: SourcesFile) -> Chip:
    """The chip of that name."""
    where = f"chip/{name}.toml"
    file = decode(_read(root, where), ChipFile, where)
    _check_name(file.name, name, where)
    return chip_of(file, sources, where)


def _check_name(found: str, expected: str, where: str) -> None:
    """Checks that a file names itself as its file name does."""
    if found != expected:
        raise InputError(f"expected the name {expected!r}, found {found!r}", code="T370", where=where)


def _names(root: Traversable, folder: str) -> tuple[str, ...]:
    """Names of the files of a folder of the catalog, without ending, sorted."""
    path = root / folder
    if not path.is_dir():
        raise InputError(
            f"expected a catalog with a folder {folder!r}, found none", code="T370", where=str(root)
        )
    return tuple(
        sorted(item.name.removesuffix(".toml") for item in path.iterdir() if item.name.endswith(".toml"))
    )


def _read(root: Traversable, path: str) -> str:
    """The text of one file of the catalog."""
    file = root.joinpath(*path.split("/"))
    if not file.is_file():
        raise InputError("expected a file of the catalog, found none", code="T370", where=path)
    return file.read_text(encoding="utf-8")


def _shipped() -> Traversable:
    """The catalog inside the package."""
    return resources.files("ticktrue.hw") / "catalog"
