"""One folder of a program and its location in S3, kept in step by a thread as long as the program runs."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

from trainyard.foundation.confined import ConfinedFolder
from trainyard.foundation.errors import NotFound, TrainyardError
from trainyard.foundation.locations import Location
from trainyard.instance.agent.failure import CannotRun, FailureKind, why_it_cannot_run
from trainyard.instance.agent.layout import Owner
from trainyard.instance.agent.syncing.changes import Changes, Plan
from trainyard.instance.agent.syncing.groups import Sent, send_all
from trainyard.instance.agent.syncing.hints import Hints
from trainyard.instance.agent.syncing.looks import MOST_FILES, Look, Scan, scan_folder
from trainyard.instance.agent.syncing.restoring import restore
from trainyard.instance.agent.syncing.sending import Place, Sender, Writer
from trainyard.objects.contract import ObjectAccess

OpenStore = Callable[[], ObjectAccess]

SETTLE_S = 0.5  # between two looks while things change
RESCAN_S = 10.0  # between two looks when nothing hints at a change
FINAL_PATIENCE_S = 60.0  # with a store that refuses what is left at the end

_REST_SHARE = 300  # times as long as a look took is waited for the next one, when nothing hints at a change
_BUSY_SHARE = 10  # and otherwise
_LONGEST_PAUSE_S = 60.0  # however much a look costs, and however often the store has failed
_CLOSE_PATIENCE_S = 2.0  # with what is under way when the instance has to end
_MOST_ERRORS = 3  # in one round, before the rest waits for the next
_LAG_ROUNDS = 3  # that fail before the user is told
_KEY_BYTES = 1024

log = logging.getLogger(__name__)


class GaveUp(Exception):
    """The instance has to end at once."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """What keeps a file out of the store, or an object in it."""

    where: Location
    error: Exception

    def __str__(self) -> str:
        if isinstance(self.error, CannotRun):
            return self.error.message
        return f"{self.where} could not be brought up to date: {why_it_cannot_run(self.error).message}"


@dataclass(frozen=True, slots=True)
class _Round:
    """What came of a look. `is_waiting`: something will be due although nothing else changes."""

    has_moved: bool = False
    is_waiting: bool = False
    trouble: Trouble | None = None


class FolderSync:
    """Restores a folder, then stores what the program changes in it.

    `restore`, `begin`, `finish` and `close` are called in this order by one thread; between `begin` and `finish` a
    second one works. `seen_as` is the path by which the program knows the folder; `is_restless` tells that its files
    are written all the time. When nothing `may_write` any more, it gives up.
    """

    def __init__(
        self,
        place: Place,
        location: Location,
        *,
        seen_as: str,
        writer: Writer,
        open_store: OpenStore,
        note: Callable[[str], None],
        is_restless: bool = False,
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        self._place = place
        self._location = location
        self._seen_as = seen_as
        self._open_store = open_store
        self._may_write = may_write
        self._note = _Once(note)
        self._changes = Changes(is_restless=is_restless)
        self._sender = Sender(place, location, writer=writer, note=self._note, check=self._check)
        self._hints = Hints()
        self._is_over = threading.Event()
        self._is_given_up = threading.Event()
        self._look_s = 0.0  # what the last look cost
        self._on_piece: Callable[[], None] = lambda: None
        self._checking = threading.Lock()
        self._thread = threading.Thread(target=self._work, name=f"sync of {seen_as}", daemon=True)

    def restore(self, store: ObjectAccess, *, owner: Owner, check: Callable[[], None]) -> None:
        """Bring every object of the location. Before the first program has run."""

        def skipped(key: str) -> None:
            self._note(f"Objects under {self._location} cannot all be files, such as {key}; those are not restored.")

        with ConfinedFolder.open(self._place.root, self._place.path) as folder:
            for each in restore(store, self._location, folder, owner=owner, check=check, skipped=skipped):
                self._changes.stored(each.path, each.look)
                self._sender.restored(each.path, each.info)

    def begin(self) -> None:
        """Watch the folder from now on."""
        self._thread.start()

    def finish(self, check: Callable[[], None]) -> None:
        """Bring the location up to date, after the program has ended.

        CannotRun when that cannot be done. `check` is called now and then, and may raise to end it with nothing torn.
        """
        self._is_over.set()
        self._hints.wake()
        try:
            while self._thread.is_alive():
                check()
                self._thread.join(0.05)
            self._finish(check)
        except BaseException:
            self._is_given_up.set()
            raise

    def close(self) -> None:
        """Give up what is under way, and all resources."""
        self._is_over.set()
        self._is_given_up.set()
        self._hints.wake()
        if self._thread.ident is not None:
            self._thread.join(_CLOSE_PATIENCE_S)
        if not self._thread.is_alive():  # else it waits for a disk, and ends with the agent
            self._hints.close()

    def _work(self) -> None:
        pause_s, failures = SETTLE_S, 0
        while not self._is_over.is_set():
            has_changed = self._hints.wait(pause_s)
            if has_changed and self._is_over.wait(SETTLE_S):
                return
            try:
                done = self._round()
            except GaveUp:
                return
            except Exception as error:
                log.exception("a look at a folder failed", extra={"folder": self._seen_as})
                done = _Round(trouble=Trouble(self._location, error))
            failures = failures + 1 if done.trouble else 0
            if failures == _LAG_ROUNDS:
                self._note(f"What {self._seen_as} holds is behind in S3, and is tried again: {done.trouble}")
            is_busy = has_changed or done.has_moved
            pause_s = _pause(pause_s, done, cost_s=self._look_s, failures=failures, is_busy=is_busy)

    def _round(self, *, is_last: bool = False) -> _Round:
        begun = time.monotonic()
        scan = self._scan()
        self._look_s = time.monotonic() - begun
        plan = self._changes.last(scan) if is_last else self._changes.look(scan, now=time.monotonic())
        if not plan.uploads and not plan.deletes:
            return _Round(is_waiting=plan.is_waiting)
        with closing(self._open_store()) as store:
            return self._carry_out(plan, store, is_last=is_last)

    def _scan(self) -> Scan:
        try:
            folder = ConfinedFolder.open(self._place.root, self._place.path)
        except OSError:  # removed, or something else has taken its place, perhaps for a moment only
            return Scan(is_whole=False)
        with folder:
            room = _KEY_BYTES - len(self._location.key.encode())
            scan = scan_folder(folder, key_bytes=room, on_folder=self._hints.watch)
        for sort, example in scan.skipped.items():
            self._note(f"{sort} in {self._seen_as} are not stored, such as {example}.", once_for=sort)
        if scan.is_too_much:
            raise CannotRun(
                f"{self._seen_as} holds more than {MOST_FILES} files, which are too many to keep in S3.",
                FailureKind.USER_ERROR,
            )
        return scan

    def _carry_out(self, plan: Plan, store: ObjectAccess, *, is_last: bool) -> _Round:
        troubles: list[Trouble] = []
        moved = 0
        for group in send_all(self._sender, store, plan.uploads):
            moved += self._keep(group, troubles)
            if len(troubles) >= _MOST_ERRORS or (self._is_over.is_set() and not is_last):
                return _Round(moved > 0, is_waiting=True, trouble=troubles[0] if troubles else None)
        for path in plan.deletes:
            try:
                self._sender.delete(store, path)
            except (TrainyardError, OSError) as error:
                troubles.append(Trouble(self._sender.where(path), error))
                break
            self._changes.forgotten(path)
        has_moved = moved + len(plan.deletes) > 0
        return _Round(has_moved, is_waiting=plan.is_waiting, trouble=troubles[0] if troubles else None)

    def _keep(self, group: Sequence[Sent], troubles: list[Trouble]) -> int:
        """Remember what came of some files; how many were stored."""
        stored = 0
        for path, outcome in ((sent.path, sent.outcome) for sent in group):
            if isinstance(outcome, Look):
                self._changes.stored(path, outcome, now=time.monotonic())
                stored += 1
            elif outcome is not None:
                troubles.append(Trouble(self._sender.where(path), outcome))
        return stored

    def _finish(self, check: Callable[[], None]) -> None:
        self._on_piece = check
        deadline = time.monotonic() + FINAL_PATIENCE_S
        pause_s = SETTLE_S
        while (trouble := self._last_round(check)) is not None:
            if time.monotonic() >= deadline or isinstance(trouble.error, (NotFound, CannotRun)):
                raise CannotRun(str(trouble), _kind(trouble.error)) from trouble.error
            _sleep(pause_s, check)
            pause_s *= 2

    def _last_round(self, check: Callable[[], None]) -> Trouble | None:
        check()
        try:
            return self._round(is_last=True).trouble
        except (TrainyardError, OSError) as error:
            return Trouble(self._location, error)

    def _check(self) -> None:
        if self._is_given_up.is_set() or not self._may_write():
            raise GaveUp
        with self._checking:  # several threads may send at once
            self._on_piece()


class _Once:
    """Tells each sentence once."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._tell = note
        self._told: set[str] = set()
        self._telling = threading.Lock()

    def __call__(self, text: str, *, once_for: str = "") -> None:
        with self._telling:
            if (once_for or text) not in self._told:
                self._told.add(once_for or text)
                self._tell(text)


def _pause(pause_s: float, done: _Round, *, cost_s: float, failures: int, is_busy: bool) -> float:
    """How long to wait for a hint before the next look is taken without one."""
    if failures:
        wanted_s = SETTLE_S * 2.0 ** min(failures, 10)
    elif is_busy:
        wanted_s = max(SETTLE_S, _BUSY_SHARE * cost_s)
    elif done.is_waiting:  # for a file to be closed, or for an interval to pass: ever more seldom
        wanted_s = max(min(2 * pause_s, RESCAN_S), _BUSY_SHARE * cost_s)
    else:
        wanted_s = max(RESCAN_S, _REST_SHARE * cost_s)
    return min(wanted_s, _LONGEST_PAUSE_S)


def _kind(error: Exception) -> FailureKind:
    return FailureKind.USER_ERROR if isinstance(error, NotFound) else why_it_cannot_run(error).kind


def _sleep(seconds: float, check: Callable[[], None]) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        check()
        time.sleep(min(left, 0.1))
