"""Which rank of an instance failed first, as its launcher tells."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainyard.foundation.confined import ConfinedFolder
from trainyard.instance.agent.failure import is_consequence
from trainyard.instance.agent.tail import LogTail
from trainyard.instance.launch.report import FAILURES
from trainyard.instance.sandbox.contract import Ended
from trainyard.link.folders import InstanceFolder

_MOST_BYTES = 16 << 20
_MOST_FAILURES = 1024


@dataclass(frozen=True, slots=True)
class RankEnd:
    """How and when one rank failed, or the server beside it, which has none; and what it wrote last."""

    rank: int | None
    ended: Ended
    at_us: int
    tail: LogTail


def first_failure(folder: InstanceFolder) -> RankEnd | None:
    """The rank that failed first of those that did not fail because of another; None when a launcher tells of none."""
    return min(_failures(folder), key=lambda each: (is_consequence(each.tail), each.at_us), default=None)


def _failures(folder: InstanceFolder) -> Sequence[RankEnd]:
    with ConfinedFolder.open(folder.root) as root:
        text = root.read_text(f"{folder.launch.name}/{FAILURES}", limit_bytes=_MOST_BYTES)
    try:
        return [_rank_end(each) for each in json.loads(text or "[]")[:_MOST_FAILURES]]
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        # The program could have written there.
        return []


def _rank_end(told: dict[str, Any]) -> RankEnd:
    code, tail = int(told["code"]), LogTail()
    tail.add(str(told["tail"]).encode())
    return RankEnd(
        None if told["rank"] is None else int(told["rank"]),
        Ended(code if code >= 0 else None, -code if code < 0 else None),
        int(told["at_us"]),
        tail,
    )
