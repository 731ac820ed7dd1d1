"""Stores profiles on S3 while the program runs: those that the hook takes, and traces that the program writes itself.

Most jobs write neither, so nothing is started before there is something to store.
"""

import functools
import re
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from trainyard.formats.profiles.contract import PARTS_FOLDER
from trainyard.foundation.clock import boottime
from trainyard.foundation.confined import ConfinedFolder
from trainyard.foundation.locations import Location, parse_s3_uri
from trainyard.instance.agent.context import InstanceContext
from trainyard.instance.agent.data.object_store import open_store
from trainyard.instance.agent.data.sync.folder import FolderSync
from trainyard.instance.agent.data.sync.scan import FileStamp
from trainyard.instance.agent.data.sync.upload import SyncedPath, UploadIdentity, catch_lease_signals
from trainyard.instance.agent.results.failure import CannotRun
from trainyard.link.contract import ProfilerSpec
from trainyard.link.folders import host_path
from trainyard.link.lease import may_write

# Between two looks: at the folder of profiles, and for traces everywhere else.
_LOOK_S, _SEARCH_S = 2.0, 15.0
# A search of many files is repeated less often: it may take this share of the time.
_SEARCH_SHARE = 1 / 200
_MAX_ENTRIES = 20_000
_MAX_TRACES = 200
_MAX_BYTES = 8 * 1024**3
_HEAD_BYTES = 64 * 1024
# What torch.profiler names its traces, and TensorFlow's profiler its own.
_TORCH = re.compile(r"\.pt\.trace\.json(\.gz)?$")
_TENSORFLOW = re.compile(r"(^|/)plugins/profile/[^/]+/[^/]+\.trace\.json\.gz$")
# Traces can have any name; those that have this are looked into.
_MAYBE = re.compile(r"trace[^/]*\.json(\.gz)?$", re.IGNORECASE)
_MARKS = re.compile(rb'"(?:traceEvents|schemaVersion)"\s*:')
_GZIP = b"\x1f\x8b"
_TENSORBOARD = "/opt/ml/output/tensorboard"


@dataclass(frozen=True, slots=True)
class _TraceFolder:
    """A folder in which programs write traces: as they see it, and its name on S3."""

    path: str
    name: str


