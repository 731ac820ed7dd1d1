"""The last readings of a machine's GPUs, in a file in memory that the agents of one user share."""

import fcntl
import mmap
import os
import stat
import struct
from collections.abc import Sequence
from pathlib import Path

from trainyard.instance.agent.watch.hardware.nvml import GPU_METRICS

# A version of the layout, and the number of the last change. Changes alternate between two slots, so that one of them
# is whole at any moment.
_HEADER = struct.Struct("<QQ")
# The interval in which an agent wants readings, and until when.
_WISH = struct.Struct("<dd")
# When the slot was written, and how many GPUs it has.
_SLOT = struct.Struct("<dQ")
_VALUES = struct.Struct(f"<{len(GPU_METRICS)}d")
_VERSION = 1
_MAX_GPUS = 64
_SLOTS_OFFSET = _HEADER.size + _WISH.size
_SLOT_BYTES = _SLOT.size + _MAX_GPUS * _VALUES.size
_FILE_BYTES = _SLOTS_OFFSET + 2 * _SLOT_BYTES
_WISH_S = 5.0
# Readings older than this, or than three intervals, are no longer kept up.
_STALE_S = 2.0
_READ_TRIES = 3

Readings = Sequence[Sequence[float]]


def is_fresh(at_s: float, now_s: float, *, interval_s: float) -> bool:
    """Whether readings are from the last few intervals, so that somebody keeps them up."""
    return abs(now_s - at_s) <= max(_STALE_S, 3 * interval_s)


def shared_file() -> Path:
    """Return the file that the agents of this user share. Only they may write to it."""
    return Path("/dev/shm") / f"trainyard-gpus-{os.geteuid()}"


class SharedReadings:
    """The shared file. The process that holds its lock writes readings; all may write how often they want them."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._map = mmap.mmap(descriptor, _FILE_BYTES)

    @classmethod
    def open(cls, file: Path) -> "SharedReadings | None":
        """Open the file, created if need be; None if it cannot be had, or belongs to another user."""
        try:
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError:
            return None
        try:
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
                os.ftruncate(descriptor, _FILE_BYTES)
                return cls(descriptor)
        except (OSError, ValueError):
            os.close(descriptor)
            return None
        os.close(descriptor)
        return None

    def try_lock(self) -> bool:
        """Become the one that writes, until `close`; False if another process is."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def write(self, readings: Readings, now_s: float) -> None:
        """Replace the readings. Only for the holder of the lock."""
        version, change = _HEADER.unpack_from(self._map, 0)
        change = change + 1 if version == _VERSION else 1
        offset = _SLOTS_OFFSET + change % 2 * _SLOT_BYTES
        count = min(len(readings), _MAX_GPUS)
        _SLOT.pack_into(self._map, offset, now_s, count)
        for number in range(count):
            _VALUES.pack_into(self._map, offset + _SLOT.size + number * _VALUES.size, *readings[number])
        _HEADER.pack_into(self._map, 0, _VERSION, change)

    def read(self, now_s: float, *, interval_s: float) -> Readings | None:
        """Return the last readings; None if nobody has kept them up for some intervals."""
        for _ in range(_READ_TRIES):
            version, change = _HEADER.unpack_from(self._map, 0)
            offset = _SLOTS_OFFSET + change % 2 * _SLOT_BYTES
            at_s, count = _SLOT.unpack_from(self._map, offset)
            values = [
                _VALUES.unpack_from(self._map, offset + _SLOT.size + number * _VALUES.size)
                for number in range(min(count, _MAX_GPUS))
            ]
            if _HEADER.unpack_from(self._map, 0) == (version, change):
                is_usable = version == _VERSION and is_fresh(at_s, now_s, interval_s=interval_s)
                return values if is_usable else None
        return None

    def wish(self, now_s: float) -> float:
        """Return the shortest interval in which another agent wants readings; infinite if none does."""
        interval_s, until_s = _WISH.unpack_from(self._map, _HEADER.size)
        return interval_s if now_s <= until_s <= now_s + _WISH_S and interval_s > 0 else float("inf")

    def put_wish(self, interval_s: float, now_s: float) -> None:
        """Ask for readings in an interval, for some seconds, unless somebody wants them more often."""
        if interval_s <= self.wish(now_s):
            _WISH.pack_into(self._map, _HEADER.size, interval_s, now_s + _WISH_S)

    def close(self) -> None:
        self._map.close()
        os.close(self._descriptor)
