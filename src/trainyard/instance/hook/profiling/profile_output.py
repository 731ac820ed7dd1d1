"""Where a process writes its profiles, in AWS's layout, and how: each file completely or not at all.

    framework/pytorch/detailed_profiling/YYYYMMDDHH/<step>/<host>-<worker>.<start>.pt.trace.json.gz
    framework/pytorch/<profiler>/<pid>-<host>/<start>_<end>/python_stats
    framework/pevents/YYYYMMDDHH/<end>_<pid>-<host>_pythontimeline.json

A file is written elsewhere and gets its place when it is complete, because the agent stores what it finds there.
"""

import gzip
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from trainyard.formats.profiles.contract import PARTS_FOLDER

# What one process writes at most.
MAX_BYTES = 2 * 1024**3
# A profile is not worth the last of a disk, without which the job fails.
_MIN_FREE_BYTES = 64 * 1024**2
_COPY_BYTES = 1 << 20
# To make a folder.
_MAX_TRIES = 100
# As fast as the disk; smaller files would take several times as long.
_COMPRESSION = 1
_FRAMEWORK = "framework/pytorch"
# How a trace ends that was written to its end.
_TRACE_END = b"}"


class ProfileOutput:
    """The folder of profiles. Everything raises OSError if a file cannot be written, and leaves nothing of it."""

    def __init__(self, folder: Path, *, host: str, worker: str, max_bytes: int = MAX_BYTES) -> None:
        self.folder = folder
        self._host, self._worker = host, worker
        self._node = f"{os.getpid()}-{host}"
        self._left_bytes = max_bytes

    def write_trace(self, step: int, started_us: int, save: Callable[[Path], None]) -> None:
        """Write the trace of a window that began with `step`; `save` writes it uncompressed to a path."""
        folder = f"{_FRAMEWORK}/detailed_profiling/{_hour(started_us)}/{step:09}"
        with self._new_file(f"{folder}/{self._host}-{self._worker}.{started_us}.pt.trace.json.gz") as target:
            plain = target.with_name("trace.json")
            save(plain)
            with plain.open("rb") as read, gzip.open(target, "wb", compresslevel=_COMPRESSION) as write:
                _require_whole(read.fileno())
                shutil.copyfileobj(read, write, _COPY_BYTES)

    def write_python_profile(self, profiler: str, window: str, files: dict[str, bytes]) -> None:
        for name, data in files.items():
            with self._new_file(f"{_FRAMEWORK}/{profiler}/{self._node}/{window}/{name}") as target:
                target.write_bytes(data)

    def write_events(self, ended_us: int, kind: str, data: bytes) -> None:
        with self._new_file(f"framework/pevents/{_hour(ended_us)}/{ended_us}_{self._node}_{kind}.json") as target:
            target.write_bytes(data)

    @contextmanager
    def _new_file(self, path: str) -> Iterator[Path]:
        """Yield a path in a folder of its own; what was written there gets its place at the end."""
        final, parts = self.folder / path, self.folder / PARTS_FOLDER / str(os.getpid())
        _make_folder(parts)
        try:
            if shutil.disk_usage(parts).free < _MIN_FREE_BYTES:
                raise OSError(f"less than {_MIN_FREE_BYTES >> 20} MiB of the disk are free")
            yield parts / final.name
            size = (parts / final.name).stat().st_size
            if size > self._left_bytes:
                raise OSError("the program has written as many bytes of profiles as it may")
            final.parent.mkdir(parents=True, exist_ok=True)
            (parts / final.name).replace(final)
            self._left_bytes -= size
        finally:
            # Torch leaves files of its own when it fails.
            shutil.rmtree(parts, ignore_errors=True)
            with suppress(OSError):
                parts.parent.rmdir()


def _make_folder(path: Path) -> None:
    """Make a folder although other ranks, at any moment, remove the one above it when they have left it empty."""
    for _ in range(_MAX_TRIES):
        with suppress(FileNotFoundError):
            path.mkdir(parents=True, exist_ok=True)
            return
    path.mkdir(parents=True, exist_ok=True)


def _require_whole(descriptor: int) -> None:
    """Raise OSError if a trace has no end: torch does not say when the disk is full."""
    size = os.fstat(descriptor).st_size
    end = os.pread(descriptor, 64, max(0, size - 64))
    if not end.rstrip().endswith(_TRACE_END):
        raise OSError("the trace was not written to its end")


def _hour(at_us: int) -> str:
    return f"{datetime.fromtimestamp(at_us / 1e6, UTC):%Y%m%d%H}"
