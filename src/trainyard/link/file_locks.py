"""Locks on files that a child inherits with the descriptor, and that end with the last process that has it.

These are the kernel's open file description locks. Whether one is held can be checked without taking it.
"""

import fcntl
import os
import struct
from pathlib import Path

from trainyard.foundation.files import PRIVATE_FILE

# struct flock: type, whence, start, length, pid, padded to whole words.
_FLOCK = "hhqqi0q"


def hold(path: Path, *, shared: bool = False) -> int | None:
    """Lock a file, created if need be. Return the descriptor to keep open; None if another holds or removes it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _lock(fcntl.F_RDLCK if shared else fcntl.F_WRLCK))
        # The previous holder may have removed the file; then another process may hold the one that is there now.
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def is_held(path: Path) -> bool:
    """Whether any process holds the file; False if there is no file."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _lock(fcntl.F_WRLCK))
    finally:
        os.close(descriptor)
    return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)


def _lock(kind: int) -> bytes:
    return struct.pack(_FLOCK, kind, os.SEEK_SET, 0, 0, 0)
