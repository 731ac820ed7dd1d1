"""What it means to remember.

`Records` is the seam. `SqlRecords` stands behind it, on SQLite or PostgreSQL; both must pass
`trainyard.testing.records.RecordsContract`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NewType, Protocol

from trainyard.foundation.errors import LimitExceeded

ResourceId = NewType("ResourceId", str)

Body = Mapping[str, Any]  # JSON; what is inside belongs to the code that owns the kind


@dataclass(frozen=True, slots=True)
class ResourceKey:
    """How a caller names a resource: unique among the living of one account and kind."""

    account: str
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Resource:
    """One thing the yard remembers: a role, a policy, a log group, later a job.

    `id` is never used again, also after a delete; `revision` rises by one with every apply. `region` is that of the
    create call and stays in its ARN. `parent` is the id of the resource it belongs to and is deleted with.
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
    """A resource to be."""

    key: ResourceKey
    region: str
    body: Body
    status: str = ""
    parent: ResourceId | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    arn: str = ""  # under which its tags are found, now or later; they go when it is deleted
    due_at: datetime | None = None
    line: str | None = None  # in which it is due, for good; None is none
    counts: Mapping[str, int] = field(default_factory=dict)  # what is added to which counters of its account


@dataclass(frozen=True, slots=True)
class Change:
    """New values for a resource; None leaves what is there. `body` replaces the whole body.

    `counts` is added to the counters of its account, and `keys` to the key pairs that users have. A quiet change leaves
    `modified_at` as it is; after a settling one the resource is due no more.
    """

    status: str | None = None
    body: Body | None = None
    due_at: datetime | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    keys: "Sequence[AccessKey]" = ()
    is_quiet: bool = False
    is_settling: bool = False


@dataclass(frozen=True, slots=True)
class Claim:
    """The right of one worker to work on one resource until it expires."""

    resource: Resource
    token: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Waiting:
    """A resource that is due in a line and that nobody holds, as an index tells of it."""

    id: ResourceId
    account: str
    line: str
    due_at: datetime


class SortBy(StrEnum):
    NAME = "name"
    CREATED = "created"
    MODIFIED = "modified"
    STATUS = "status"


@dataclass(frozen=True, slots=True)
class TagFilter:
    """A tag that a resource must have: of this key and one of these values, or any where none is given."""

    key: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Query:
    """Which resources, in which order. None and empty mean any; `account` None is for an administrator.

    The times are exclusive. All `tags` must be there. `after` is the `next_after` of the page before.
    """

    kind: str
    account: str | None = None
    parent: ResourceId | None = None
    name: str = ""
    name_prefix: str = ""
    name_contains: str = ""
    status: str = ""
    created_after: datetime | None = None
    created_before: datetime | None = None
    modified_after: datetime | None = None
    modified_before: datetime | None = None
    tags: tuple[TagFilter, ...] = ()
    sort_by: SortBy = SortBy.CREATED
    descending: bool = False
    limit: int = 100
    after: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    resources: Sequence[Resource]
    next_after: str | None


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, appended in the transaction that made it so. `sequence` orders all of them."""

    sequence: int
    at: datetime
    account: str
    kind: str
    subject: ResourceId
    body: Body


@dataclass(frozen=True, slots=True)
class NewEvent:
    kind: str
    body: Body = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class User:
    """A person or program that may call. Each is an account of its own; `removed_at` keeps the account's things."""

    account: str
    name: str
    role: str
    is_admin: bool
    created_at: datetime
    removed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class AccessKey:
    """A key pair of a user. A temporary one has a session token, an expiry, and the role and session it speaks as."""

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
    """A number of an account that moves in the same transaction as the resources that it counts."""

    account: str
    name: str
    value: int


class CounterFull(LimitExceeded):
    """A create would have taken a counter above the limit that was given for it."""

    def __init__(self, counter: Counter, *, limit: int, added: int) -> None:
        super().__init__(
            f'The counter "{counter.name}" is at {counter.value}; {added} more would exceed its limit of {limit}.'
        )
        self.counter, self.limit, self.added = counter, limit, added


@dataclass(frozen=True, slots=True)
class TaggedArn:
    account: str
    arn: str
    tags: Mapping[str, str]


