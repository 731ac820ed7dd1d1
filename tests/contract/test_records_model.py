"""Whatever callers do in whatever order, records answer like a plain dictionary."""

import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TypeAlias, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, MultipleResults, RuleBasedStateMachine, invariant, multiple, rule

from trainyard.foundation.errors import AlreadyExists, NotFound
from trainyard.server.records.contract import (
    Change,
    Claim,
    Draft,
    NewEvent,
    Priority,
    Query,
    QueuedResource,
    QueueState,
    Resource,
    ResourceKey,
    SortBy,
)
from trainyard.server.records.sql import open_records
from trainyard.testing.records.lists import read_all
from trainyard.testing.records.samples import ALICE, BOB, NOON, REGION

T = TypeVar("T")
# What a rule adds to a bundle: one, or none.
Kept: TypeAlias = MultipleResults[T] | T

accounts = st.sampled_from([ALICE, BOB])
kinds = st.sampled_from(["job", "model"])
job_names = st.sampled_from(["a", "ab", "b", "B", "é"])
statuses = st.sampled_from(["", "x", "y"])
delays = st.integers(-3, 3).map(lambda count: timedelta(minutes=count))
states = st.sampled_from(QueueState)
queues = st.none() | st.sampled_from(["x", "y"])
priorities = st.sampled_from(Priority)
moments = st.integers(-1, 12).map(lambda count: NOON + timedelta(minutes=count))
changes = st.builds(
    Change,
    status=st.none() | statuses,
    body=st.none() | st.fixed_dictionaries({"n": st.integers()}),
    due_at=st.none() | moments,
    state=st.none() | states,
    is_settling=st.booleans(),
)
queries = st.builds(
    Query,
    kind=kinds,
    account=st.none() | accounts,
    name=st.just("") | job_names,
    name_prefix=st.just("") | job_names,
    name_contains=st.just("") | job_names,
    status=statuses,
    created_after=st.none() | moments,
    created_before=st.none() | moments,
    modified_after=st.none() | moments,
    modified_before=st.none() | moments,
    sort_by=st.sampled_from(SortBy),
    descending=st.booleans(),
    limit=st.integers(1, 4),
)


@dataclass
class Known:
    """The model of one existing resource."""

    resource: Resource
    due_at: datetime | None
    state: QueueState
    queue: str | None
    priority: Priority
    claim: Claim | None = None

    @property
    def queued(self) -> QueuedResource:
        assert self.queue is not None
        assert self.due_at is not None
        key = self.resource.key
        return QueuedResource(self.resource.id, key.account, self.queue, self.priority, self.due_at)


@dataclass
class Model:
    """The model of the records."""

    living: dict[str, Known] = field(default_factory=dict)
    events: list[tuple[str, str]] = field(default_factory=list)

    def has(self, key: ResourceKey) -> bool:
        return any(known.resource.key == key for known in self.living.values())

    def current(self, resource: Resource) -> Known | None:
        known = self.living.get(resource.id)
        return known if known and known.resource.revision == resource.revision else None

    def held(self, claim: Claim, now: datetime) -> Known | None:
        known = self.living.get(claim.resource.id)
        if known is None or known.claim is None or known.claim.token != claim.token:
            return None
        return known if now < known.claim.expires_at else None

    def release_expired(self, kind: str, now: datetime) -> None:
        for known in self.living.values():
            if known.resource.key.kind == kind and known.claim is not None and known.claim.expires_at <= now:
                known.claim = None

    def in_state(self, kind: str, state: QueueState) -> list[Known]:
        due = [known for known in self.living.values() if known.due_at is not None and known.state is state]
        return [known for known in due if known.resource.key.kind == kind]

    def first_due(self, kind: str, state: QueueState, now: datetime) -> Known | None:
        ready = [
            (known.due_at, known.resource.id, known)
            for known in self.in_state(kind, state)
            if known.due_at is not None and known.due_at <= now and known.claim is None
        ]
        return min(ready, key=lambda each: each[:2])[2] if ready else None

    def waiting(self, kind: str, queue: str, account: str) -> list[QueuedResource]:
        free = [known for known in self.in_state(kind, QueueState.WAITING) if known.claim is None]
        mine = [known for known in free if (known.queue, known.resource.key.account) == (queue, account)]
        return sorted((known.queued for known in mine), key=lambda each: (each.priority, each.due_at, each.id))

    def change(self, known: Known, change: Change, now: datetime) -> None:
        before = known.resource
        known.resource = replace(
            before,
            status=before.status if change.status is None else change.status,
            body=before.body if change.body is None else change.body,
            modified_at=now,
            revision=before.revision + 1,
        )
        known.due_at = known.due_at if change.due_at is None else change.due_at
        known.state = known.state if change.state is None else change.state
        if change.is_settling:
            known.due_at, known.state = None, QueueState.UNQUEUED

    def forget(self, resource: Resource) -> None:
        del self.living[resource.id]
        for child in [known.resource for known in self.living.values() if known.resource.parent == resource.id]:
            self.forget(child)

    def find(self, query: Query) -> list[Resource]:
        found = [known.resource for known in self.living.values() if fits(known.resource, query)]
        return sorted(found, key=ORDERS[query.sort_by], reverse=query.descending)


