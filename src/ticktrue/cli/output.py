"""What every verb shares about its output: the flags, and the one place that writes to stdout and stderr.

Results go to stdout; progress, notes and errors go to stderr. Knows no verb.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.cells import cell_len
from rich.console import Console

if TYPE_CHECKING:
    from rich.progress import TaskID
    from rich.status import Status

PLAIN_WIDTH = 120
"""Columns of a table where there is no terminal to ask."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """How a result is shown."""

    json: Annotated[bool, Parameter(negative="")] = False
    "Print exactly one JSON document on stdout, errors included."
    quiet: Annotated[bool, Parameter(negative="")] = False
    "No progress, no notes: the result alone."


PLAIN = Output()


def write_whole(text: str) -> None:
    """Writes all of a text to stdout: an unbuffered stream may take only a part of it and say nothing.

    Raises:
        OSError: if stdout cannot take it.
    """
    sys.stdout.flush()
    out = getattr(sys.stdout, "buffer", None)
    if out is None:  # a stand-in for stdout that takes text only
        sys.stdout.write(text)
        return
    rest = memoryview(text.encode(sys.stdout.encoding or "utf-8", errors="replace"))
    while rest:
        rest = rest[out.write(rest) or 0 :]
    out.flush()


class Terminal:
    """stdout for results, stderr for progress; a spinner on a terminal, one line per stage elsewhere, silence if quiet."""

    def __init__(self, output: Output) -> None:
        self.json = output.json
        self.quiet = output.quiet
        self._out = _console(stderr=False)
        self._err = _console(stderr=True)
        self._status: Status | None = None
        self._what = ""
        self._mid_line = False
        self._column = 0

    @property
    def interactive(self) -> bool:
        """Whether a person watches stderr."""
        return self._err.is_terminal and not self.quiet

    @property
    def width(self) -> int:
        """Columns for a table."""
        return self._out.width

    def line(self, text: str = "") -> None:
        """One line of a result."""
        self._end_stream()
        self._out.print(text, soft_wrap=True)

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> None:
        """Rows in columns; the first `left` columns are text, the others numbers, so to the right."""
        for line in table_lines(header, rows, left):
            self.line(line)

    def document(self, data: bytes) -> None:
        """One JSON document, the whole of stdout."""
        self._stop()
        write_whole(data.decode())

    def raw(self, text: str) -> None:
        """Text as it is, the whole of stdout."""
        self._stop()
        write_whole(text)

    def stream(self, text: str) -> None:
        """Text as it comes, without a line end of its own."""
        if not text:
            return
        self._stop()
        sys.stdout.write(text)
        sys.stdout.flush()
        self._mid_line = not text.endswith("\n")
        line = text.rpartition("\n")[2]
        before = 0 if "\n" in text else self._column
        self._column = (before + cell_len(line)) % max(self._out.width, 1)

    def note(self, text: str) -> None:
        """One line beside the result."""
        if not self.quiet:
            self._make_way()
            self._err.print(text, soft_wrap=True, style=None if self._err.no_color else "dim")

    @contextmanager
    def stage(self, what: str) -> Iterator[None]:
        """Says what is being done for as long as it lasts."""
        if self.quiet:
            yield
            return
        if not self._err.is_terminal:
            self._err.print(what, soft_wrap=True)
            yield
            return
        if self._mid_line:  # a spinner would overwrite the text that is being streamed
            with self._aside(f" [{what}]"):
                yield
            return
        before, self._what = self._what, what
        self._show(what)
        try:
            yield
        finally:
            self._what = before
            if before and not self._mid_line:
                self._show(before)
            else:
                self._stop()

    @contextmanager
    def _aside(self, text: str) -> Iterator[None]:
        """Shows a text behind the one being streamed, as long as it lasts and if the line has room for it."""
        room = self._out.is_terminal and self._column + cell_len(text) < self._out.width
        if room:
            sys.stdout.flush()
            sys.stderr.write(f"{text}\x1b[{cell_len(text)}D")
            sys.stderr.flush()
        try:
            yield
        finally:
            if room:
                sys.stderr.write("\x1b[K")
                sys.stderr.flush()

    def kernels_begin(self) -> None:
        """The first kernel is being compiled: where no spinner shows it, one line says so."""
        if self._status is None:
            self.note("compiling kernels (once for this installation; about a minute)")

    def detail(self, text: str) -> None:
        """Adds to the stage on a terminal, e.g. a count that moves; nothing elsewhere."""
        if self._status is not None:
            self._status.update(f"{self._what}; {text}" if text else self._what)

    @contextmanager
    def bar(self) -> Iterator[Callable[[str, int, int], None]]:
        """A progress bar on a terminal: gives what is to be called with (what, done, total)."""
        if not self.interactive:
            yield self._say_once()
            return
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        with Progress(*columns, console=self._err, transient=True) as progress:
            tasks: dict[str, TaskID] = {}

            def tell(what: str, done: int, total: int) -> None:
                self._stop()
                if what not in tasks:
                    tasks[what] = progress.add_task(what, total=total or None)
                progress.update(tasks[what], completed=done, total=total or None)

            yield tell

    def _say_once(self) -> Callable[[str, int, int], None]:
        said: set[str] = set()

        def tell(what: str, _done: int, total: int) -> None:
            if what not in said:
                said.add(what)
                self.note(f"{what}: {total:,} bytes" if total else what)

        return tell

    def _show(self, what: str) -> None:
        if self._status is None:
            self._status = self._err.status(what, spinner="dots")
            self._status.start()
        else:
            self._status.update(what)

    def _stop(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None

    def _end_stream(self) -> None:
        self._stop()
        if self._mid_line:
            sys.stdout.write("\n")
            sys.stdout.flush()
            self._mid_line = False

    def _make_way(self) -> None:
        """Ends a streamed line where a line of stderr would stand in it; a stdout that goes elsewhere is left as it is."""
        self._stop()
        if self._out.is_terminal:
            self._end_stream()

    def close(self) -> None:
        """Leaves the terminal as it was found."""
        self._end_stream()


class _Console(Console):
    """A console whose broken pipe is the caller's to tell; rich would exit with status 1."""

    def on_broken_pipe(self) -> None:
        """Passes it on."""
        raise BrokenPipeError


def _console(*, stderr: bool) -> Console:
    console = _Console(stderr=stderr, highlight=False, emoji=False, markup=False)
    if not console.is_terminal:
        console.width = PLAIN_WIDTH
    return console


def table_lines(header: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> list[str]:
    """The lines of a table: columns two spaces apart, the first `left` to the left, the others to the right."""
    cells = [list(header), *(list(row) for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = []
    for row in cells:
        parts = [
            c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(parts).rstrip())
    return lines
