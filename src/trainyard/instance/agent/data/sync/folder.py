"""Syncs one folder of a program with its S3 location, in a thread while the program runs."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

from trainyard.foundation.confined import ConfinedFolder
from trainyard.foundation.errors import NotFound, TrainyardError
from trainyard.foundation.locations import Location
from trainyard.instance.agent.data.sync.batches import UploadResult, upload_all
from trainyard.instance.agent.data.sync.changes import ChangeTracker, SyncPlan
from trainyard.instance.agent.data.sync.inotify import FolderWatcher
from trainyard.instance.agent.data.sync.restore import restore_folder
from trainyard.instance.agent.data.sync.scan import MAX_FILES, FileStamp, FolderScan, scan_folder
from trainyard.instance.agent.data.sync.upload import FileUploader, SyncedPath, UploadIdentity
from trainyard.instance.agent.layout import ProgramUser
from trainyard.instance.agent.results.failure import CannotRun, FailureKind, to_cannot_run
from trainyard.objects.contract import ObjectAccess

OpenStore = Callable[[], ObjectAccess]

# Between two scans while files change.
SETTLE_S = 0.5
# Between two scans when inotify reports no change.
RESCAN_S = 10.0
# How long the final sync retries when the store fails.
FINAL_TIMEOUT_S = 60.0

# The pause between scans is at least this many times the duration of a scan, when idle and when busy.
_IDLE_FACTOR = 300
_BUSY_FACTOR = 10
# However long a scan takes, and however often the store has failed.
_MAX_PAUSE_S = 60.0
# How long `close` waits for an upload in progress.
_CLOSE_TIMEOUT_S = 2.0
# Errors in one round after which the rest waits for the next.
_MAX_ERRORS = 3
# Failed rounds in a row after which the user gets a note.
_FAILED_ROUNDS_TO_NOTE = 3
_KEY_BYTES = 1024

log = logging.getLogger(__name__)


class SyncAborted(Exception):
    """The instance must end at once."""


@dataclass(frozen=True, slots=True)
class SyncError:
    """Why a file could not be uploaded, or an object not deleted."""

    where: Location
    error: Exception

    def __str__(self) -> str:
        if isinstance(self.error, CannotRun):
            return self.error.message
        return f"{self.where} could not be synced: {to_cannot_run(self.error).message}"


@dataclass(frozen=True, slots=True)
class _SyncRound:
    """The result of a scan and its uploads. With `is_waiting` more will be due even if nothing else changes."""

    has_progress: bool = False
    is_waiting: bool = False
    error: SyncError | None = None


class FolderSync:
    """Restores a folder, then uploads what the program changes in it.

    One thread calls `restore`, `start`, `finish` and `close`, in this order; between `start` and `finish` a second one
    works. Without `start`, everything is uploaded by `finish`. `seen_as` is the path where the program sees the folder.
    With `is_frequently_written` the program writes its files all the time. When `may_write` returns False, the sync
    gives up. With `selects`, only files that it selects by their paths are synced. With `keeps_removed`, the object of
    a file stays when the program removes the file.
    """

    def __init__(
        self,
        place: SyncedPath,
        location: Location,
        *,
        seen_as: str,
        writer: UploadIdentity,
        open_store: OpenStore,
        note: Callable[[str], None],
        is_frequently_written: bool = False,
        may_write: Callable[[], bool] = lambda: True,
        selects: Callable[[str], bool] | None = None,
        keeps_removed: bool = False,
    ) -> None:
        self._selects = selects
        self._keeps_removed = keeps_removed
        self._path = place
        self._location = location
        self._seen_as = seen_as
        self._open_store = open_store
        self._may_write = may_write
        self._note = _NoteOnce(note)
        self._changes = ChangeTracker(is_frequently_written=is_frequently_written)
        self._uploader = FileUploader(place, location, writer=writer, note=self._note, check=self._check)
        self._watcher = FolderWatcher()
        self._is_over = threading.Event()
        self._is_aborted = threading.Event()
        self._scan_s = 0.0
        self._on_chunk: Callable[[], None] = lambda: None
        self._check_lock = threading.Lock()
        self._thread = threading.Thread(target=self._work, name=f"sync of {seen_as}", daemon=True)

    def restore(self, store: ObjectAccess, *, owner: ProgramUser, check: Callable[[], None]) -> Sequence[str]:
        """Download every object of the location, and return their keys. Must be called before any program runs."""
        keys: list[str] = []

        def note_skipped(key: str) -> None:
            self._note(f"Some objects under {self._location} cannot be files, such as {key}; they are not restored.")

        with ConfinedFolder.open(self._path.root, self._path.path) as folder:
            for each in restore_folder(
                store, self._location, folder, owner=owner, check=check, on_skipped=note_skipped
            ):
                self._changes.mark_stored(each.path, each.stamp)
                self._uploader.record_restored(each.path, each.info)
                keys.append(each.info.where.key)
        return keys

    def start(self) -> None:
        """Upload changes from now on."""
        self._thread.start()

    def finish(self, check: Callable[[], None]) -> None:
        """Upload the last changes after the program has ended; CannotRun when that fails.

        Calls `check` now and then, which may raise; then no object is left incomplete.
        """
        self._is_over.set()
        self._watcher.wake()
        try:
            while self._thread.is_alive():
                check()
                self._thread.join(0.05)
            self._sync_rest(check)
        except BaseException:
            self._is_aborted.set()
            raise

    def close(self) -> None:
        """Abandon uploads in progress, and release all resources."""
        self._is_over.set()
        self._is_aborted.set()
        self._watcher.wake()
        if self._thread.ident is not None:
            self._thread.join(_CLOSE_TIMEOUT_S)
        # A thread that still waits for a disk ends with the agent.
        if not self._thread.is_alive():
            self._watcher.close()

    def _work(self) -> None:
        pause_s, failures = SETTLE_S, 0
        while not self._is_over.is_set():
            has_changed = self._watcher.wait(pause_s)
            if has_changed and self._is_over.wait(SETTLE_S):
                return
            try:
                result = self._run_round()
            except SyncAborted:
                return
            except Exception as error:
                log.exception("the sync of a folder failed", extra={"folder": self._seen_as})
                result = _SyncRound(error=SyncError(self._location, error))
            failures = failures + 1 if result.error else 0
            if failures == _FAILED_ROUNDS_TO_NOTE:
                self._note(f"The copy of {self._seen_as} in S3 is behind, and is retried: {result.error}")
            is_busy = has_changed or result.has_progress
            pause_s = _pause(pause_s, result, scan_s=self._scan_s, failures=failures, is_busy=is_busy)

    def _run_round(self, *, is_last: bool = False) -> _SyncRound:
        started = time.monotonic()
        scan = self._scan()
        self._scan_s = time.monotonic() - started
        plan = self._changes.final_plan(scan) if is_last else self._changes.plan(scan, now=time.monotonic())
        if not plan.uploads and not plan.deletes:
            return _SyncRound(is_waiting=plan.is_waiting)
        with closing(self._open_store()) as store:
            return self._carry_out(plan, store, is_last=is_last)

    def _scan(self) -> FolderScan:
        try:
            folder = ConfinedFolder.open(self._path.root, self._path.path)
        except OSError:
            # Removed or replaced by something else, perhaps only for a moment.
            if self._is_over.is_set():
                self._note(f"{self._seen_as} is not a folder any more, so nothing more of it is stored.")
            return FolderScan(is_complete=False)
        with folder:
            room = _KEY_BYTES - len(self._location.key.encode())
            scan = scan_folder(folder, key_bytes=room, on_folder=self._watcher.watch, selects=self._selects)
        for kind, example in scan.skipped.items():
            self._note(f"{kind} in {self._seen_as} are not stored, such as {example}.", once_for=kind)
        if scan.has_too_many_files:
            raise CannotRun(
                f"{self._seen_as} holds more than {MAX_FILES} files, which are too many to sync to S3.",
                FailureKind.USER_ERROR,
            )
        return scan

    def _carry_out(self, plan: SyncPlan, store: ObjectAccess, *, is_last: bool) -> _SyncRound:
        errors: list[SyncError] = []
        uploaded = 0
        for group in upload_all(self._uploader, store, plan.uploads):
            uploaded += self._record_results(group, errors)
            if len(errors) >= _MAX_ERRORS or (self._is_over.is_set() and not is_last):
                return _SyncRound(uploaded > 0, is_waiting=True, error=errors[0] if errors else None)
        for path in plan.deletes:
            try:
                if not self._keeps_removed:
                    self._uploader.delete(store, path)
            except (TrainyardError, OSError) as error:
                errors.append(SyncError(self._uploader.location_of(path), error))
                break
            self._changes.mark_deleted(path)
        has_progress = uploaded + len(plan.deletes) > 0
        return _SyncRound(has_progress, is_waiting=plan.is_waiting, error=errors[0] if errors else None)

    def _record_results(self, group: Sequence[UploadResult], errors: list[SyncError]) -> int:
        """Record the results of a group; return how many files were stored."""
        stored = 0
        for path, outcome in ((result.path, result.outcome) for result in group):
            if isinstance(outcome, FileStamp):
                self._changes.mark_stored(path, outcome, now=time.monotonic())
                stored += 1
            elif outcome is not None:
                errors.append(SyncError(self._uploader.location_of(path), outcome))
        return stored

    def _sync_rest(self, check: Callable[[], None]) -> None:
        self._on_chunk = check
        deadline = time.monotonic() + FINAL_TIMEOUT_S
        pause_s = SETTLE_S
        while (failure := self._last_round(check)) is not None:
            if time.monotonic() >= deadline or isinstance(failure.error, (NotFound, CannotRun)):
                raise CannotRun(str(failure), _kind(failure.error)) from failure.error
            _sleep(pause_s, check)
            pause_s *= 2

    def _last_round(self, check: Callable[[], None]) -> SyncError | None:
        check()
        try:
            return self._run_round(is_last=True).error
        except (TrainyardError, OSError) as error:
            return SyncError(self._location, error)

    def _check(self) -> None:
        if self._is_aborted.is_set() or not self._may_write():
            raise SyncAborted
        # Several threads may upload at once.
        with self._check_lock:
            self._on_chunk()


class _NoteOnce:
    """Reports each note once."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._noted: set[str] = set()
        self._lock = threading.Lock()

    def __call__(self, text: str, *, once_for: str = "") -> None:
        with self._lock:
            if (once_for or text) not in self._noted:
                self._noted.add(once_for or text)
                self._note(text)


def _pause(pause_s: float, last: _SyncRound, *, scan_s: float, failures: int, is_busy: bool) -> float:
    """How long to wait for inotify before scanning without it."""
    if failures:
        next_s = SETTLE_S * 2.0 ** min(failures, 10)
    elif is_busy:
        next_s = max(SETTLE_S, _BUSY_FACTOR * scan_s)
    elif last.is_waiting:
        # For a file to be closed, or for an interval to pass: less and less often.
        next_s = max(min(2 * pause_s, RESCAN_S), _BUSY_FACTOR * scan_s)
    else:
        next_s = max(RESCAN_S, _IDLE_FACTOR * scan_s)
    return min(next_s, _MAX_PAUSE_S)


def _kind(error: Exception) -> FailureKind:
    return FailureKind.USER_ERROR if isinstance(error, NotFound) else to_cannot_run(error).kind


def _sleep(seconds: float, check: Callable[[], None]) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        check()
        time.sleep(min(left, 0.1))
