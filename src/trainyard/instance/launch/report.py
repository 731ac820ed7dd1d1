"""What a launcher tells the agent, in files of a folder that both see.

Its programs could write there as well, so the agent takes what it finds for no more than a word of the program.
"""

import json
import os

FAILURES = "failures.json"
RANKS = "ranks.json"

Failure = dict[str, object]


def failure(rank: int | None, *, code: int, at_us: int, tail: bytes) -> Failure:
    """How a rank ended, or the server that has none: `code` is negative where a signal ended it.

    `tail` is what it wrote last.
    """
    return {"rank": rank, "code": code, "at_us": at_us, "tail": tail.decode(errors="replace")}


def tell_failures(folder: str, failures: list[Failure]) -> None:
    """All ranks that have failed by themselves, in the order of their deaths."""
    _write(f"{folder}/{FAILURES}", failures)


def tell_ranks(folder: str, pids: dict[int, int]) -> None:
    """The process of each rank, by its number in the sandbox."""
    _write(f"{folder}/{RANKS}", {str(rank): pid for rank, pid in pids.items()})


def _write(path: str, value: object) -> None:
    """Whole or not at all. On a full disk the agent goes without."""
    try:
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump(value, file)
        os.replace(f"{path}.new", path)
    except OSError:
        return
