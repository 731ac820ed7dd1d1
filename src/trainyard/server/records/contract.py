"""The contract of the records: what the yard remembers, and the values that describe it.

`SqlRecords` implements `Records` on SQLite and on PostgreSQL. Both must pass
`trainyard.testing.records.RecordsContract`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import IntEnum, StrEnum
from typing import Any, NewType, Protocol

from trainyard.foundation.errors import LimitExceeded

ResourceId = NewType("ResourceId", str)

# What an indexed value can be: a number, or texts. An empty tuple is no value.
IndexedValue = float | tuple[str, ...]

# A JSON object. Its members belong to the code that owns the kind of resource.
Body = Mapping[str, Any]


class QueueState(StrEnum):
    """The scheduling state of a due resource."""

    # The scheduler does not handle the resource, or the resource is no longer due.
    UNQUEUED = ""
    WAITING = "waiting"
    PLACED = "placed"


class Priority(IntEnum):
    """The order of priorities in a queue, the highest first."""

    ON_DEMAND = 0
    SPOT = 1


@dataclass(frozen=True, slots=True)
class ResourceKey:
    """The name of a resource, unique among the existing resources of one account and kind."""

    account: str
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Resource:
    """One thing the yard remembers, such as a role, a log group or a training job.

    An `id` is never reused, not even after a delete. Every apply adds one to `revision`. `region` is the region of the
    create call and part of the ARN. `parent` is the id of the resource that owns this one; deleting the parent deletes
    its children.
    """

    id: ResourceId
    key: ResourceKey
    region: str
    status: str
    created_at: datetime
    modified_at: datetime
    revision: int
    body: Body
    parent: ResourceId | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """A resource to create."""

    key: ResourceKey
    region: str
    body: Body
    status: str = ""
    parent: ResourceId | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    # The ARN that holds the resource's tags. Deleting the resource deletes them.
    arn: str = ""
    due_at: datetime | None = None
    # Stored only if the resource is due.
    state: QueueState = QueueState.UNQUEUED
    # Never changes. None means in no queue.
    queue: str | None = None
    priority: Priority = Priority.ON_DEMAND
    # What the create adds to the counters of the account, by counter name.
    counts: Mapping[str, int] = field(default_factory=dict)
    # By which lists can filter and sort, by name. Numbers must be finite.
    values: Mapping[str, IndexedValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Change:
    """New values for a resource. None keeps the old value; `body` replaces the whole body.

    `counts` is added to the counters of the account, and `keys` to the access keys of users. `values` replaces the
    indexed values with these names, and an empty tuple removes one; all others stay. A quiet change does not touch
    `modified_at`. After a settling change the resource is no longer due and in no queue state.
    """

    status: str | None = None
    body: Body | None = None
    due_at: datetime | None = None
    state: QueueState | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    keys: "Sequence[AccessKey]" = ()
    values: Mapping[str, IndexedValue] = field(default_factory=dict)
    is_quiet: bool = False
    is_settling: bool = False


@dataclass(frozen=True, slots=True)
class Claim:
    """The right of one worker to work on one resource until it expires."""

    resource: Resource
    token: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class QueuedResource:
    """A resource that waits in a queue and that nobody holds, as an index describes it."""

    id: ResourceId
    account: str
    queue: str
    priority: Priority
    due_at: datetime


class SortBy(StrEnum):
    """The value that orders a list."""

    NAME = "name"
    CREATED = "created"
    MODIFIED = "modified"
    STATUS = "status"


@dataclass(frozen=True, slots=True)
class TagFilter:
    """A tag that a resource must have: this key with one of these values, or with any value if none is given."""

    key: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ValueFilter:
    """An indexed value that a resource must have: one of these texts, or a number in this closed range.

    Any value will do if neither is given. With `is_absent`, the resource must not have such a value.
    """

    name: str
    texts: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    is_absent: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """Selects and orders resources. None and empty mean any; an `account` of None is for an administrator.

    The times are exclusive. A resource must have all `tags` and pass all `values`. `after` is the `next_after` of the
    previous page. With `order_by_value`, the list has only resources with a number of that name, in its order.
    """

    kind: str
    account: str | None = None
    parent: ResourceId | None = None
    name: str = ""
    name_prefix: str = ""
    name_contains: str = ""
    # In lower case. The name contains all of them, in any order and whatever the case of its ASCII letters.
    name_words: tuple[str, ...] = ()
    status: str = ""
    created_after: datetime | None = None
    created_before: datetime | None = None
    modified_after: datetime | None = None
    modified_before: datetime | None = None
    tags: tuple[TagFilter, ...] = ()
    values: tuple[ValueFilter, ...] = ()
    sort_by: SortBy = SortBy.CREATED
    order_by_value: str = ""
    descending: bool = False
    limit: int = 100
    after: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list. `next_after` is None on the last page."""

    resources: Sequence[Resource]
    next_after: str | None


