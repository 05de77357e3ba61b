"""The error tree: every failure a user can meet has a code, an exit status, a place and a hint.

Error:
    ├── UsageError          exit 2   T1xx  the command line or a call is wrong
    ├── InputError          exit 3   T3xx  a file or value cannot be honoured
    │   ├── DoesNotFit               T310  a model does not fit the system
    │   ├── Unschedulable            T320  no legal timetable was found
    │   └── UnsupportedModel         T330  a family, type or format we do not know
    ├── EnvironmentProblem  exit 4   T4xx  the surroundings fail: network, disk, missing tool
    └── Bug                 exit 5   T500  cannot happen, whatever the user does

Violations of a program are not errors: they are values in a verdict (see `ticktrue.verify`).
"""

from typing import ClassVar


class Error(Exception):
    """A failure with a stable code, where it was met, and what to do about it.

    `message` says what was expected and what was found. `where` names the file, field or place.
    """

    exit_code: ClassVar[int] = 5
    default_code: ClassVar[str] = "T500"

    def __init__(self, message: str, *, code: str = "", where: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        """One line: code, message, place; the hint follows on its own line."""
        place = f" [{self.where}]" if self.where else ""
        hint = f"\n  hint: {self.hint}" if self.hint else ""
        return f"{self.code}: {self.message}{place}{hint}"


class UsageError(Error):
    """The command line or a call is wrong."""

    exit_code = 2
    default_code = "T100"


class InputError(Error):
    """A file or a value cannot be honoured."""

    exit_code = 3
    default_code = "T300"


class DoesNotFit(InputError):
    """A model does not fit the system; the message says by how many bytes."""

    default_code = "T310"


class Unschedulable(InputError):
    """No legal timetable exists under the given plan."""

    default_code = "T320"


class UnsupportedModel(InputError):
    """A model family, tensor type or number format that is not supported."""

    default_code = "T330"


class EnvironmentProblem(Error):
    """The surroundings fail: network, disk space, a missing tool."""

    exit_code = 4
    default_code = "T400"


class Bug(Error):
    """Cannot happen, whatever the user does."""
