"""What the launchers of an instance tell the agent, in files of a folder that all of them see.

Its programs could write there as well, so the agent takes what it finds for no more than a word of the program.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

FAILURES = "failures.json"
RANKS = "ranks.json"

Failure = dict[str, object]

_Told = TypeVar("_Told", list[Failure], dict[str, int])
_LOCK = "lock"


def failure(rank: int | None, *, code: int, at_us: int, tail: bytes) -> Failure:
    """How a rank ended, or the server that has none: `code` is negative where a signal ended it.

    `tail` is what it wrote last.
    """
    return {"rank": rank, "code": code, "at_us": at_us, "tail": tail.decode(errors="replace")}


def add_failure(folder: str, told: Failure) -> None:
    """One more rank that has failed by itself."""
    with _locked(folder):
        failures = _read(f"{folder}/{FAILURES}", [])
        _write(f"{folder}/{FAILURES}", [*failures, told])


def add_ranks(folder: str, pids: dict[int, int]) -> None:
    """The processes of some ranks, by their numbers in the sandbox."""
    with _locked(folder):
        ranks = _read(f"{folder}/{RANKS}", {})
        _write(f"{folder}/{RANKS}", {**ranks, **{str(rank): pid for rank, pid in pids.items()}})


@contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Let one process at a time add to what is told. Where no file can be made, nothing can be told either."""
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


def _read(path: str, nothing: _Told) -> _Told:
    try:
        with open(path, encoding="utf-8") as file:
            told = json.load(file)
    except (OSError, ValueError):
        return nothing
    return told if isinstance(told, type(nothing)) else nothing


def _write(path: str, value: object) -> None:
    """Whole or not at all. On a full disk the agent goes without."""
    try:
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump(value, file)
        os.replace(f"{path}.new", path)
    except OSError:
        return
