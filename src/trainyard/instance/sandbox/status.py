"""The lines that keeper and init write to the launcher.

A line is one write, shorter than a pipe's atomic size, so lines of several processes never mix.
"""

import os

INIT = "init"  # pid of the process that holds the tree, in the keeper's numbers
NOTE = "note"  # something that this machine does not enforce
RUNNING = "running"  # the program's image is loaded
REFUSED = "refused"  # the machine does not allow what isolation needs: why
NO_LAYERS = "nolayers"  # the machine cannot show a folder copy-on-write: why
UNUSABLE = "unusable"  # something named in the request cannot be used: why
EXITED = "exited"  # the program's exit code, or minus the signal that ended it
ENDED = "ended"  # nothing of the tree is left; 1 when memory was the cause, else 0

_LONGEST = 2000


def report(status_fd: int, word: str, detail: str = "") -> None:
    """Write one line. A launcher that is gone no longer wants it."""
    line = f"{word} {detail[:_LONGEST]}".replace("\n", " ") + "\n"
    try:
        os.write(status_fd, line.encode(errors="replace")[:4096])
    except BrokenPipeError:
        return


def describe_error(error: OSError) -> str:
    what = f"{error.filename}: " if error.filename else ""
    return f"{what}{error.strerror or error}"