ORDERS: Mapping[SortBy, Callable[[Resource], tuple[object, ...]]] = {
    SortBy.NAME: lambda resource: (resource.key.name.encode(), resource.id),
    SortBy.CREATED: lambda resource: (resource.created_at, resource.id),
    SortBy.MODIFIED: lambda resource: (resource.modified_at, resource.id),
    SortBy.STATUS: lambda resource: (resource.status, resource.created_at, resource.id),
}


def fits(resource: Resource, query: Query) -> bool:
    key = resource.key
    return (
        key.kind == query.kind
        and query.account in (None, key.account)
        and query.name in ("", key.name)
        and key.name.startswith(query.name_prefix)
        and query.name_contains in key.name
        and query.status in ("", resource.status)
        and (query.created_after is None or resource.created_at > query.created_after)
        and (query.created_before is None or resource.created_at < query.created_before)
        and (query.modified_after is None or resource.modified_at > query.modified_after)
        and (query.modified_before is None or resource.modified_at < query.modified_before)
    )


class RecordsAgainstModel(RuleBasedStateMachine):
    # Every version of a resource that a caller may still have.
    seen: Bundle[Resource] = Bundle("seen")
    claims: Bundle[Claim] = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp(prefix="trainyard-")
        self.records = open_records(f"sqlite:///{self.folder}/records.db")
        self.model = Model()
        self.now = NOON

    def teardown(self) -> None:
        self.records.close()
        shutil.rmtree(self.folder)

    @rule(delay=st.integers(0, 120))
    def wait(self, delay: int) -> None:
        self.now += timedelta(seconds=delay)

    @rule(
        target=seen,
        account=accounts,
        kind=kinds,
        name=job_names,
        status=statuses,
        delay=st.none() | delays,
        state=states,
        queue=queues,
        priority=priorities,
    )
    def create(
        self,
        account: str,
        kind: str,
        name: str,
        status: str,
        delay: timedelta | None,
        state: QueueState,
        queue: str | None,
        priority: Priority,
    ) -> Kept[Resource]:
        due_at = None if delay is None else self.now + delay
        key = ResourceKey(account, kind, name)
        return self.created(
            Draft(key, REGION, {"n": 0}, status, due_at=due_at, state=state, queue=queue, priority=priority)
        )

    @rule(target=seen, parent=seen, name=job_names)
    def create_child(self, parent: Resource, name: str) -> Kept[Resource]:
        draft = Draft(replace(parent.key, name=name), REGION, {"n": 0}, parent=parent.id)
        if parent.id in self.model.living:
            return self.created(draft)
        with pytest.raises(NotFound):
            self.records.create(draft, now=self.now, event=NewEvent("created"))
        return multiple()

    def created(self, draft: Draft) -> Kept[Resource]:
        if self.model.has(draft.key):
            with pytest.raises(AlreadyExists):
                self.records.create(draft, now=self.now, event=NewEvent("created"))
            return multiple()
        resource = self.records.create(draft, now=self.now, event=NewEvent("created"))
        state = QueueState.UNQUEUED if draft.due_at is None else draft.state
        self.model.living[resource.id] = Known(resource, draft.due_at, state, draft.queue, draft.priority)
        self.model.events.append((resource.id, "created"))
        return resource

    @rule(target=seen, resource=seen, change=changes)
    def apply(self, resource: Resource, change: Change) -> Kept[Resource]:
        known = self.model.current(resource)
        applied = self.records.apply(resource, change, now=self.now, events=[NewEvent("applied")])
        if known is None:
            assert applied is None
            return multiple()
        self.model.change(known, change, self.now)
        self.model.events.append((resource.id, "applied"))
        assert applied == known.resource
        return applied

    @rule(resource=seen)
    def delete(self, resource: Resource) -> None:
        known = self.model.current(resource)
        assert self.records.delete(resource, now=self.now, event=NewEvent("deleted")) == (known is not None)
        if known is not None:
            self.model.forget(resource)
            self.model.events.append((resource.id, "deleted"))

    @rule(kind=kinds, state=states)
    def first_due(self, kind: str, state: QueueState) -> None:
        due = self.model.first_due(kind, state, self.now)
        found = self.records.first_due(kind, now=self.now, state=state)
        assert found == (None if due is None else due.resource)

    @rule(target=claims, kind=kinds, state=states, lease=st.integers(1, 120))
    def claim_next(self, kind: str, state: QueueState, lease: int) -> Kept[Claim]:
        # A claim releases all expired leases of its kind.
        self.model.release_expired(kind, self.now)
        due = self.model.first_due(kind, state, self.now)
        claim = self.records.claim_next(kind, worker="w", lease=timedelta(seconds=lease), now=self.now, state=state)
        if due is None:
            assert claim is None
            return multiple()
        assert claim is not None
        assert claim == Claim(due.resource, claim.token, self.now + timedelta(seconds=lease))
        due.claim = claim
        return claim

    @rule(target=claims, claim=claims, lease=st.integers(1, 120))
    def renew(self, claim: Claim, lease: int) -> Kept[Claim]:
        known = self.model.held(claim, self.now)
        renewed = self.records.renew(claim, lease=timedelta(seconds=lease), now=self.now)
        if known is None:
            assert renewed is None
            return multiple()
        assert known.claim is not None
        later = max(known.claim.expires_at, self.now + timedelta(seconds=lease))
        assert renewed == replace(claim, resource=known.resource, expires_at=later)
        known.claim = renewed
        return renewed

    @rule(target=claims, claim=claims, change=changes, release=st.booleans())
    def apply_claimed(self, claim: Claim, change: Change, release: bool) -> Kept[Claim]:
        known = self.model.held(claim, self.now)
        applied = self.records.apply_claimed(claim, change, now=self.now, events=[NewEvent("worked")], release=release)
        if known is None or known.resource.revision != claim.resource.revision:
            assert applied is None
            return multiple()
        self.model.change(known, change, self.now)
        self.model.events.append((claim.resource.id, "worked"))
        if release:
            known.claim, known.due_at = None, None if change.is_settling else change.due_at
            if known.due_at is None:
                known.state = QueueState.UNQUEUED
        assert applied is not None
        assert applied.resource == known.resource
        return applied

    @rule(kind=kinds, state=states)
    def in_state(self, kind: str, state: QueueState) -> None:
        expected = [known.resource for known in self.model.in_state(kind, state)]
        expected.sort(key=lambda resource: (resource.created_at, resource.id))
        assert self.records.in_state(kind, state) == expected

    @rule(kind=kinds, queue=st.sampled_from(["x", "y"]), priority=priorities, due_at=moments)
    def read_queue(self, kind: str, queue: str, priority: Priority, due_at: datetime) -> None:
        waiting = {account: self.model.waiting(kind, queue, account) for account in (ALICE, BOB)}
        assert self.records.heads(kind, [queue]) == [each[0] for each in waiting.values() if each]
        found = self.records.waiting(kind, queue, accounts=[BOB, ALICE], limit=2)
        assert found == [*waiting[BOB][:2], *waiting[ALICE][:2]]
        assert self.records.count_waiting(kind, [queue]) == len(waiting[ALICE]) + len(waiting[BOB])
        before = [each for each in waiting[BOB] if (each.priority, each.due_at) < (priority, due_at)]
        assert self.records.count_waiting(kind, [queue], account=BOB, before=(priority, due_at)) == len(before)

    @rule(query=queries)
    def find(self, query: Query) -> None:
        assert read_all(self.records, query) == self.model.find(query)

    @rule(parent=seen, query=queries)
    def find_children(self, parent: Resource, query: Query) -> None:
        mine = replace(query, kind=parent.key.kind, parent=parent.id)
        expected = [one for one in self.model.find(replace(mine, parent=None)) if one.parent == parent.id]
        assert read_all(self.records, mine) == expected

    @rule(resource=seen)
    def load(self, resource: Resource) -> None:
        known = self.model.living.get(resource.id)
        if known is None:
            with pytest.raises(NotFound):
                self.records.load_by_id(resource.id)
        else:
            assert self.records.load_by_id(resource.id) == known.resource
            assert self.records.load(resource.key) == known.resource

    @invariant()
    def events_tell_what_happened(self) -> None:
        assert [(event.subject, event.kind) for event in self.records.events()] == self.model.events


TestRecordsAgainstModel = RecordsAgainstModel.TestCase
TestRecordsAgainstModel.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)
