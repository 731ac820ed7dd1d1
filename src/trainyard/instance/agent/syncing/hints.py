"""Hints that something in a folder has changed, from inotify.

They only save waiting: what they miss, because there are too many folders or because the file system tells nothing, the
next look finds.
"""

import ctypes
import errno
import logging
import os
import select
import struct
from contextlib import suppress

MOST_WATCHES = 1000  # of those that all programs of a user share

_CLOSE_WRITE, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x8, 0x40, 0x80, 0x100, 0x200
_ONLY_FOLDERS = 0x01000000
_MASK = _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _ONLY_FOLDERS
_READ_BYTES = 1 << 16

log = logging.getLogger(__name__)


class Hints:
    """Watches folders, and waits. `wake` may be called from any thread; all else is for one."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._inotify: int = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._waker = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._watches: set[int] = set()
        self._poll = select.poll()
        self._poll.register(self._waker, select.POLLIN)
        if self._inotify >= 0:
            self._poll.register(self._inotify, select.POLLIN)
        else:
            log.warning("no hints of changes", extra={"why": os.strerror(ctypes.get_errno())})

    def watch(self, folder: int) -> None:
        """Be told of what happens in an open folder, once however often it is asked for."""
        if self._inotify < 0 or len(self._watches) >= MOST_WATCHES:
            return
        number = self._libc.inotify_add_watch(self._inotify, f"/proc/self/fd/{folder}".encode(), _MASK)
        if number >= 0:
            self._watches.add(number)
        elif ctypes.get_errno() not in (errno.ENOENT, errno.ENOTDIR):
            log.debug("a folder is not watched", extra={"why": os.strerror(ctypes.get_errno())})

    def wait(self, timeout_s: float) -> bool:
        """Whether something has happened; False when nothing did in that time."""
        has_come = bool(self._poll.poll(max(0, int(timeout_s * 1000))))
        self._drain()
        return has_come

    def wake(self) -> None:
        """End a wait, now or the next one."""
        os.eventfd_write(self._waker, 1)

    def close(self) -> None:
        os.close(self._waker)
        if self._inotify >= 0:
            os.close(self._inotify)

    def _drain(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._waker)
        with suppress(BlockingIOError):
            while self._inotify >= 0:
                self._forget(os.read(self._inotify, _READ_BYTES))

    def _forget(self, events: bytes) -> None:
        """A folder that is gone gives its watch back."""
        offset = 0
        while offset < len(events):
            number, mask, _, length = struct.unpack_from("iIII", events, offset)
            offset += 16 + length
            if mask & _IGNORED:
                self._watches.discard(number)


_IGNORED = 0x8000
