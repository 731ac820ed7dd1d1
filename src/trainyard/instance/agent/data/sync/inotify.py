"""Waits for changes in folders with inotify.

This only saves time: changes that it misses, because there are too many folders or the file system reports none, are
found by the next scan.
"""

import ctypes
import errno
import logging
import os
import select
import struct
from contextlib import suppress

# All programs of a user share the kernel's limit.
MAX_WATCHES = 1000

_CLOSE_WRITE, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x8, 0x40, 0x80, 0x100, 0x200
_ONLY_FOLDERS = 0x01000000
_MASK = _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _ONLY_FOLDERS
_IGNORED = 0x8000
_READ_BYTES = 1 << 16

log = logging.getLogger(__name__)


class FolderWatcher:
    """Watches folders and waits for changes. Any thread may call `wake`; the rest is for one thread."""

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
            log.warning("inotify is not available", extra={"why": os.strerror(ctypes.get_errno())})

    def watch(self, folder: int) -> None:
        """Watch an open folder. Watching it again changes nothing."""
        if self._inotify < 0 or len(self._watches) >= MAX_WATCHES:
            return
        number = self._libc.inotify_add_watch(self._inotify, f"/proc/self/fd/{folder}".encode(), _MASK)
        if number >= 0:
            self._watches.add(number)
        elif ctypes.get_errno() not in (errno.ENOENT, errno.ENOTDIR):
            log.debug("a folder is not watched", extra={"why": os.strerror(ctypes.get_errno())})

    def wait(self, timeout_s: float) -> bool:
        """Wait for a change or a `wake`; False when the time is over first."""
        has_events = bool(self._poll.poll(max(0, int(timeout_s * 1000))))
        self._drain()
        return has_events

    def wake(self) -> None:
        """End the current wait, or the next one."""
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
                self._forget_watches(os.read(self._inotify, _READ_BYTES))

    def _forget_watches(self, events: bytes) -> None:
        """Forget the watches of folders that are gone."""
        offset = 0
        while offset < len(events):
            number, mask, _, length = struct.unpack_from("iIII", events, offset)
            offset += 16 + length
            if mask & _IGNORED:
                self._watches.discard(number)
