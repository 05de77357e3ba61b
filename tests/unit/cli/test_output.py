"""What goes to which stream, on a terminal and elsewhere."""

import contextlib
import os
import pty
import sys
import time

from ticktrue.cli.output import Output, Terminal, table_lines


def test_table_numbers_stand_to_the_right():
    assert table_lines(("name", "cycles"), [("a", "1"), ("long name", "1,000")], 1) == [
        "name       cycles",
        "a               1",
        "long name   1,000",
    ]


def test_stages_are_lines_where_nobody_watches(capsys):
    terminal = Terminal(Output())
    with terminal.stage("first"), terminal.stage("second"):
        terminal.detail("a count")
    terminal.note("aside")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "first\nsecond\naside\n"


def test_quiet_says_nothing(capsys):
    terminal = Terminal(Output(quiet=True))
    with terminal.stage("first"), terminal.bar() as progress:
        progress("fetch", 1, 2)
    terminal.kernels_begin()
    terminal.note("aside")
    assert capsys.readouterr().err == ""


def test_progress_of_a_download_is_one_line(capsys):
    with Terminal(Output()).bar() as progress:
        for done in range(3):
            progress("fetch m", done, 2_000)
    assert capsys.readouterr().err == "fetch m: 2,000 bytes\n"


@contextlib.contextmanager
def on_screen(monkeypatch):
    """stdout and stderr on one terminal of 80 columns; gives what to call for what was written."""
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    stream = os.fdopen(theirs, "w", buffering=1)
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")

    def written() -> str:
        stream.flush()
        time.sleep(0.05)  # the line discipline works on its own
        return os.read(ours, 100_000).decode()

    yield written
    os.close(ours)
    with contextlib.suppress(OSError):
        stream.close()


def test_a_spinner_on_a_terminal_leaves_nothing(monkeypatch):
    with on_screen(monkeypatch) as screen:
        terminal = Terminal(Output())
        with terminal.stage("outer"):
            with terminal.stage("inner"):
                terminal.detail("a count")
            terminal.stream("text")
        terminal.close()
        written = screen()
        assert "outer" in written
        assert "\x1b[2K" in written
        assert written.endswith("text\r\n")


def test_a_stage_amid_the_text_stands_behind_it_and_goes(monkeypatch):
    with on_screen(monkeypatch) as screen:
        terminal = Terminal(Output())
        terminal.stream("some text")
        with terminal.stage("compiling"):
            pass
        terminal.stream(" goes on")
        terminal.close()
        assert screen() == "some text [compiling]\x1b[12D\x1b[K goes on\r\n"


def test_a_stage_amid_the_text_needs_room(monkeypatch):
    with on_screen(monkeypatch) as screen:
        terminal = Terminal(Output())
        terminal.stream("x" * 75)
        with terminal.stage("compiling"):
            pass
        terminal.close()
        assert screen() == "x" * 75 + "\r\n"


def test_a_bar_on_a_terminal(monkeypatch):
    with on_screen(monkeypatch) as screen:
        terminal = Terminal(Output())
        with terminal.bar() as progress:
            progress("fetch m", 1, 2)
        assert "fetch m" in screen()
