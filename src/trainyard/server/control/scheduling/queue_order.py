"""Which queue a job waits in, and in which order the jobs of a queue start: priority, fair share, time.

Each engine has a queue; engines on the yard's own machine share one. In a queue, on-demand jobs come before spot jobs.
An account's jobs start in the order in which they were created. Accounts take turns: the account whose turn came first
is next. An account's turn comes when its job was created or when it had its last turn, whichever is later, and a minute
later for each of its running instances, up to an hour. So an account that sends a thousand jobs does not keep out
another account's single job. Nobody who comes later can pass a turn that has come, so every job is first at some time.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from trainyard.engines.engine_set import EngineSet
from trainyard.server.control.scheduling.contract import Allocations
from trainyard.server.jobs.queues import queue_name
from trainyard.server.records.contract import QueuedResource

TURN_DELAY_PER_INSTANCE = timedelta(minutes=1)
MAX_TURN_DELAY = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class FairShare:
    """How many instances each account runs in a queue, and when each account had its last turn."""

    running: Mapping[str, int]
    last_turns: Mapping[str, datetime]

    def turn_of(self, head: QueuedResource) -> datetime:
        """Return when the turn of an account comes, given its first job."""
        queued_at = head.due_at
        delay = min(MAX_TURN_DELAY, TURN_DELAY_PER_INSTANCE * self.running.get(head.account, 0))
        return max(queued_at, self.last_turns.get(head.account, queued_at)) + delay


def fair_share_of(allocations: Allocations, turns: Mapping[str, datetime]) -> FairShare:
    """Return the fair share of each account, from what runs and from the turns that are remembered.

    The turns before a restart are not remembered. The start of an account's youngest job stands in for its last turn.
    """
    running: dict[str, int] = {}
    last_turns = dict(turns)
    for allocation in allocations.values():
        account = allocation.account
        running[account] = running.get(account, 0) + len(allocation.shares)
        if account not in turns:
            last_turns[account] = max(allocation.since, last_turns.get(account, allocation.since))
    return FairShare(running, last_turns)


def order_heads(heads: Iterable[QueuedResource], fair_share: FairShare) -> Sequence[QueuedResource]:
    """Return the first job of each account, in the order in which they should start."""
    first: dict[str, QueuedResource] = {}
    for head in heads:
        first[head.account] = min(head, first.get(head.account, head), key=lambda each: (each.priority, each.due_at))
    return sorted(first.values(), key=lambda head: (head.priority, fair_share.turn_of(head), head.due_at, head.id))


def engines_by_queue(engines: EngineSet) -> Mapping[str, Sequence[str]]:
    """Return the names of the engines of each queue."""
    found: dict[str, list[str]] = {}
    for name in engines.names:
        found.setdefault(engines.queue_of(name), []).append(name)
    return found


def record_queues_of(queue: str, engines: EngineSet, *, site: str) -> Sequence[str]:
    """Return the names under which the records keep the jobs of a queue.

    The records have one for each engine, named or default, and for each site: this one, or none in particular.
    """
    names = list(engines_by_queue(engines).get(queue, [queue]))
    if engines.default.name in names:
        names.append("")
    return [queue_name(name, site=each) for name in names for each in dict.fromkeys(("", site))]