class ProfileUploads:
    """The profiles of one instance. One thread calls `poll`, `finish` and `close`; errors become notes.

    Commands may disable the profiler, and say where profiles are stored; neither changes what has begun.
    """

    def __init__(self, context: InstanceContext, profiler: ProfilerSpec) -> None:
        self._context = context
        self._profiler = profiler
        self._output = profiler.output
        self._profiles: FolderSync | None = None
        self._traces: dict[tuple[str, str], FolderSync] = {}
        # The paths of traces by the folder that has them and what wrote them.
        self._found: dict[tuple[str, str], set[str]] = {}
        self._judged: dict[tuple[str, str], tuple[FileStamp, str]] = {}
        self._bytes = 0
        self._is_full = False
        self._look_at = self._search_at = 0.0

    def poll(self, now: float) -> None:
        """Look for profiles and traces; what is found is stored by threads of their own."""
        if not self._is_enabled:
            return
        if now >= self._look_at:
            self._look_at = now + _LOOK_S
            self._look(starts=True)
        if now >= self._search_at:
            # The first files of a program are hardly traces.
            if self._search_at:
                self._search(starts=True)
            self._search_at = boottime() + max(_SEARCH_S, (boottime() - now) / _SEARCH_SHARE)

    def finish(self, check: Callable[[], None]) -> None:
        """Store the last files after the program has ended. Calls `check` now and then, which may raise."""
        if self._is_enabled:
            self._look(starts=False)
            self._search(starts=False)
        for sync in self._all():
            try:
                sync.finish(check)
            except CannotRun as error:
                self._context.reports.note(f"Some profiles are not stored: {error.message}")

    def close(self) -> None:
        for sync in self._all():
            sync.close()

    @property
    def _is_enabled(self) -> bool:
        return self._context.commands.profiler_changes.get("is_enabled", self._profiler.is_enabled) is True

    def _all(self) -> list[FolderSync]:
        return [*([self._profiles] if self._profiles is not None else []), *self._traces.values()]

    def _look(self, *, starts: bool) -> None:
        if self._profiles is None and self._has_profiles():
            self._profiles = self._sync(self._output.path, "", _is_complete)
            if starts:
                _start(self._profiles)

    def _has_profiles(self) -> bool:
        root, path = host_path(self._context.folder, self._context.spec, self._output.path)
        try:
            with ConfinedFolder.open(root, path) as folder:
                return bool(set(folder.names()) - {PARTS_FOLDER})
        except OSError:
            return False

    def _search(self, *, starts: bool) -> None:
        for folder in self._trace_folders():
            for framework, path in self._find_traces(folder):
                known = self._found.setdefault((folder.name, framework), set())
                known.add(path)
            for key, paths in self._found.items():
                if key[0] == folder.name and key not in self._traces:
                    prefix = f"framework/{key[1]}/user/{self._context.spec.instance}/{folder.name}/"
                    sync = self._traces[key] = self._sync(folder.path, prefix, paths.__contains__)
                    if starts:
                        _start(sync)

    def _trace_folders(self) -> Iterator[_TraceFolder]:
        yield _TraceFolder("/opt/ml/output/data", "data")
        yield _TraceFolder("/opt/ml/model", "model")
        tensorboard = self._context.spec.tensorboard
        yield _TraceFolder(tensorboard.path if tensorboard is not None else _TENSORBOARD, "tensorboard")

    def _find_traces(self, folder: _TraceFolder) -> Iterator[tuple[str, str]]:
        root, path = host_path(self._context.folder, self._context.spec, folder.path)
        with suppress(OSError), ConfinedFolder.open(root, path) as opened:
            for number, entry in enumerate(opened.walk()):
                if number >= _MAX_ENTRIES:
                    return
                inside = "/".join((*entry.above, entry.name))
                if not _MAYBE.search(inside) or not stat.S_ISREG(entry.status.st_mode):
                    continue
                stamp = FileStamp.of(entry.status)
                known = self._judged.get((folder.name, inside))
                if known is None or (known[0] != stamp and not known[1]):
                    framework = _framework(inside, functools.partial(entry.read, limit_bytes=_HEAD_BYTES))
                    if framework and not self._takes(stamp.size):
                        framework = ""
                    known = self._judged[folder.name, inside] = (stamp, framework)
                if known[1]:
                    yield known[1], inside

    def _takes(self, size: int) -> bool:
        """Whether another trace of this size is stored too."""
        count = sum(len(paths) for paths in self._found.values())
        if count < _MAX_TRACES and self._bytes + size <= _MAX_BYTES:
            self._bytes += size
            return True
        if not self._is_full:
            self._is_full = True
            self._context.reports.note(
                f"The program wrote more than {_MAX_TRACES} traces, or more than {_MAX_BYTES >> 30} GiB of them; the "
                "others are not among the profiles on S3."
            )
        return False

    def _sync(self, path: str, prefix: str, selects: Callable[[str], bool]) -> FolderSync:
        context = self._context
        folder, spec = context.folder, context.spec
        where = parse_s3_uri(str(context.commands.profiler_changes.get("uri", self._output.uri)), spec.account)
        key = where.key.rstrip("/")
        return FolderSync(
            SyncedPath(*host_path(folder, spec, path)),
            Location(where.bucket, (f"{key}/" if key else "") + prefix),
            seen_as=path,
            writer=UploadIdentity(spec.job_name, spec.instance, len(spec.hosts) == 1, spec.output_key),
            open_store=lambda: open_store(spec.objects),
            note=context.reports.note,
            may_write=lambda: may_write(folder, spec),
            selects=selects,
        )


def _is_complete(path: str) -> bool:
    return not path.startswith(f"{PARTS_FOLDER}/")


def _start(sync: FolderSync) -> None:
    catch_lease_signals()
    sync.start()


def _framework(path: str, read: Callable[[], bytes]) -> str:
    """Return what wrote a trace, judged by its name, or else by how it begins; empty if it is none."""
    if _TENSORFLOW.search(path):
        return "tensorflow"
    if _TORCH.search(path):
        return "pytorch"
    head = read()
    if head.startswith(_GZIP):
        with suppress(zlib.error):
            head = zlib.decompressobj(wbits=31).decompress(head, _HEAD_BYTES)
    return "pytorch" if _MARKS.search(head) else ""
