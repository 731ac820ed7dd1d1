"""Leases: only one worker at a time holds a due resource."""

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from trainyard.server.records.contract import Change, Claim, NewEvent, Query, QueueState, Records, Resource
from trainyard.testing.records.samples import (
    ALICE,
    BOB,
    KIND,
    LEASE,
    NOON,
    count_of_events,
    draft,
    in_threads,
    key,
    minutes,
)

Reopen = Callable[[], Records]

SLIGHTLY = timedelta(microseconds=1)


class LeaseContract:
    def test_a_resource_that_was_never_given_a_time_is_never_due(self, records: Records) -> None:
        made = records.create(draft("a"), now=NOON)
        records.apply(made, Change(status="x"), now=NOON)
        assert claim(records, at=1_000_000) is None

    def test_a_resource_is_due_from_its_time_on(self, records: Records) -> None:
        made = records.create(draft("a", due_at=minutes(1)), now=NOON)
        assert claim(records, at=0.9) is None
        claimed = claim(records, at=1)
        assert claimed is not None
        assert claimed.resource == made
        assert claimed.expires_at == minutes(1) + LEASE

    def test_an_apply_can_make_a_resource_due(self, records: Records) -> None:
        made = records.create(draft("a"), now=NOON)
        due = records.apply(made, Change(due_at=NOON), now=NOON)
        claimed = claim(records)
        assert claimed is not None
        assert claimed.resource == due

    def test_an_apply_without_a_time_leaves_the_resource_due(self, records: Records) -> None:
        made = records.create(draft("a", due_at=NOON), now=NOON)
        records.apply(made, Change(status="x"), now=NOON)
        assert claim(records) is not None

    def test_the_longest_due_resource_comes_first_whatever_the_account(self, records: Records) -> None:
        for name, account, due in (("b", ALICE, 2), ("c", BOB, 3), ("a", BOB, 1)):
            records.create(draft(name, account=account, due_at=minutes(due)), now=NOON)
        assert [claimed_name(records, at=9) for _ in range(4)] == ["a", "b", "c", None]

    def test_a_claim_takes_resources_of_one_kind(self, records: Records) -> None:
        records.create(draft("a", kind="model", due_at=NOON), now=NOON)
        assert claim(records) is None
        assert records.claim_next("model", worker="w", lease=LEASE, now=NOON) is not None

    def test_a_named_resource_is_claimed_before_others_but_only_when_it_is_due_and_free(self, records: Records) -> None:
        first, second, later = (
            records.create(draft(name, due_at=minutes(due)), now=NOON) for name, due in (("a", -2), ("b", -1), ("c", 1))
        )

        def claim_named(resource: Resource) -> Claim | None:
            return records.claim_next(KIND, worker="w", lease=LEASE, now=NOON, only=resource.id)

        claimed = claim_named(second)
        assert claimed is not None
        assert claimed.resource == second
        assert claim_named(second) is None
        assert claim_named(later) is None
        assert claimed_name(records, at=0) == first.key.name

    def test_nobody_else_gets_a_held_resource(self, records: Records, reopen: Reopen) -> None:
        records.create(draft("a", due_at=NOON), now=NOON)
        assert claim(records) is not None
        assert claim(records) is None
        assert claim(reopen()) is None

    def test_a_claim_changes_nothing_that_others_see(self, records: Records) -> None:
        made = records.create(draft("a", due_at=NOON), now=NOON)
        claim(records)
        assert records.load(key("a")) == made
        assert count_of_events(records) == 0

    def test_an_expired_lease_goes_to_the_next_worker(self, records: Records) -> None:
        records.create(draft("a", due_at=NOON), now=NOON)
        first = claim_first(records)
        assert records.claim_next(KIND, worker="w", lease=LEASE, now=NOON + LEASE - SLIGHTLY) is None
        second = records.claim_next(KIND, worker="w", lease=LEASE, now=NOON + LEASE)
        assert second is not None
        assert second.token != first.token

    def test_a_resource_with_an_expired_lease_keeps_its_place_in_the_order(self, records: Records) -> None:
        records.create(draft("first", due_at=minutes(-3)), now=NOON)
        records.create(draft("second", due_at=minutes(-2)), now=NOON)
        claim_first(records)
        records.create(draft("before", due_at=minutes(-4)), now=NOON)
        assert [claimed_name(records, at=5) for _ in range(4)] == ["before", "first", "second", None]

    def test_a_renewed_lease_holds_longer(self, records: Records) -> None:
        records.create(draft("a", due_at=NOON), now=NOON)
        first = claim_first(records)
        renewed = records.renew(first, lease=timedelta(minutes=5), now=NOON + SLIGHTLY)
        assert renewed == replace(first, expires_at=NOON + SLIGHTLY + timedelta(minutes=5))
        assert claim(records, at=4.9) is None
        assert claim(records, at=5.1) is not None

    def test_a_renewal_never_shortens_a_lease(self, records: Records) -> None:
        records.create(draft("a", due_at=NOON), now=NOON)
        first = claim_first(records)
        long = records.renew(first, lease=timedelta(minutes=5), now=NOON)
        assert records.renew(first, lease=timedelta(seconds=1), now=NOON) == long
        assert claim(records, at=4.9) is None

    def test_a_lease_cannot_be_renewed_at_its_last_moment(self, records: Records) -> None:
        records.create(draft("a", due_at=NOON), now=NOON)
        lost = claim_first(records)
        assert records.renew(lost, lease=LEASE, now=lost.expires_at) is None

    def test_a_lease_that_another_took_over_cannot_be_renewed(self, records: Records) -> None:
        records.create(draft("a", due_at=NOON), now=NOON)
        lost = claim_first(records)
        mine = records.claim_next(KIND, worker="w", lease=LEASE, now=lost.expires_at)
        assert mine is not None
        # The clock of the first worker may be behind, so only the token decides.
        assert records.renew(lost, lease=LEASE, now=NOON) is None
        assert records.renew(mine, lease=LEASE, now=lost.expires_at) is not None

    def test_a_claimed_apply_writes_and_keeps_the_lease(self, records: Records) -> None:
        records.create(draft("a", status="one", body={"x": 1}, due_at=NOON), now=NOON)
        first = claim_first(records)
        kept = records.apply_claimed(first, Change(status="two"), now=NOON + SLIGHTLY, events=[NewEvent("changed")])
        assert kept is not None
        assert (kept.token, kept.expires_at) == (first.token, first.expires_at)
        assert (kept.resource.status, kept.resource.body, kept.resource.revision) == ("two", {"x": 1}, 2)
        assert kept.resource.modified_at == NOON + SLIGHTLY
        assert records.load(key("a")) == kept.resource
        assert [event.kind for event in records.events()] == ["changed"]
        assert claim(records) is None

    def test_a_kept_lease_that_expires_leaves_the_resource_due(self, records: Records) -> None:
        records.create(draft("a", due_at=NOON), now=NOON)
        records.apply_claimed(claim_first(records), Change(status="x"), now=NOON)
        assert claim(records, at=1) is not None

    def test_the_first_due_resource_can_be_read_without_a_claim(self, records: Records) -> None:
        assert records.first_due(KIND, now=NOON) is None
        second = records.create(draft("b", due_at=minutes(-1)), now=NOON)
        first = records.create(draft("a", due_at=minutes(-2)), now=NOON)
        records.create(draft("later", due_at=minutes(1)), now=NOON)
        assert records.first_due(KIND, now=NOON) == records.first_due(KIND, now=NOON) == first
        claim = claim_first(records)
        assert claim.resource.id == first.id
        # A held resource is not due.
        assert records.first_due(KIND, now=NOON) == second

    def test_a_claim_takes_resources_of_one_state(self, records: Records) -> None:
        records.create(draft("a", due_at=minutes(1), state=QueueState.PLACED), now=NOON)

        def claim_in(state: QueueState, *, at: float) -> Claim | None:
            return records.claim_next(KIND, worker="w", lease=LEASE, now=minutes(at), state=state)

        assert claim(records, at=5) is claim_in(QueueState.WAITING, at=5) is None
        assert claim_in(QueueState.PLACED, at=0.9) is None
        assert claim_in(QueueState.PLACED, at=5) is not None
        # The lease has expired, but the resource is in another state.
        assert claim(records, at=60) is claim_in(QueueState.WAITING, at=60) is None
        assert claim_in(QueueState.PLACED, at=60) is not None

    def test_the_first_due_resource_of_one_state_can_be_read(self, records: Records) -> None:
        records.create(draft("a", due_at=minutes(-3)), now=NOON)
        waiting = records.create(draft("b", due_at=minutes(-2), state=QueueState.WAITING), now=NOON)
        later = records.create(draft("c", due_at=minutes(1), state=QueueState.PLACED), now=NOON)
        assert records.first_due(KIND, now=NOON, state=QueueState.WAITING) == waiting
        assert records.first_due(KIND, now=NOON, state=QueueState.PLACED) is None
        assert records.first_due(KIND, now=minutes(1), state=QueueState.PLACED) == later

    def test_a_released_resource_is_due_at_its_new_time(self, records: Records) -> None:
        records.create(draft("a", due_at=NOON), now=NOON)
        assert records.apply_claimed(claim_first(records), Change(due_at=minutes(2)), now=NOON, release=True)
        assert claim(records, at=1.9) is None
        assert claim(records, at=2) is not None

    def test_a_released_resource_without_a_time_is_no_longer_due(self, records: Records) -> None:
        records.create(draft("a", due_at=NOON), now=NOON)
        assert records.apply_claimed(claim_first(records), Change(status="done"), now=NOON, release=True)
        assert records.load(key("a")).status == "done"
        assert claim(records, at=1_000_000) is None

    def test_a_released_claim_is_no_longer_valid(self, records: Records) -> None:
        records.create(draft("a", due_at=NOON), now=NOON)
        released = records.apply_claimed(claim_first(records), Change(due_at=NOON), now=NOON, release=True)
        assert released is not None
        self.assert_is_lost(records, released, at=NOON)

    def test_an_expired_claim_can_do_nothing(self, records: Records) -> None:
        records.create(draft("a", due_at=NOON), now=NOON)
        expired = claim_first(records)
        self.assert_is_lost(records, expired, at=expired.expires_at)

    def test_a_claim_that_another_took_over_can_do_nothing(self, records: Records) -> None:
        records.create(draft("a", due_at=NOON), now=NOON)
        lost = claim_first(records)
        assert records.claim_next(KIND, worker="other", lease=LEASE, now=lost.expires_at) is not None
        self.assert_is_lost(records, lost, at=NOON)

    def test_a_claim_of_a_deleted_resource_can_do_nothing(self, records: Records) -> None:
        records.create(draft("a", due_at=NOON), now=NOON)
        lost = claim_first(records)
        records.delete(lost.resource, now=NOON)
        assert records.apply_claimed(lost, Change(status="x"), now=NOON, events=[NewEvent("changed")]) is None
        assert records.renew(lost, lease=LEASE, now=NOON) is None
        assert count_of_events(records) == 0

    def test_a_claim_survives_an_apply_by_someone_else_but_must_reload(self, records: Records) -> None:
        made = records.create(draft("a", due_at=NOON), now=NOON)
        mine = claim_first(records)
        records.apply(made, Change(status="Stopping"), now=NOON)
        assert records.apply_claimed(mine, Change(status="Completed"), now=NOON, events=[NewEvent("changed")]) is None
        assert count_of_events(records) == 0
        renewed = records.renew(mine, lease=LEASE, now=NOON)
        assert renewed is not None
        assert renewed.resource.status == "Stopping"
        kept = records.apply_claimed(renewed, Change(body={"x": 1}), now=NOON)
        assert kept is not None
        assert (kept.resource.status, kept.resource.body, kept.resource.revision) == ("Stopping", {"x": 1}, 3)

    def test_a_release_keeps_a_time_that_someone_else_set_meanwhile(self, records: Records) -> None:
        made = records.create(draft("a", due_at=NOON), now=NOON)
        mine = claim_first(records)
        records.apply(made, Change(due_at=minutes(2)), now=NOON)
        assert records.apply_claimed(mine, Change(), now=NOON, release=True) is None
        assert claim(records, at=2) is not None

    def test_an_apply_before_a_claim_was_written_makes_the_other_stale(self, records: Records) -> None:
        seen = records.create(draft("a", due_at=NOON), now=NOON)
        records.apply_claimed(claim_first(records), Change(status="x"), now=NOON)
        assert records.apply(seen, Change(status="y"), now=NOON) is None

    def test_many_workers_hold_each_resource_one_at_a_time(self, records: Records) -> None:
        for number in range(20):
            records.create(draft(f"job-{number}", body={"count": 0}, due_at=NOON), now=NOON)
        held_now: set[str] = set()
        guard = threading.Lock()

        def work(_: int) -> int:
            done = 0
            while (mine := claim(records, at=1)) is not None:
                with guard:
                    assert mine.resource.id not in held_now, "two workers hold one resource"
                    held_now.add(mine.resource.id)
                count = mine.resource.body["count"] + 1
                with guard:
                    held_now.remove(mine.resource.id)
                again = Change(body={"count": count}, due_at=minutes(0) if count < 5 else None)
                assert records.apply_claimed(mine, again, now=minutes(1), events=[NewEvent("step")], release=True)
                done += 1
            return done

        # A worker stops when others hold everything that is due. One more worker does the rest.
        assert sum(in_threads(8, work)) + work(0) == 100
        assert {resource.body["count"] for resource in find_all(records)} == {5}
        assert count_of_events(records) == 100

    def test_only_one_of_many_workers_can_claim_the_only_resource(self, records: Records) -> None:
        records.create(draft("a", due_at=NOON), now=NOON)
        assert len([got for got in in_threads(16, lambda _: claim(records)) if got]) == 1

    def test_only_one_of_many_workers_takes_over_an_expired_lease(self, records: Records) -> None:
        records.create(draft("a", due_at=NOON), now=NOON)
        lost = claim_first(records)
        taken = [got for got in in_threads(16, lambda _: claim(records, at=5)) if got]
        assert len(taken) == 1
        assert taken[0].token != lost.token

    def assert_is_lost(self, records: Records, lost: Claim, *, at: datetime) -> None:
        before = find_all(records)
        change = Change(status="late", body={"late": True}, due_at=minutes(-60))
        late = [NewEvent("late"), NewEvent("later")]
        assert records.apply_claimed(lost, change, now=at, events=late) is None
        assert records.apply_claimed(lost, change, now=at, events=late, release=True) is None
        assert records.renew(lost, lease=LEASE, now=at) is None
        assert find_all(records) == before
        assert count_of_events(records) == 0


def claim(records: Records, *, at: float = 0) -> Claim | None:
    return records.claim_next(KIND, worker="w", lease=LEASE, now=minutes(at))


def claim_first(records: Records) -> Claim:
    claimed = claim(records)
    assert claimed is not None
    return claimed


def claimed_name(records: Records, *, at: float) -> str | None:
    claimed = claim(records, at=at)
    return None if claimed is None else claimed.resource.key.name


def find_all(records: Records) -> list[Resource]:
    return list(records.find(Query(KIND, limit=1000)).resources)
