"""Program <-> bytes: one safetensors container, integer columns beside one JSON header; same program, same bytes.

The sha256 of a program covers the image and the digest of every timetable, so a program of fewer timetables has its own.
"""

import contextlib
import errno
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load as load_container
from safetensors.numpy import save as save_container

from ticktrue.errors import EnvironmentProblem, InputError
from ticktrue.program import columns as col
from ticktrue.program.types import (
    SCHEMA,
    Image,
    ImageKey,
    KvScales,
    Loop,
    Output,
    Program,
    Region,
    StepKind,
    Tensor,
    Timetable,
)

_HEADER = "ticktrue"
_PREFIX = 8  # bytes of the container that give its header's length
_encoder = msgspec.json.Encoder(order="sorted")


class TimetableHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What of a timetable is not a column."""

    kind: StepKind
    scratch: tuple[Region, ...]
    labels: str
    outputs: tuple[Output, ...]
    loops: tuple[Loop, ...]
    duration: int
    dataflow: str
    deskew: int = 0


class ImageHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What of an image is not a column."""

    key: ImageKey
    tensors: tuple[Tensor, ...]
    regions: tuple[Region, ...]
    kv_scales: KvScales = ()


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The JSON header of a program file."""

    schema: str
    sha256: str
    image: ImageHeader
    timetables: tuple[TimetableHeader, ...]


@dataclass(frozen=True, slots=True)
class Decoded:
    """A program read from bytes, the sha256 it states and the sha256 of what it holds."""

    program: Program
    stated: str
    computed: str

    @property
    def intact(self) -> bool:
        """Whether the bytes are those that were sealed."""
        return self.stated == self.computed


def _hash(*parts: bytes) -> str:
    h = hashlib.sha256()
    for part in parts:
        h.update(len(part).to_bytes(8, "little"))
        h.update(part)
    return h.hexdigest()


def _image_header(image: Image) -> ImageHeader:
    return ImageHeader(image.key, image.tensors, image.regions, image.kv_scales)


def _timetable_header(t: Timetable) -> TimetableHeader:
    return TimetableHeader(
        kind=t.kind, scratch=t.scratch, labels="\n".join(t.labels), outputs=t.outputs, loops=t.loops,
        duration=t.duration, dataflow=t.dataflow, deskew=t.deskew,
    )  # fmt: skip


def _columns(t: Timetable) -> dict[str, npt.NDArray[Any]]:
    return {
        "templates": np.ascontiguousarray(t.templates, dtype=np.int32),
        "template_start": np.ascontiguousarray(t.template_start, dtype=np.int32),
        "chains": np.ascontiguousarray(t.chains, dtype=np.int64),
        "rows": np.ascontiguousarray(t.rows, dtype=np.int32),
    }


def timetable_digest(t: Timetable) -> str:
    """sha256 of one timetable: its header and its columns."""
    parts = [_encoder.encode(_timetable_header(t))]
    for name, array in _columns(t).items():
        parts += [name.encode(), str(array.shape).encode(), array.tobytes()]
    return _hash(*parts)


def image_digest(image: Image) -> str:
    """sha256 of an image: its header and its packing table."""
    header = _encoder.encode(_image_header(image))
    return _hash(header, np.ascontiguousarray(image.pieces, dtype=np.int32).tobytes())


def program_digest(program: Program) -> str:
    """The one sha256 of a program, over its image and the digests of its timetables."""
    parts = [SCHEMA.encode(), image_digest(program.image).encode()]
    parts += [timetable_digest(t).encode() for t in program.timetables]
    return _hash(*parts)


def encode(program: Program) -> bytes:
    """The bytes of a program file."""
    header = Header(
        schema=SCHEMA,
        sha256=program_digest(program),
        image=_image_header(program.image),
        timetables=tuple(_timetable_header(t) for t in program.timetables),
    )
    arrays: dict[str, npt.NDArray[Any]] = {
        "pieces": np.ascontiguousarray(program.image.pieces, dtype=np.int32)
    }
    for i, t in enumerate(program.timetables):
        arrays |= {f"{i:03d}.{name}": array for name, array in _columns(t).items()}
    return bytes(save_container(arrays, metadata={_HEADER: _encoder.encode(header).decode()}))


def decode(data: bytes, where: str = "program") -> Decoded:
    """The program in `data`.

    Raises:
        InputError: T350 not a program file or truncated, T351 another schema, T352 a header or column of the wrong form.
    """
    if len(data) < 2 * _PREFIX or int.from_bytes(data[:_PREFIX], "little") > len(data) - _PREFIX:
        raise InputError(f"expected a ticktrue program, found {len(data)} bytes that are not one (truncated?)",
                         code="T350", where=where, hint="compile it again")  # fmt: skip
    try:
        arrays = load_container(data)
        meta = msgspec.json.decode(data[_PREFIX : _PREFIX + int.from_bytes(data[:_PREFIX], "little")])
        text = meta.get("__metadata__", {}).get(_HEADER, "")
    except (SafetensorError, msgspec.DecodeError, ValueError, AttributeError, KeyError) as e:
        raise InputError(f"expected a ticktrue program, found a damaged container: {e}", code="T350",
                         where=where, hint="compile it again") from e  # fmt: skip
    try:
        schema = msgspec.json.decode(text or "{}").get("schema")
        if schema != SCHEMA:
            raise InputError(f"expected schema {SCHEMA}, found {schema!r}", code="T351", where=where,
                             hint="compile it again with this version")  # fmt: skip
        header = msgspec.json.decode(text, type=Header)
    except (msgspec.DecodeError, AttributeError) as e:
        raise InputError(f"program header: {e}", code="T352", where=where, hint="compile it again") from e
    program = _assemble(header, arrays, where)
    return Decoded(program, header.sha256, program_digest(program))


def _column(
    arrays: dict[str, npt.NDArray[Any]], name: str, dtype: type, width: int, where: str
) -> npt.NDArray[Any]:
    a = arrays.get(name)
    shape = f"{np.dtype(dtype)}[*, {width}]" if width else f"{np.dtype(dtype)}[*]"
    ok = (
        a is not None
        and a.dtype == dtype
        and (a.ndim - 1 == int(bool(width)) and (not width or a.shape[1] == width))
    )
    if a is None or not ok:
        found = "nothing" if a is None else f"{a.dtype}{list(a.shape)}"
        raise InputError(f"column {name}: expected {shape}, found {found}", code="T352", where=where)
    a.flags.writeable = False
    return a


def _assemble(header: Header, arrays: dict[str, npt.NDArray[Any]], where: str) -> Program:
    pieces = _column(arrays, "pieces", np.int32, col.P_COLUMNS, where)
    h = header.image
    image = Image(h.key, h.tensors, h.regions, pieces, h.kv_scales)
    timetables = []
    for i, of in enumerate(header.timetables):
        timetables.append(
            Timetable(
                kind=of.kind,
                scratch=of.scratch,
                templates=_column(arrays, f"{i:03d}.templates", np.int32, col.T_COLUMNS, where),
                template_start=_column(arrays, f"{i:03d}.template_start", np.int32, 0, where),
                chains=_column(arrays, f"{i:03d}.chains", np.int64, 3, where),
                rows=_column(arrays, f"{i:03d}.rows", np.int32, col.V_COLUMNS, where),
                labels=tuple(of.labels.split("\n")) if of.labels else (),
                outputs=of.outputs,
                loops=of.loops,
                duration=of.duration,
                dataflow=of.dataflow,
                deskew=of.deskew,
            )
        )
    return Program(image, tuple(timetables))


def read_program(path: Path) -> Decoded:
    """The program in a file.

    Raises:
        InputError: T353 if there is no such file, else as `decode`.
    """
    try:
        data = path.read_bytes()
    except OSError as e:
        raise InputError(f"cannot read the program: {e.strerror}", code="T353", where=str(path)) from e
    return decode(data, str(path))


def write_program(program: Program, path: Path) -> None:
    """Writes a program file as a whole: beside its place first, then moved, so no half file is ever seen.

    What a link names is written, not the link; a device or pipe takes the bytes as they are.

    Raises:
        EnvironmentProblem: T416 if it cannot be written.
    """
    data = encode(program)
    with _writing(path):
        if _special(path):
            path.write_bytes(data)
            return
        with _beside(path) as temporary:
            temporary.write_bytes(data)
            temporary.replace(path.resolve())


def check_writable(path: Path) -> None:
    """Finds out whether `write_program` can write there, before the work whose result it is to hold; leaves nothing behind.

    Raises:
        EnvironmentProblem: T416 if not.
    """
    with _writing(path):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not _special(path):
            with _beside(path) as temporary:
                temporary.write_bytes(b"")


def _special(path: Path) -> bool:
    """Whether there is something that cannot be replaced by a file."""
    return path.exists() and not path.is_file()


@contextlib.contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """A name in the directory of a file that is to be; whatever is there in the end is removed."""
    place = path.resolve()
    temporary = place.with_name(f".{place.name}.{os.getpid()}.part")
    try:
        yield temporary
    finally:
        with contextlib.suppress(OSError):  # where nothing can be written, nothing can be removed
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as e:
        why = e.strerror if isinstance(e, OSError) else str(e)
        raise EnvironmentProblem(f"cannot write the program: {why}", code="T416", where=str(path)) from e
