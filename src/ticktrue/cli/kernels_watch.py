"""Sees numba compile kernels: the first use of the package takes a while, and must not look like a hang."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from numba.core import event

from ticktrue.cli.output import Terminal

WORTH_A_WORD = 4
"""Kernels after which it is said: another model may ask for one or two more forms of a kernel, a tenth of a second each."""


class KernelWatch(event.Listener):  # type: ignore[misc]  # numba has no types
    """Counts kernels as they are compiled (not those read from numba's cache) and the seconds that takes."""

    def __init__(self, terminal: Terminal) -> None:
        self.count = 0
        self.seconds = 0.0
        self._terminal = terminal
        self._depth = 0
        self._begin = 0.0

    def on_start(self, ev: event.Event) -> None:
        """One more kernel; kernels that it calls are compiled inside."""
        if self._depth == 0:
            self._begin = time.perf_counter()
        self._depth += 1
        self.count += 1
        if self.count == WORTH_A_WORD:
            self._terminal.kernels_begin()
        name = getattr(ev.data.get("dispatcher"), "__name__", "")
        self._terminal.detail(f"compiling kernels (once): {self.count} {name}")

    def on_end(self, ev: event.Event) -> None:  # noqa: ARG002 - the signature of numba's listener
        """A kernel is ready."""
        self._depth -= 1
        if self._depth == 0:
            self.seconds += time.perf_counter() - self._begin
            self._terminal.detail("")


@contextmanager
def watch_kernels(terminal: Terminal) -> Iterator[KernelWatch]:
    """Tells of kernels being compiled for as long as it lasts."""
    watch = KernelWatch(terminal)
    with event.install_listener("numba:compile", watch):
        yield watch
