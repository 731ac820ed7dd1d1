"""What is to be stored and deleted, as looks at a folder follow each other. Pure: times are given."""

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass

from trainyard.instance.agent.syncing.looks import Look, Scan

TIMER_S = 5.0  # after which a file that never rests is tried all the same
AGAIN_S = 5.0  # between two stores of a file in a folder whose files are written all the time
AGAIN_BYTES = 4 << 20  # of such a file, for each of which another second passes before it is stored again
HELD_S = 60.0  # of rest, after which a file counts as whole although a program has it open for writing

# Files that programs append to, so that any beginning of one is worth having.
_APPENDED = ("*tfevents*", "*.arrows", "*.log", "*.jsonl", "*.ndjson", "*.csv", "*.tsv", "*.txt", "*.out", "*.err")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file to store now. `even_if_open`: although somebody may write it; `as_it_is`: although it changes."""

    path: str
    even_if_open: bool = False
    as_it_is: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do after a look, in this order. `is_waiting`: something else will be due without any further change."""

    uploads: Sequence[Candidate] = ()
    deletes: Sequence[str] = ()
    is_waiting: bool = False


@dataclass(frozen=True, slots=True)
class _Dirty:
    look: Look
    since: float
    rests_since: float


class Changes:
    """Compares looks with each other and with what is stored.

    A file is due when two looks find it the same, an absent one when two looks do not find it. Files are stored in the
    order in which they were written last, so that an index of others comes after them, and before anything is deleted.
    `is_restless`: files are written for as long as the program runs, so that one which was stored rests for a while.
    """

    def __init__(self, *, is_restless: bool = False) -> None:
        self._is_restless = is_restless
        self._rests_until: dict[str, float] = {}
        self._stored: dict[str, Look] = {}
        self._dirty: dict[str, _Dirty] = {}
        self._gone: set[str] = set()

    def stored(self, path: str, look: Look, *, now: float = 0.0) -> None:
        """The file is in the store as it was at that look."""
        if self._is_restless:
            self._rests_until[path] = now + max(AGAIN_S, look.size / AGAIN_BYTES)
        self._stored[path] = look
        self._dirty.pop(path, None)

    def forgotten(self, path: str) -> None:
        """The file is no matter of the store any more."""
        self._stored.pop(path, None)
        self._rests_until.pop(path, None)
        self._gone.discard(path)

    def look(self, scan: Scan, *, now: float) -> Plan:
        """What is due after a look at a moment."""
        before, self._dirty = self._dirty, self._dirty_now(scan, now)
        due = [
            path
            for path, dirty in self._dirty.items()
            if now >= self._rests_until.get(path, now) and _is_due(dirty, before.get(path), now)
        ]
        gone = self._missing(scan)
        deletes = sorted(gone & self._gone)
        self._gone = gone
        uploads = [_candidate(path, self._dirty[path], now) for path in _oldest_first(due, scan)]
        return Plan(uploads, deletes, bool(self._dirty) or len(deletes) < len(gone))

    def last(self, scan: Scan) -> Plan:
        """All that is left to do when nobody writes any more."""
        dirty = [path for path, look in scan.files.items() if self._stored.get(path) != look]
        uploads = [Candidate(path, even_if_open=True) for path in _oldest_first(dirty, scan)]
        return Plan(uploads, sorted(self._missing(scan)))

    def _dirty_now(self, scan: Scan, now: float) -> dict[str, _Dirty]:
        found = {}
        for path, look in scan.files.items():
            if self._stored.get(path) == look:
                continue
            known = self._dirty.get(path)
            rests_since = known.rests_since if known and known.look == look else now
            found[path] = _Dirty(look, known.since if known else now, rests_since)
        return found

    def _missing(self, scan: Scan) -> set[str]:
        return self._stored.keys() - scan.files.keys() if scan.is_whole else set()


def is_appended(path: str) -> bool:
    """Whether a file is of a sort that programs append to for as long as they run."""
    name = path.rpartition("/")[2]
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in _APPENDED)


def _is_due(dirty: _Dirty, before: _Dirty | None, now: float) -> bool:
    return (before is not None and before.look == dirty.look) or now - dirty.since >= TIMER_S


def _candidate(path: str, dirty: _Dirty, now: float) -> Candidate:
    if is_appended(path):
        return Candidate(path, even_if_open=True, as_it_is=True)
    return Candidate(path, even_if_open=now - dirty.rests_since >= HELD_S)


def _oldest_first(paths: Sequence[str], scan: Scan) -> list[str]:
    return sorted(paths, key=lambda path: (scan.files[path].mtime_ns, path))
