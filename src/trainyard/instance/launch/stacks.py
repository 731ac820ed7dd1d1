"""Makes a Python process dump its stacks on a signal, whatever it hangs in."""

import faulthandler
import fcntl
import os
import signal

SIGNAL = signal.SIGRTMAX - 3
# The environment variable with the file that stacks are appended to.
VARIABLE = "TRAINYARD_STACKS"

# High, so that it stays out of the way of programs that expect certain descriptor numbers or close low ones.
_MIN_FD = 900


def dump_stacks_on_signal(path: str) -> None:
    """From now on, append the stacks of all threads to a file when the signal arrives."""
    try:
        opened = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            faulthandler.register(SIGNAL, file=fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, _MIN_FD))
        finally:
            os.close(opened)
    except OSError:
        # The agent then shows what the kernel knows about the process.
        return