@dataclass(frozen=True, slots=True)
class ResourceRevision:
    """Which revision a resource has now. A reader that knows this revision need not load the resource again."""

    id: ResourceId
    revision: int


@dataclass(frozen=True, slots=True)
class RevisionPage:
    """One page of a list, without the bodies. `next_after` is None on the last page."""

    revisions: Sequence[ResourceRevision]
    next_after: str | None


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, written in the transaction that made it happen. `sequence` orders all events."""

    sequence: int
    at: datetime
    account: str
    kind: str
    subject: ResourceId
    body: Body


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to append. The records add its sequence number, time and subject."""

    kind: str
    body: Body = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class User:
    """A person or program that may call the yard. Each user has an account of its own.

    A removed user stays on record with `removed_at`, because its account still owns resources.
    """

    account: str
    name: str
    role: str
    is_admin: bool
    created_at: datetime
    removed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class AccessKey:
    """A key pair of a user. A temporary one has a session token, an expiry, and the role and session it acts as."""

    id: str
    secret: str = field(repr=False)
    account: str
    created_at: datetime
    session_token: str | None = field(default=None, repr=False)
    expires_at: datetime | None = None
    role: str | None = None
    session: str | None = None


@dataclass(frozen=True, slots=True)
class Counter:
    """A number of an account, updated in the same transaction as the resources that it counts."""

    account: str
    name: str
    value: int


class CounterFull(LimitExceeded):
    """A create would raise a counter above its limit."""

    def __init__(self, counter: Counter, *, limit: int, added: int) -> None:
        super().__init__(
            f'The counter "{counter.name}" is at {counter.value}; {added} more would exceed its limit of {limit}.'
        )
        self.counter, self.limit, self.added = counter, limit, added


@dataclass(frozen=True, slots=True)
class TaggedArn:
    """An ARN of an account, with its tags."""

    account: str
    arn: str
    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Association:
    """A directed edge of the lineage of one account, from one ARN to another. There is at most one in each direction.

    `kind` is a word of AWS such as Produced. The types are those of the entities at its ends, and never change.
    """

    account: str
    source: str
    destination: str
    kind: str
    created_at: datetime
    source_type: str = ""
    destination_type: str = ""


class AssociationOrder(StrEnum):
    """The value that orders a list of associations."""

    CREATED = "created_at"
    SOURCE = "source"
    DESTINATION = "destination"
    SOURCE_TYPE = "source_type"
    DESTINATION_TYPE = "destination_type"


@dataclass(frozen=True, slots=True)
class AssociationQuery:
    """Selects and orders the associations of an account. Empty and None mean any; the times are exclusive."""

    account: str
    source: str = ""
    destination: str = ""
    kind: str = ""
    source_type: str = ""
    destination_type: str = ""
    created_after: datetime | None = None
    created_before: datetime | None = None
    sort_by: AssociationOrder = AssociationOrder.CREATED
    descending: bool = False
    limit: int = 100
    after: str = ""


@dataclass(frozen=True, slots=True)
class AssociationPage:
    """One page of a list of associations. `next_after` is None on the last page."""

    associations: Sequence[Association]
    next_after: str | None


