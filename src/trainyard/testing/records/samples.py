"""Names, times and drafts that the suite works with."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from trainyard.server.records.contract import Draft, Records, Resource, ResourceId, ResourceKey

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
    line: str | None = None,
) -> Draft:
    parent_id: ResourceId | None = None if parent is None else parent.id
    whose = key(name, account=account, kind=kind)
    return Draft(whose, REGION, body or {}, status, parent_id, tags or {}, arn, due_at, line)


def minutes(count: float) -> datetime:
    return NOON + timedelta(minutes=count)


def names(resources: Sequence[Resource]) -> list[str]:
    return [resource.key.name for resource in resources]


def count_of_events(records: Records) -> int:
    return len(records.events())


def in_threads(count: int, work: Callable[[int], T], *, times: int | None = None) -> list[T]:
    """The results of `work(0)`, `work(1)`…, run `times` times by `count` threads at once."""
    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(work, range(times or count)))
