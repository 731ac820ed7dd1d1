"""Finds the rank of an instance that failed first, from the report of its launcher."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainyard.foundation.confined import ConfinedFolder
from trainyard.instance.agent.results.failure import is_consequence
from trainyard.instance.agent.watch.log_tail import LogTail
from trainyard.instance.launch.report import FAILURES
from trainyard.instance.sandbox.contract import ProgramExit
from trainyard.link.folders import InstanceFolder

_MAX_BYTES = 16 << 20
_MAX_FAILURES = 1024


@dataclass(frozen=True, slots=True)
class RankEnd:
    """How and when a rank failed, and its last output. `rank` is None for the parameter server beside the ranks."""

    rank: int | None
    ended: ProgramExit
    at_us: int
    tail: LogTail


def first_failure(folder: InstanceFolder) -> RankEnd | None:
    """Return the rank that failed first, not counting those that failed because of another; None without a report."""
    return min(_read_failures(folder), key=lambda each: (is_consequence(each.tail), each.at_us), default=None)


def _read_failures(folder: InstanceFolder) -> Sequence[RankEnd]:
    with ConfinedFolder.open(folder.root) as root:
        text = root.read_text(f"{folder.launch.name}/{FAILURES}", limit_bytes=_MAX_BYTES)
    try:
        return [_rank_end(each) for each in json.loads(text or "[]")[:_MAX_FAILURES]]
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        # The program can write to this file too.
        return []


def _rank_end(report: dict[str, Any]) -> RankEnd:
    code, tail = int(report["code"]), LogTail()
    tail.add(str(report["tail"]).encode())
    return RankEnd(
        None if report["rank"] is None else int(report["rank"]),
        ProgramExit(code if code >= 0 else None, -code if code < 0 else None),
        int(report["at_us"]),
        tail,
    )