class Records(Protocol):
    """Remembers resources, users, keys, tags, counters and events.

    Every method is one transaction and is durable when it returns. All methods block and may be called from any thread.
    Several processes may share a PostgreSQL back end. Nothing slows down as history grows: lists and claims use indexes
    and pages. Names are case-sensitive.

    Raises NotFound, AlreadyExists and Conflict as each method says; Unavailable when the database cannot be reached,
    stays locked too long, or has a full disk; Corrupt when it cannot be read.
    """

    def create(
        self,
        draft: Draft,
        *,
        now: datetime,
        event: NewEvent | None = None,
        limits: Mapping[str, int] | None = None,
    ) -> Resource:
        """Create a resource. AlreadyExists when one has the key; of concurrent creates exactly one succeeds.

        NotFound when the draft names a parent that its account does not have. CounterFull when a counter that the
        draft adds to would exceed its limit in `limits`, however many creates run at once.
        """
        ...

    def load(self, key: ResourceKey) -> Resource:
        """Return the resource with this key. NotFound carries the kind and the name."""
        ...

    def load_by_id(self, id: ResourceId) -> Resource:  # noqa: A002 - the domain's word
        """Return the resource with this id, or raise NotFound."""
        ...

    def find(self, query: Query) -> Page:
        """Return one page. Pages stay stable while resources are added: none is skipped or shown twice.

        With tags or values in the query, a page may be short or empty although more pages follow.
        """
        ...

    def find_revisions(self, query: Query) -> RevisionPage:
        """Return what `find` returns, without bodies: thirty times faster for resources that the caller knows."""
        ...

    def load_many(self, ids: Sequence[ResourceId]) -> Sequence[Resource]:
        """Return the resources with these ids, in any order. Those that do not exist are left out."""
        ...

    def load_named(self, account: str, kind: str, names: Sequence[str]) -> Sequence[Resource]:
        """Return the resources of an account and kind with these names, in any order. Missing ones are left out."""
        ...

    def count(self, query: Query) -> int:
        """Count all resources that a query without tags and values finds, on any page. Reads only an index."""
        ...

    def apply(
        self, resource: Resource, change: Change, *, now: datetime, events: Sequence[NewEvent] = ()
    ) -> Resource | None:
        """Write the change if the resource still has that revision. Otherwise return None and change nothing."""
        ...

    def delete(self, resource: Resource, *, now: datetime, event: NewEvent | None = None) -> bool:
        """Delete the resource, its children and their tags if it still has that revision. Its name becomes free."""
        ...

    def first_due(self, kind: str, *, now: datetime, state: QueueState = QueueState.UNQUEUED) -> Resource | None:
        """Return what `claim_next` would claim now, without claiming it. Expired leases are ignored."""
        ...

    def heads(self, kind: str, queues: Sequence[str]) -> Sequence[QueuedResource]:
        """Return the first waiting resource of each account in each queue that nobody holds.

        The order of an account's resources is priority, then `due_at`, then id. The cost of an account does not depend
        on how many of its resources wait.
        """
        ...

    def waiting(self, kind: str, queue: str, *, accounts: Sequence[str], limit: int) -> Sequence[QueuedResource]:
        """Return up to `limit` waiting resources of each account in a queue, in order, one account after the other.

        Resources that somebody holds are left out.
        """
        ...

    def count_waiting(
        self,
        kind: str,
        queues: Sequence[str],
        *,
        account: str | None = None,
        before: tuple[Priority, datetime] | None = None,
    ) -> int:
        """Count the waiting resources in some queues that nobody holds, by one range of an index for each queue.

        `account` counts one account only. `before` counts only resources ahead of that priority and `due_at`.
        """
        ...

    def in_state(self, kind: str, state: QueueState = QueueState.UNQUEUED) -> Sequence[Resource]:
        """Return all resources in a state that are due now or later, held or not, by creation time and then by id.

        Resources in other states cost nothing, unless somebody holds them.
        """
        ...

    def claim_next(
        self,
        kind: str,
        *,
        worker: str,
        lease: timedelta,
        now: datetime,
        only: ResourceId | None = None,
        state: QueueState = QueueState.UNQUEUED,
    ) -> Claim | None:
        """Claim the resource of this kind and state whose `due_at` passed longest ago and that nobody holds.

        With `only`, claim that resource or none. Only one worker at a time holds a resource. A resource without a
        `due_at` is never due.
        """
        ...

    def renew(self, claim: Claim, *, lease: timedelta, now: datetime) -> Claim | None:
        """Return the claim with a later expiry and the current resource, or None when the lease is lost."""
        ...

    def apply_claimed(
        self, claim: Claim, change: Change, *, now: datetime, events: Sequence[NewEvent] = (), release: bool = False
    ) -> Claim | None:
        """Write the change under the claim, and keep the claim unless `release` gives it up.

        Return None and change nothing when another worker holds the resource, when the lease has expired at `now`, or
        when somebody else has applied a change since (a user's stop, say), which `renew` then returns. With `release`,
        a `due_at` of None means that the resource is no longer due.
        """
        ...

    def events(self, *, after: int = 0, limit: int = 1000, account: str | None = None) -> Sequence[Event]:
        """Return the events with a sequence above `after`, in order. A gap in the sequence never fills later."""
        ...

    def last_event(self) -> int:
        """Return the sequence of the newest event, or 0 if there is none."""
        ...

    def listen(self, listener: Callable[[ResourceId], None]) -> None:
        """Call `listener` from now on with the id of each resource that this object changes or deletes.

        The call comes when the change is durable, in the thread that made it, and must return at once. Changes by other
        processes are not reported.
        """
        ...

    def add_user(self, user: User, key: AccessKey | None = None) -> None:
        """Add a user, with or without a first key pair. AlreadyExists when another user has the name."""
        ...

    def user(self, account: str) -> User:
        """Return the user of an account, even a removed one (see `removed_at`). NotFound when there never was one."""
        ...

    def users(self) -> Sequence[User]:
        """Return all users that have not been removed, by name."""
        ...

    def remove_user(self, account: str, *, now: datetime) -> None:
        """Mark the user as removed and delete all its keys. Its resources stay, for an administrator."""
        ...

    def add_access_key(self, key: AccessKey) -> None:
        """Add a key pair to a user. NotFound when the user does not exist, AlreadyExists when the id is taken."""
        ...

    def access_key(self, id: str) -> AccessKey:  # noqa: A002 - the domain's word
        """Return the key pair with this id, or raise NotFound."""
        ...

    def access_keys(self, account: str) -> Sequence[AccessKey]:
        """Return the permanent key pairs of a user, oldest first."""
        ...

    def remove_access_key(self, account: str, id: str) -> None:  # noqa: A002 - the domain's word
        """Delete a key pair of an account. NotFound when the account has none with this id."""
        ...

    def forget_expired_keys(self, *, now: datetime) -> int:
        """Delete the key pairs that have expired, and return how many there were."""
        ...

    def tags(self, account: str, arn: str) -> Mapping[str, str]:
        """Return the tags of an ARN, by key."""
        ...

    def tags_of_arns(self, arns: Sequence[str]) -> Sequence[TaggedArn]:
        """Return these ARNs with their tags, in any order, once for each account. ARNs without tags are left out."""
        ...

    def set_tags(self, account: str, arn: str, tags: Mapping[str, str]) -> None:
        """Add tags to an ARN. An existing key gets the new value."""
        ...

    def remove_tags(self, account: str, arn: str, keys: Sequence[str]) -> None:
        """Remove the tags with these keys from an ARN. Missing keys are ignored."""
        ...

    def tagged_arns(
        self, account: str | None, *, arn_prefixes: Sequence[str] = (), after: str = "", limit: int = 100
    ) -> Sequence[TaggedArn]:
        """Return the tagged ARNs after `after` in order, of one account or of all."""
        ...

    def associate(self, association: Association) -> None:
        """Add an association. AlreadyExists when there is one from its source to its destination."""
        ...

    def dissociate(self, account: str, source: str, destination: str) -> bool:
        """Remove the association from one ARN to another; return whether there was one."""
        ...

    def find_associations(self, query: AssociationQuery) -> AssociationPage:
        """Return one page. Its cost depends on the associations of the source or the destination, if one is given.

        Otherwise only the order by creation has an index.
        """
        ...

    def edges_from(self, account: str, sources: Sequence[str], *, limit: int) -> Sequence[Association]:
        """Return up to `limit` associations that begin at any of these ARNs, by source and then by destination."""
        ...

    def edges_into(self, account: str, destinations: Sequence[str], *, limit: int) -> Sequence[Association]:
        """Return up to `limit` associations that end at any of these ARNs, by destination and then by source."""
        ...

    def counters(self, account: str | None = None) -> Sequence[Counter]:
        """Return all counters of one account or of all accounts, by account and name."""
        ...

    def export(self) -> Iterator[tuple[str, Body]]:
        """Yield every row of one consistent snapshot as (table, row), for a backup."""
        ...

    def restore(self, rows: Iterable[tuple[str, Body]]) -> None:
        """Fill empty records from an export. Conflict when they are not empty or a newer version wrote the export."""
        ...

    def close(self) -> None: ...
