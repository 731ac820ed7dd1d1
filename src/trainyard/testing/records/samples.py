"""Names, times and drafts for the suite."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from trainyard.server.records.contract import Draft, Priority, QueueState, Records, Resource, ResourceKey

T = TypeVar("T")

ALICE = "111111111111"
BOB = "222222222222"
KIND = "training-job"
REGION = "eu-central-1"
NOON = datetime(2026, 7, 1, 12, 0, 0, 123456, tzinfo=UTC)
LEASE = timedelta(seconds=30)


def key(name: str, *, account: str = ALICE, kind: str = KIND) -> ResourceKey:
    return ResourceKey(account, kind, name)


def draft(
    name: str,
    *,
    account: str = ALICE,
    kind: str = KIND,
    status: str = "",
    body: Mapping[str, Any] | None = None,
    parent: Resource | None = None,
    arn: str = "",
    tags: Mapping[str, str] | None = None,
    due_at: datetime | None = None,
    state: QueueState = QueueState.UNQUEUED,
    queue: str | None = None,
    priority: Priority = Priority.ON_DEMAND,
) -> Draft:
    return Draft(
        key(name, account=account, kind=kind),
        REGION,
        body or {},
        status=status,
        parent=None if parent is None else parent.id,
        tags=tags or {},
        arn=arn,
        due_at=due_at,
        state=state,
        queue=queue,
        priority=priority,
    )


def minutes(count: float) -> datetime:
    return NOON + timedelta(minutes=count)


def names(resources: Sequence[Resource]) -> list[str]:
    return [resource.key.name for resource in resources]


def count_of_events(records: Records) -> int:
    return len(records.events())


def in_threads(count: int, work: Callable[[int], T], *, times: int | None = None) -> list[T]:
    """Run `work(0)`, `work(1)`, … `times` times in `count` threads at once, and return the results."""
    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(work, range(times or count)))
