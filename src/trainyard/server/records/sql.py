"""Records in SQL. Each method runs functions of one neighbouring module in one transaction."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from trainyard.server.records import (
    arn_tags,
    associations,
    backup,
    counters,
    events,
    leases,
    listing,
    migrations,
    queue_index,
    resources,
    tag_search,
    users,
    value_search,
)
from trainyard.server.records.contract import (
    AccessKey,
    Association,
    AssociationPage,
    AssociationQuery,
    Body,
    Change,
    Claim,
    Counter,
    Draft,
    Event,
    NewEvent,
    Page,
    Priority,
    Query,
    QueuedResource,
    QueueState,
    Resource,
    ResourceId,
    ResourceKey,
    RevisionPage,
    TaggedArn,
    User,
)
from trainyard.server.records.database import RecordsDatabase, open_database


def open_records(url: str) -> "SqlRecords":
    """Open `sqlite:///path` or `postgresql://…`. Create the tables of an empty database, and upgrade an older one.

    Conflict, with nothing changed, when a newer Trainyard made the database or it holds foreign tables; Corrupt when it
    cannot be read; Unavailable when it cannot be reached or written.
    """
    database = open_database(url)
    try:
        migrations.prepare(database)
    except BaseException:
        database.close()
        raise
    return SqlRecords(database)


class SqlRecords:
    """Implements `Records` on an open database whose schema is current."""

    def __init__(self, database: RecordsDatabase) -> None:
        self.database = database
        self._listeners: list[Callable[[ResourceId], None]] = []

    def create(
        self,
        draft: Draft,
        *,
        now: datetime,
        event: NewEvent | None = None,
        limits: Mapping[str, int] | None = None,
    ) -> Resource:
        return self.database.write(
            lambda connection: resources.create(connection, draft, now=now, event=event, limits=limits)
        )

    def load(self, key: ResourceKey) -> Resource:
        return self.database.read(lambda connection: resources.load(connection, key))

    def load_by_id(self, id: ResourceId) -> Resource:  # noqa: A002 - the domain's word
        return self.database.read(lambda connection: resources.load_by_id(connection, id))

    def find(self, query: Query) -> Page:
        if query.values or query.order_by_value:
            with self.database.snapshot() as connection:
                return value_search.find(connection, query)
        if query.tags:
            with self.database.snapshot() as connection:
                return tag_search.find(connection, query)
        return self.database.read(lambda connection: listing.find(connection, query))

    def find_revisions(self, query: Query) -> RevisionPage:
        if query.values or query.order_by_value:
            with self.database.snapshot() as connection:
                return value_search.find_revisions(connection, query)
        if query.tags:
            with self.database.snapshot() as connection:
                return tag_search.find_revisions(connection, query)
        return self.database.read(lambda connection: listing.find_revisions(connection, query))

    def load_many(self, ids: Sequence[ResourceId]) -> Sequence[Resource]:
        return self.database.read(lambda connection: resources.load_many(connection, ids))

    def load_named(self, account: str, kind: str, names: Sequence[str]) -> Sequence[Resource]:
        return self.database.read(lambda connection: resources.load_named(connection, account, kind, names))

    def count(self, query: Query) -> int:
        return self.database.read(lambda connection: listing.count(connection, query))

    def apply(
        self, resource: Resource, change: Change, *, now: datetime, events: Sequence[NewEvent] = ()
    ) -> Resource | None:
        applied = self.database.write(
            lambda connection: resources.apply(connection, resource, change, now=now, new_events=events)
        )
        if applied is not None:
            self._notify(resource.id)
        return applied

    def delete(self, resource: Resource, *, now: datetime, event: NewEvent | None = None) -> bool:
        is_deleted = self.database.write(
            lambda connection: resources.remove(connection, resource, now=now, event=event)
        )
        if is_deleted:
            self._notify(resource.id)
        return is_deleted

    def first_due(self, kind: str, *, now: datetime, state: QueueState = QueueState.UNQUEUED) -> Resource | None:
        return self.database.read(lambda connection: leases.find_first_due(connection, kind, now=now, state=state))

    def heads(self, kind: str, queues: Sequence[str]) -> Sequence[QueuedResource]:
        return self.database.read(lambda connection: queue_index.find_heads(connection, kind, queues))

    def waiting(self, kind: str, queue: str, *, accounts: Sequence[str], limit: int) -> Sequence[QueuedResource]:
        return self.database.read(
            lambda connection: queue_index.find_waiting(connection, kind, queue, accounts=accounts, limit=limit)
        )

    def count_waiting(
        self,
        kind: str,
        queues: Sequence[str],
        *,
        account: str | None = None,
        before: tuple[Priority, datetime] | None = None,
    ) -> int:
        return self.database.read(
            lambda connection: queue_index.count_waiting(connection, kind, queues, account=account, before=before)
        )

    def in_state(self, kind: str, state: QueueState = QueueState.UNQUEUED) -> Sequence[Resource]:
        return self.database.read(lambda connection: leases.find_in_state(connection, kind, state))

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
        if not self.database.read(lambda connection: leases.has_work(connection, kind, now=now, state=state)):
            return None
        return self.database.write(
            lambda connection: leases.claim_next(
                connection, kind, worker=worker, lease=lease, now=now, only=only, state=state
            )
        )

    def renew(self, claim: Claim, *, lease: timedelta, now: datetime) -> Claim | None:
        return self.database.write(lambda connection: leases.renew(connection, claim, lease=lease, now=now))

    def apply_claimed(
        self, claim: Claim, change: Change, *, now: datetime, events: Sequence[NewEvent] = (), release: bool = False
    ) -> Claim | None:
        applied = self.database.write(
            lambda connection: leases.apply(connection, claim, change, now=now, new_events=events, release=release)
        )
        if applied is not None:
            self._notify(claim.resource.id)
        return applied

    def events(self, *, after: int = 0, limit: int = 1000, account: str | None = None) -> Sequence[Event]:
        return self.database.read(lambda connection: events.read_after(connection, after, limit=limit, account=account))

    def last_event(self) -> int:
        return self.database.read(events.last_sequence)

    def listen(self, listener: Callable[[ResourceId], None]) -> None:
        self._listeners.append(listener)

    def add_user(self, user: User, key: AccessKey | None = None) -> None:
        self.database.write(lambda connection: users.add(connection, user, key))

    def user(self, account: str) -> User:
        return self.database.read(lambda connection: users.load(connection, account))

    def users(self) -> Sequence[User]:
        return self.database.read(users.load_all)

    def remove_user(self, account: str, *, now: datetime) -> None:
        self.database.write(lambda connection: users.remove(connection, account, now=now))

    def add_access_key(self, key: AccessKey) -> None:
        self.database.write(lambda connection: users.add_key(connection, key))

    def access_key(self, id: str) -> AccessKey:  # noqa: A002 - the domain's word
        return self.database.read(lambda connection: users.load_key(connection, id))

    def access_keys(self, account: str) -> Sequence[AccessKey]:
        return self.database.read(lambda connection: users.load_permanent_keys(connection, account))

    def remove_access_key(self, account: str, id: str) -> None:  # noqa: A002 - the domain's word
        self.database.write(lambda connection: users.remove_key(connection, account, id))

    def forget_expired_keys(self, *, now: datetime) -> int:
        return self.database.write(lambda connection: users.remove_expired_keys(connection, now=now))

    def tags(self, account: str, arn: str) -> Mapping[str, str]:
        return self.database.read(lambda connection: arn_tags.load(connection, account, arn))

    def tags_of_arns(self, arns: Sequence[str]) -> Sequence[TaggedArn]:
        with self.database.snapshot() as connection:
            return arn_tags.load_many(connection, arns)

    def set_tags(self, account: str, arn: str, tags: Mapping[str, str]) -> None:
        self.database.write(lambda connection: arn_tags.put(connection, account, arn, tags))

    def remove_tags(self, account: str, arn: str, keys: Sequence[str]) -> None:
        self.database.write(lambda connection: arn_tags.remove(connection, account, arn, keys))

    def tagged_arns(
        self, account: str | None, *, arn_prefixes: Sequence[str] = (), after: str = "", limit: int = 100
    ) -> Sequence[TaggedArn]:
        with self.database.snapshot() as connection:
            return arn_tags.find_tagged(connection, account, arn_prefixes=arn_prefixes, after=after, limit=limit)

    def associate(self, association: Association) -> None:
        self.database.write(lambda connection: associations.add(connection, association))

    def dissociate(self, account: str, source: str, destination: str) -> bool:
        return self.database.write(
            lambda connection: associations.remove(connection, account, source=source, destination=destination)
        )

    def find_associations(self, query: AssociationQuery) -> AssociationPage:
        return self.database.read(lambda connection: associations.find(connection, query))

    def edges_from(self, account: str, sources: Sequence[str], *, limit: int) -> Sequence[Association]:
        return self.database.read(
            lambda connection: associations.find_edges(connection, account, sources, is_backward=False, limit=limit)
        )

    def edges_into(self, account: str, destinations: Sequence[str], *, limit: int) -> Sequence[Association]:
        return self.database.read(
            lambda connection: associations.find_edges(connection, account, destinations, is_backward=True, limit=limit)
        )

    def counters(self, account: str | None = None) -> Sequence[Counter]:
        return self.database.read(lambda connection: counters.load(connection, account))

    def export(self) -> Iterator[tuple[str, Body]]:
        with self.database.snapshot() as connection:
            yield from backup.export(connection)

    def restore(self, rows: Iterable[tuple[str, Body]]) -> None:
        self.database.write_once(lambda connection: backup.restore(connection, rows, title=self.database.title))

    def close(self) -> None:
        self.database.close()

    def _notify(self, changed: ResourceId) -> None:
        for listener in self._listeners:
            listener(changed)