class Records(Protocol):
    """Remembers resources, users, keys, tags, counters and events.

    Every method is one transaction and is durable when it returns. All block and may be called from any thread, and
    several processes may share a PostgreSQL back end. Nothing here grows slower with history: lists and claims are
    indexed and paged. A name is matched in the case it was created with.

    Raised: NotFound, AlreadyExists and Conflict as each method says; Unavailable when the database cannot be reached,
    is locked too long, or its disk is full; Corrupt when it cannot be read.
    """

    def create(
        self,
        draft: Draft,
        *,
        now: datetime,
        event: NewEvent | None = None,
        limits: Mapping[str, int] | None = None,
    ) -> Resource:
        """AlreadyExists when a living resource has the key. Of many concurrent creates exactly one succeeds.

        NotFound when the draft names a parent that does not live in its account. CounterFull when a counter that the
        draft adds to would be above its limit in `limits`, however many creates there are at once.
        """
        ...

    def load(self, key: ResourceKey) -> Resource:
        """The living resource of that key, or NotFound with the kind and the name."""
        ...

    def load_by_id(self, id: ResourceId) -> Resource:  # noqa: A002 - the domain's word
        """The living resource of that id, or NotFound."""
        ...

    def find(self, query: Query) -> Page:
        """One page. Pages stay stable while resources are added: none is skipped or shown twice.

        A page of a query with tags may be short, or empty, with others behind it.
        """
        ...

    def count(self, query: Query) -> int:
        """How many resources a query without tags finds in all, whatever its page; read from an index alone."""
        ...

    def apply(
        self, resource: Resource, change: Change, *, now: datetime, events: Sequence[NewEvent] = ()
    ) -> Resource | None:
        """Write the change if the resource still has that revision; None, and no effect at all, when it moved on."""
        ...

    def delete(self, resource: Resource, *, now: datetime, event: NewEvent | None = None) -> bool:
        """Forget it and its children, with their tags, if it still has that revision; the name is free again."""
        ...

    def first_due(self, kind: str, *, now: datetime) -> Resource | None:
        """What `claim_next` would take now, apart from what a worker that was killed holds; it is left as it is."""
        ...

    def heads(self, kind: str, lines: Sequence[str], *, after: datetime) -> Sequence[Waiting]:
        """Of each account the one in each line that is due first after a moment and that nobody holds.

        An account costs the same however many it has in line.
        """
        ...

    def waiting(
        self, kind: str, line: str, *, accounts: Sequence[str], after: datetime, limit: int
    ) -> Sequence[Waiting]:
        """The first of each of some accounts in a line that are due after a moment and that nobody holds, in order.

        No more than `limit` of each, one account after the other.
        """
        ...

    def count_due(
        self,
        kind: str,
        *,
        after: datetime,
        before: datetime,
        lines: Sequence[str] | None = None,
        account: str | None = None,
    ) -> int:
        """How many that nobody holds are due between two moments, both excluded; read from an index alone.

        With `lines`, those in these alone, of all accounts or of one.
        """
        ...

    def due_until(self, kind: str, moment: datetime) -> Sequence[Resource]:
        """All that are due at a moment or before, held or not, the oldest first, those of one moment by their ids.

        Those that are due later and that nobody holds cost nothing.
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
        until: datetime | None = None,
    ) -> Claim | None:
        """Take the resource of this kind whose `due_at` passed longest ago and that nobody holds a live lease on.

        With `only`, that one or none; with `until`, one that was due at that moment or none. Of several workers each
        resource is claimed by one at a time. A resource never given a `due_at` is never due.
        """
        ...

    def renew(self, claim: Claim, *, lease: timedelta, now: datetime) -> Claim | None:
        """The same claim with a later expiry and the resource as it is now, or None when the lease is lost."""
        ...

    def apply_claimed(
        self, claim: Claim, change: Change, *, now: datetime, events: Sequence[NewEvent] = (), release: bool = False
    ) -> Claim | None:
        """Write under the claim and keep it (or give it back with `release`).

        None, and no effect at all, when the token is no longer the resource's, when the lease has expired at `now`, or
        when someone has applied a change since (a user's stop, say), of which `renew` then tells. A `due_at` of None
        in a released change means that the resource is no longer due.
        """
        ...

    def events(self, *, after: int = 0, limit: int = 1000, account: str | None = None) -> Sequence[Event]:
        """The events with a sequence above `after`, in order; gaps never fill in later."""
        ...

    def listen(self, listener: Callable[[ResourceId], None]) -> None:
        """Call `listener` from now on with the id of each resource that is changed or deleted through this object.

        It is called when the change is durable, in the thread that made it, and must return at once. What other
        processes change is not told.
        """
        ...

    def add_user(self, user: User, key: AccessKey | None = None) -> None:
        """Add a user, with its first key pair or none yet; AlreadyExists when a living user has the name."""
        ...

    def user(self, account: str) -> User:
        """Also a removed one, which its `removed_at` tells; NotFound when there never was one."""
        ...

    def users(self) -> Sequence[User]:
        """The living ones, by name."""
        ...

    def remove_user(self, account: str, *, now: datetime) -> None:
        """Mark the user removed and forget all its keys. What it owns stays, for an administrator."""
        ...

    def add_access_key(self, key: AccessKey) -> None: ...

    def access_key(self, id: str) -> AccessKey:  # noqa: A002 - the domain's word
        ...

    def access_keys(self, account: str) -> Sequence[AccessKey]:
        """The lasting ones of a user, oldest first."""
        ...

    def remove_access_key(self, account: str, id: str) -> None:  # noqa: A002 - the domain's word
        ...

    def forget_expired_keys(self, *, now: datetime) -> int: ...

    def tags(self, account: str, arn: str) -> Mapping[str, str]: ...

    def set_tags(self, account: str, arn: str, tags: Mapping[str, str]) -> None:
        """Add to the tags of an ARN, replacing values of the same key."""
        ...

    def remove_tags(self, account: str, arn: str, keys: Sequence[str]) -> None: ...

    def tagged(
        self, account: str | None, *, arn_prefixes: Sequence[str] = (), after: str = "", limit: int = 100
    ) -> Sequence[TaggedArn]:
        """Tagged ARNs in order, those after `after`; of one account, or of all."""
        ...

    def counters(self, account: str | None = None) -> Sequence[Counter]:
        """Those that were ever added to, of one account or of all, by account and name."""
        ...

    def export(self) -> Iterator[tuple[str, Body]]:
        """Every row of one consistent snapshot as (table, row), for a backup."""
        ...

    def restore(self, rows: Iterable[tuple[str, Body]]) -> None:
        """Fill empty records from an export. Conflict when they are not empty."""
        ...

    def close(self) -> None: ...
