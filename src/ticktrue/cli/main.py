"""The command line: verbs by name, each imported when it is called; and the exit status of whatever happens.

0 yes, 1 the answer is no, 2 usage, 3 input, 4 environment, 5 bug, 130 and 143 signals.
"""

import signal
import sys
from collections.abc import Sequence
from importlib.metadata import version
from types import FrameType
from typing import NoReturn

from cyclopts import App, CycloptsError

from ticktrue.cli import failure
from ticktrue.cli.surroundings import STDIN
from ticktrue.errors import Error

_SUMMARY = """Compile a real language model into a verified, cycle-exact program for SRAM-only chips, and run it to the bit.

Start with `ticktrue run`, which needs no arguments.
"""
_VERBS = (
    ("run", "Answer a prompt on the simulated machine: compile, verify, execute, time."),
    ("compile", "Compile a model into a verified program file."),
    ("verify", "Prove that a program is legal, and that it computes the right expression."),
    ("time", "Cycles of a program, where they go, and on what assumptions they rest."),
    ("inspect", "What a program holds: summary, text form, or the timeline of a layer."),
    ("diff", "Differences between two programs."),
    ("fit", "Which systems hold a model: bytes by number format, and how many chips it takes."),
    ("opcheck", "What of a model's architecture is covered, before anyone plans a migration."),
    ("explain", "What a violation code means, and what to do."),
)
_GROUPS = (
    (
        "hw",
        "The machines of the catalog.",
        (("list", "All systems."), ("show", "Every number of one system, with source, grade and range.")),
    ),
    (
        "model",
        "The models that can be run.",
        (
            ("list", "Models that have a name."),
            ("fetch", "Fetch a model into the cache."),
            ("show", "Shape and constants of a model."),
        ),
    ),
)

VERBS = (
    *((verb,) for verb, _ in _VERBS),
    *((group, verb) for group, _, verbs in _GROUPS for verb, _ in verbs),
)
"""The words of every command."""


class Terminated(BaseException):
    """SIGTERM came: unwinds like an interrupt, so that no half file stays."""


def make_app(argv: Sequence[str] = ()) -> App:
    """The command line for `argv`. No verb is imported before it is called.

    A verb that is named in `argv` shows its own docstring as help, the others one line.
    """
    words = [a for a in argv if not a.startswith("-")]
    app = App(
        name="ticktrue",
        help=_SUMMARY,
        version=_version,
        result_action="return_value",
        suppress_keyboard_interrupt=False,
    )
    for number, (verb, line) in enumerate(_VERBS):
        own = words[:1] == [verb]
        app.command(f"ticktrue.cli.{verb}:{verb}", name=verb, help=None if own else line, sort_key=number)
    for number, (group, line, verbs) in enumerate(_GROUPS, start=len(_VERBS)):
        sub = App(name=group, help=line, sort_key=number)
        for verb, about in verbs:
            own = words[:2] == [group, verb]
            sub.command(f"ticktrue.cli.{group}:{verb}", name=verb, help=None if own else about)
        app.command(sub)
    return app


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs the command line and exits."""
    sys.exit(status_of(sys.argv[1:] if argv is None else argv))


def status_of(argv: Sequence[str]) -> int:
    """Runs one command and gives its exit status; every failure is told on the way."""
    if sys.stdout is None or sys.stderr is None:
        return failure.closed()
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        return _told(list(argv))
    except KeyboardInterrupt:
        return failure.stopped("interrupted", signal.SIGINT)
    except Terminated:
        return failure.stopped("terminated", signal.SIGTERM)
    except BrokenPipeError:
        return failure.broken_pipe()
    finally:
        signal.signal(signal.SIGTERM, before)


def _told(argv: list[str]) -> int:
    try:
        found = make_app(argv)(_dashes(argv), exit_on_error=False, print_error=False)
        sys.stdout.flush()
    except CycloptsError as problem:
        return failure.tell(failure.usage_error(problem), argv)
    except Error as problem:
        return failure.tell(problem, argv)
    except BrokenPipeError:
        raise
    except OSError as problem:
        return failure.tell_system(problem, argv)
    except Exception as problem:  # noqa: BLE001 - the one place: whatever it is becomes a report and exit 5
        return failure.tell_bug(problem, argv)
    return found if isinstance(found, int) else 0


def _dashes(argv: list[str]) -> list[str]:
    """The words with `-` as standard input, but where it is the file to write."""
    before = ["", *argv[:-1]]
    return [
        STDIN if w == "-" and b not in {"-o", "--output"} else w for b, w in zip(before, argv, strict=True)
    ]


def _version() -> str:
    return version("ticktrue")


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    raise Terminated
