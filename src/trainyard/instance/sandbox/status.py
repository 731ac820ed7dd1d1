"""The status lines that the supervisor and init write to the launcher.

A line is one write, shorter than the atomic size of a pipe, so lines of several processes never mix. Each has a word
and a detail:

    init      pid of the root of the tree, as the supervisor sees it
    note      something that this machine does not enforce
    running   the program's image is loaded
    refused   why the machine does not allow the isolation
    nolayers  why the machine cannot show a folder copy-on-write
    unusable  why something named in the request cannot be used
    exited    the program's exit code, or minus the signal that ended it
    ended     nothing of the tree is left; 1 if it ran out of memory, else 0
"""

import os

INIT = "init"
NOTE = "note"
RUNNING = "running"
REFUSED = "refused"
NO_OVERLAY = "nolayers"
UNUSABLE = "unusable"
EXITED = "exited"
ENDED = "ended"

_MAX_DETAIL_CHARS = 2000


def report(status_fd: int, word: str, detail: str = "") -> None:
    """Write one line, unless the launcher is gone."""
    line = f"{word} {detail[:_MAX_DETAIL_CHARS]}".replace("\n", " ") + "\n"
    try:
        os.write(status_fd, line.encode(errors="replace")[:4096])
    except BrokenPipeError:
        return


def describe_error(error: OSError) -> str:
    what = f"{error.filename}: " if error.filename else ""
    return f"{what}{error.strerror or error}"
