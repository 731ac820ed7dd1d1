"""Signals without the `signal` module, whose enums take four milliseconds to import.

`_signal` is its C part, which every interpreter loads at its start.
"""

import _signal  # type: ignore[import-not-found]

CHILD: int = _signal.SIGCHLD
CONTINUE: int = _signal.SIGCONT
KILL: int = _signal.SIGKILL
STOP: int = _signal.SIGSTOP
TERMINATE: int = _signal.SIGTERM


def block_all() -> None:
    """Block signals until `next_signal` takes them; only SIGKILL and SIGSTOP still act."""
    _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())


def next_signal() -> int:
    return int(_signal.sigwait({CHILD, TERMINATE}))


def restore_defaults() -> None:
    """Restore the default dispositions, whatever this interpreter and its ancestors ignored."""
    for number in _signal.valid_signals() - {_signal.SIGKILL, _signal.SIGSTOP}:
        _signal.signal(number, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
