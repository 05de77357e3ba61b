"""How a failure is told: one line and a hint on stderr, or one JSON document on stdout, and the exit status."""

import contextlib
import errno
import os
import shlex
import signal
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ticktrue.cli.output import write_whole
from ticktrue.errors import EnvironmentProblem, Error, UsageError

if TYPE_CHECKING:
    from cyclopts import CycloptsError

BUG = 5
SIGNALLED = 128
_CODES = {
    "UnknownCommandError": "T101",
    "UnknownOptionError": "T102",
    "UnusedCliTokensError": "T102",
    "CoercionError": "T103",
    "ValidationError": "T103",
    "MissingArgumentError": "T104",
    "RepeatArgumentError": "T105",
}


def usage_error(problem: "CycloptsError") -> UsageError:
    """What is wrong with a command line: T101 verb, T102 flag, T103 value, T104 missing, T105 given twice, T100 other."""
    message = " ".join(str(problem).split())
    code = _CODES.get(type(problem).__name__, "T100")
    chain = " ".join(problem.command_chain or ())
    hint = f"`ticktrue {chain} --help`" if chain else "`ticktrue --help`"
    return UsageError(
        message[:1].lower() + message[1:].rstrip("."), code=code, where="command line", hint=hint
    )


def tell(problem: Error, argv: Sequence[str]) -> int:
    """Prints an error where the user asked for it; gives its exit status."""
    if "--json" in argv:
        from ticktrue.cli.documents import ErrorDocument, encode, header

        document = ErrorDocument(
            **header(argv), code=problem.code, message=problem.message, where=problem.where, hint=problem.hint,
            exit_status=problem.exit_code,
        )  # fmt: skip
        try:
            write_whole(encode(document).decode())
        except OSError:
            print(problem, file=sys.stderr)
            _abandon_stdout()
    else:
        try:
            sys.stdout.flush()
        except OSError:
            _abandon_stdout()
        print(problem, file=sys.stderr)
    return problem.exit_code


_ENVIRONMENT = frozenset({
    errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EBADF, errno.EFBIG, errno.EACCES, errno.EPERM, errno.EMFILE,
    errno.ENFILE, errno.ENOMEM,
})  # fmt: skip


def tell_system(problem: OSError, argv: Sequence[str]) -> int:
    """What the system refuses (a full disk behind stdout, a read-only place) is no bug of ours."""
    if problem.errno not in _ENVIRONMENT:
        return tell_bug(problem, argv)
    what = os.strerror(problem.errno or 0)
    where = str(problem.filename) if problem.filename else "output"
    _abandon_stdout()
    refused = EnvironmentProblem(f"cannot write the result: {what}", code="T418", where=where,
                                 hint="free space, or write somewhere else")  # fmt: skip
    print(refused, file=sys.stderr)
    return refused.exit_code


def closed() -> int:
    """The status where stdout or stderr is closed before the start."""
    if sys.stderr is not None:
        print(
            "T418: standard output is closed [output]\n  hint: redirect it to a file or to /dev/null",
            file=sys.stderr,
        )
    os._exit(EnvironmentProblem.exit_code)


def _abandon_stdout() -> None:
    """Nothing more goes to a stdout that does not take it, also not when Python ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def tell_bug(problem: Exception, argv: Sequence[str]) -> int:
    """Writes a report of something that cannot happen and says where it is."""
    where = _report(problem, argv)
    first = " ".join(str(problem).split())[:300] or "no message"
    bug = Error(f"{type(problem).__name__}: {first}", code="T500", where=where or "no report could be written",
                hint="this is a bug of ticktrue; please send the report")  # fmt: skip
    return tell(bug, argv)


def _report(problem: Exception, argv: Sequence[str]) -> str:
    import platform
    from importlib.metadata import version

    lines = [
        f"ticktrue {version('ticktrue')}, Python {platform.python_version()}, {platform.platform()}",
        f"command: ticktrue {shlex.join(argv)}",
        "",
        *traceback.format_exception(problem),
    ]
    try:
        handle, name = tempfile.mkstemp(prefix="ticktrue-report-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
            file.write("\n".join(lines))
    except OSError:
        traceback.print_exception(problem)
        return ""
    return str(Path(name))


def stopped(word: str, number: signal.Signals) -> int:
    """The status of a command that a signal ended."""
    print(f"\n{word}", file=sys.stderr)
    return SIGNALLED + number


def broken_pipe() -> int:
    """The status where the reader of stdout went away, as in `ticktrue inspect x --text | head`."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return SIGNALLED + signal.SIGPIPE
