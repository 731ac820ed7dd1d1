"""Failures of commands: what is wrong, why, what to do next, and the exit code."""

from enum import IntEnum

from trainyard.foundation.errors import LimitExceeded, NotFound, NotPermitted, TrainyardError


class ExitCode(IntEnum):
    """The exit codes of commands. They are stable, so scripts can rely on them."""

    OK = 0
    FAILED = 1
    USAGE = 2
    STOPPED = 3
    NOT_FOUND = 4
    AUTH = 5
    QUOTA = 6
    UNDECIDED = 7
    TIME_LIMIT = 124
    INTERRUPTED = 130


class Failure(TrainyardError):
    """A command cannot continue."""

    def __init__(self, what: str, *, why: str = "", next_step: str = "", code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(what)
        self.why, self.next_step, self.code = why, next_step, code


def exit_code(error: TrainyardError) -> ExitCode:
    """Return the exit code of an error."""
    if isinstance(error, Failure):
        return error.code
    for kind, code in _CODES.items():
        if isinstance(error, kind):
            return code
    return ExitCode.FAILED


_CODES: dict[type[TrainyardError], ExitCode] = {
    NotFound: ExitCode.NOT_FOUND,
    NotPermitted: ExitCode.AUTH,
    LimitExceeded: ExitCode.QUOTA,
}
