"""What the launchers of an instance report to the agent, in files of a folder that all of them see.

Programs can write there too, so the agent trusts these files no more than any other output of a program.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

FAILURES = "failures.json"
RANKS = "ranks.json"

FailureReport = dict[str, object]

_Report = TypeVar("_Report", list[FailureReport], dict[str, int])
_LOCK = "lock"


def make_failure(rank: int | None, *, code: int, at_us: int, tail: bytes) -> FailureReport:
    """Describe the failure of a rank, or of the server if `rank` is None.

    `code` is negative if a signal ended it; `tail` is what it wrote last.
    """
    return {"rank": rank, "code": code, "at_us": at_us, "tail": tail.decode(errors="replace")}


def add_failure(folder: str, failure: FailureReport) -> None:
    """Record one more rank that failed by itself."""
    with _lock_folder(folder):
        failures = _load_json(f"{folder}/{FAILURES}", [])
        _store_json(f"{folder}/{FAILURES}", [*failures, failure])


def add_ranks(folder: str, pids: dict[int, int]) -> None:
    """Record the pids of some ranks, as seen in the sandbox."""
    with _lock_folder(folder):
        ranks = _load_json(f"{folder}/{RANKS}", {})
        _store_json(f"{folder}/{RANKS}", {**ranks, **{str(rank): pid for rank, pid in pids.items()}})


@contextmanager
def _lock_folder(folder: str) -> Iterator[None]:
    """Let one process at a time add to the reports. If no lock file can be made, no report can be written either."""
    try:
        opened = os.open(f"{folder}/{_LOCK}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        yield
        return
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def _load_json(path: str, default: _Report) -> _Report:
    try:
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
    except (OSError, ValueError):
        return default
    return report if isinstance(report, type(default)) else default


def _store_json(path: str, value: object) -> None:
    """Write the file atomically. On a full disk there is no report."""
    try:
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump(value, file)
        os.replace(f"{path}.new", path)
    except OSError:
        return
