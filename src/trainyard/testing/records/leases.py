"""Of several workers, one at a time holds a resource that is due."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from trainyard.server.records.contract import Change, Claim, NewEvent, Query, Records, Resource, Waiting
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

    def test_what_is_due_longest_comes_first_whatever_the_account(self, records: Records) -> None:
        for name, account, due in (("b", ALICE, 2), ("c", BOB, 3), ("a", BOB, 1)):
            records.create(draft(name, account=account, due_at=minutes(due)), now=NOON)
        assert [claimed_name(records, at=9) for _ in range(4)] == ["a", "b", "c", None]

    def test_claims_are_of_one_kind(self, records: Records) -> None:
        records.create(draft("a", kind="model", due_at=NOON), now=NOON)
        assert claim(records) is None
        assert records.claim_next("model", worker="w", lease=LEASE, now=NOON) is not None

    def test_one_that_is_named_is_claimed_before_others_but_only_when_it_is_due_and_free(
        self, records: Records
    ) -> None:
        first, second, later = (
            records.create(draft(name, due_at=minutes(due)), now=NOON) for name, due in (("a", -2), ("b", -1), ("c", 1))
        )

        def named(resource: Resource) -> Claim | None:
            return records.claim_next(KIND, worker="w", lease=LEASE, now=NOON, only=resource.id)

        claimed = named(second)
        assert claimed is not None
        assert claimed.resource == second
        assert named(second) is None
        assert named(later) is None
        assert claimed_name(records, at=0) == first.key.name

    def test_nobody_else_gets_what_is_held(self, records: Records, reopen: Reopen) -> None:
        records.create(draft("a", due_at=NOON), now=NOON)
        assert claim(records) is not None
        assert claim(records) is None
        assert claim(reopen()) is None

    def test_a_claim_changes_nothing_that_others_see(self, records: Records) -> None:
        made = records.create(draft("a", due_at=NOON), now=NOON)
        claim(records)
        assert records.load(key("a")) == made
        assert count_of_events(records) == 0

    def test_an_expired_lease_is_given_to_the_next(self, records: Records) -> None:
        records.create(draft("a", due_at=NOON), now=NOON)
        first = held(records)
        assert records.claim_next(KIND, worker="w", lease=LEASE, now=NOON + LEASE - SLIGHTLY) is None
        second = records.claim_next(KIND, worker="w", lease=LEASE, now=NOON + LEASE)
        assert second is not None
        assert second.token != first.token

    def test_an_expired_lease_waits_its_turn_with_the_others(self, records: Records) -> None:
        records.create(draft("first", due_at=minutes(-3)), now=NOON)
        records.create(draft("second", due_at=minutes(-2)), now=NOON)
        held(records)
        records.create(draft("before", due_at=minutes(-4)), now=NOON)
        assert [claimed_name(records, at=5) for _ in range(4)] == ["before", "first", "second", None]

    def test_a_renewed_lease_holds_longer(self, records: Records) -> None:
        records.create(draft("a", due_at=NOON), now=NOON)
        first = held(records)
        renewed = records.renew(first, lease=timedelta(minutes=5), now=NOON + SLIGHTLY)
        assert renewed == replace(first, expires_at=NOON + SLIGHTLY + timedelta(minutes=5))
        assert claim(records, at=4.9) is None
        assert claim(records, at=5.1) is not None

    def test_a_renewal_never_shortens_a_lease(self, records: Records) -> None:
        records.create(draft("a", due_at=NOON), now=NOON)
        first = held(records)
        long = records.renew(first, lease=timedelta(minutes=5), now=NOON)
        assert records.renew(first, lease=timedelta(seconds=1), now=NOON) == long
        assert claim(records, at=4.9) is None

    def test_a_lease_cannot_be_renewed_at_its_last_moment(self, records: Records) -> None:
        records.create(draft("a", due_at=NOON), now=NOON)
        lost = held(records)
        assert records.renew(lost, lease=LEASE, now=lost.expires_at) is None

    def test_a_lease_that_another_took_over_cannot_be_renewed(self, records: Records) -> None:
        records.create(draft("a", due_at=NOON), now=NOON)
        lost = held(records)
        mine = records.claim_next(KIND, worker="w", lease=LEASE, now=lost.expires_at)
        assert mine is not None
        # The first worker's clock may be behind; the token decides.
        assert records.renew(lost, lease=LEASE, now=NOON) is None
        assert records.renew(mine, lease=LEASE, now=lost.expires_at) is not None

    def test_a_claimed_apply_writes_and_keeps_the_lease(self, records: Records) -> None:
        records.create(draft("a", status="one", body={"x": 1}, due_at=NOON), now=NOON)
        first = held(records)
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
        records.apply_claimed(held(records), Change(status="x"), now=NOON)
        assert claim(records, at=1) is not None

    def test_the_first_that_is_due_can_be_seen_without_a_claim(self, records: Records) -> None:
        assert records.first_due(KIND, now=NOON) is None
        second = records.create(draft("b", due_at=minutes(-1)), now=NOON)
        first = records.create(draft("a", due_at=minutes(-2)), now=NOON)
        records.create(draft("later", due_at=minutes(1)), now=NOON)
        assert records.first_due(KIND, now=NOON) == records.first_due(KIND, now=NOON) == first
        claim = held(records)
        assert claim.resource.id == first.id
        assert records.first_due(KIND, now=NOON) == second  # what is held is not due

    def test_those_that_are_due_between_two_moments_are_counted_unless_they_are_held(self, records: Records) -> None:
        for name, due in {"a": -3, "b": -2, "c": -1, "d": 5}.items():
            records.create(draft(name, due_at=minutes(due)), now=NOON)
        records.create(draft("never"), now=NOON)
        records.create(draft("other", kind="model", due_at=minutes(-1)), now=NOON)
        assert records.count_due(KIND, after=minutes(-3), before=minutes(5)) == 2
        assert records.count_due(KIND, after=minutes(-9), before=minutes(9)) == 4
        held(records)
        assert records.count_due(KIND, after=minutes(-9), before=minutes(9)) == 3

    def test_the_first_of_each_account_in_a_line_is_told(self, records: Records) -> None:
        jobs = (
            ("a", ALICE, "x", 3),
            ("b", ALICE, "x", 1),
            ("c", BOB, "x", 2),
            ("d", BOB, "y", 1),
            ("e", ALICE, "y", 2),
        )
        made = {
            name: records.create(draft(name, account=account, line=line, due_at=minutes(due)), now=NOON)
            for name, account, line, due in jobs
        }
        records.create(draft("none", due_at=minutes(1)), now=NOON)
        records.create(draft("other", kind="model", line="x", due_at=minutes(1)), now=NOON)
        records.create(draft("early", line="x", due_at=NOON), now=NOON)

        assert heads(records, "x") == [
            Waiting(made["b"].id, ALICE, "x", minutes(1)),
            Waiting(made["c"].id, BOB, "x", minutes(2)),
        ]
        assert sorted(each.id for each in heads(records, "y", "x")) == sorted(made[name].id for name in "bcde")
        assert heads(records, "nobody's") == heads(records) == []

    def test_what_is_held_or_has_settled_is_in_no_line(self, records: Records) -> None:
        first = records.create(draft("a", line="x", due_at=minutes(1)), now=NOON)
        second = records.create(draft("b", line="x", due_at=minutes(2)), now=NOON)
        claimed = claim(records, at=5)
        assert claimed is not None
        assert [each.id for each in heads(records, "x")] == [second.id]
        records.apply_claimed(claimed, Change(due_at=minutes(3)), now=minutes(5), release=True)
        assert [each.id for each in heads(records, "x")] == [second.id]
        records.apply(second, Change(is_settling=True), now=NOON)
        assert heads(records, "x") == [Waiting(first.id, ALICE, "x", minutes(3))]

    def test_more_of_some_accounts_are_told_in_their_order(self, records: Records) -> None:
        alices = {
            number: records.create(draft(f"job-{number}", line="x", due_at=minutes(number)), now=minutes(-number))
            for number in (3, 1, 2)  # of which the first to be due was made last, and has the highest id
        }
        bobs = records.create(draft("bobs", account=BOB, line="x", due_at=minutes(1)), now=NOON)
        for name, kind, line in (("elsewhere", KIND, "y"), ("nowhere", KIND, None), ("other", "model", "x")):
            records.create(draft(name, kind=kind, line=line, due_at=minutes(1)), now=NOON)

        assert records.waiting(KIND, "x", accounts=[BOB, ALICE], after=NOON, limit=2) == [
            Waiting(bobs.id, BOB, "x", minutes(1)),
            Waiting(alices[1].id, ALICE, "x", minutes(1)),
            Waiting(alices[2].id, ALICE, "x", minutes(2)),
        ]
        assert records.waiting(KIND, "x", accounts=[ALICE], after=minutes(1), limit=9) == [
            Waiting(alices[number].id, ALICE, "x", minutes(number)) for number in (2, 3)
        ]
        records.claim_next(KIND, worker="w", lease=LEASE, now=minutes(5), only=alices[2].id)
        left = records.waiting(KIND, "x", accounts=[ALICE], after=NOON, limit=9)
        assert [each.id for each in left] == [alices[1].id, alices[3].id]

    def test_of_those_that_are_due_at_once_the_lowest_id_comes_first(self, records: Records) -> None:
        ids = sorted(records.create(draft(name, line="x", due_at=minutes(1)), now=NOON).id for name in "dbeac")
        waiting = records.waiting(KIND, "x", accounts=[ALICE], after=NOON, limit=9)
        assert [each.id for each in waiting] == ids
        for first in ids:
            assert [each.id for each in heads(records, "x")] == [first]
            claimed = claim(records, at=1)
            assert claimed is not None
            assert claimed.resource.id == first

    def test_those_that_wait_are_counted_by_line_and_account(self, records: Records) -> None:
        for number, (account, line) in enumerate(((ALICE, "x"), (ALICE, "x"), (BOB, "x"), (BOB, "y"), (ALICE, None))):
            records.create(draft(f"job-{number}", account=account, line=line, due_at=minutes(number)), now=NOON)

        def counted(lines: list[str] | None, account: str | None = None) -> int:
            return records.count_due(KIND, after=minutes(-1), before=minutes(9), lines=lines, account=account)

        assert (counted(None), counted(["x"]), counted(["x", "y"]), counted([])) == (5, 3, 4, 0)
        assert (counted(["x"], ALICE), counted(["x", "y"], BOB)) == (2, 2)

    def test_a_claim_may_be_of_what_was_due_at_a_moment(self, records: Records) -> None:
        records.create(draft("a", due_at=minutes(1)), now=NOON)

        def until(due: float, *, at: float) -> Claim | None:
            return records.claim_next(KIND, worker="w", lease=LEASE, now=minutes(at), until=minutes(due))

        assert until(0.9, at=5) is None
        assert until(1, at=5) is not None
        assert until(0.9, at=60) is None  # the lease is over, but it is not due so early
        assert claim(records, at=60) is not None

    def test_those_that_are_due_until_a_moment_are_listed_held_or_not(self, records: Records) -> None:
        for number, (name, due) in enumerate({"a": -3, "b": -2, "c": -2, "d": 5}.items()):
            records.create(draft(name, due_at=minutes(due)), now=minutes(number))
        records.create(draft("never"), now=NOON)
        records.create(draft("other", kind="model", due_at=minutes(-3)), now=NOON)
        assert held(records).resource.key.name == "a"
        assert [each.key.name for each in records.due_until(KIND, minutes(-2))] == ["a", "b", "c"]
        assert [each.key.name for each in records.due_until(KIND, minutes(-3))] == ["a"]
        assert records.due_until(KIND, minutes(-4)) == []

    def test_those_that_are_due_and_of_one_moment_come_by_their_ids_held_or_not(self, records: Records) -> None:
        for name in "abcdef":
            records.create(draft(name, due_at=NOON), now=NOON)
        for _ in range(3):
            held(records)
        found = [each.id for each in records.due_until(KIND, NOON)]
        assert len(found) == 6
        assert found == sorted(found)

    def test_a_released_resource_is_due_at_its_new_time(self, records: Records) -> None:
        records.create(draft("a", due_at=NOON), now=NOON)
        assert records.apply_claimed(held(records), Change(due_at=minutes(2)), now=NOON, release=True)
        assert claim(records, at=1.9) is None
        assert claim(records, at=2) is not None

    def test_a_released_resource_without_a_time_is_no_longer_due(self, records: Records) -> None:
        records.create(draft("a", due_at=NOON), now=NOON)
        assert records.apply_claimed(held(records), Change(status="done"), now=NOON, release=True)
        assert records.load(key("a")).status == "done"
        assert claim(records, at=1_000_000) is None

    def test_a_released_claim_is_no_longer_one(self, records: Records) -> None:
        records.create(draft("a", due_at=NOON), now=NOON)
        released = records.apply_claimed(held(records), Change(due_at=NOON), now=NOON, release=True)
        assert released is not None
        self.assert_is_lost(records, released, at=NOON)

    def test_an_expired_claim_can_do_nothing(self, records: Records) -> None:
        records.create(draft("a", due_at=NOON), now=NOON)
        expired = held(records)
        self.assert_is_lost(records, expired, at=expired.expires_at)

    def test_a_claim_that_another_took_over_can_do_nothing(self, records: Records) -> None:
        records.create(draft("a", due_at=NOON), now=NOON)
        lost = held(records)
        assert records.claim_next(KIND, worker="other", lease=LEASE, now=lost.expires_at) is not None
        self.assert_is_lost(records, lost, at=NOON)

    def test_a_claim_of_a_deleted_resource_can_do_nothing(self, records: Records) -> None:
        records.create(draft("a", due_at=NOON), now=NOON)
        lost = held(records)
        records.delete(lost.resource, now=NOON)
        assert records.apply_claimed(lost, Change(status="x"), now=NOON, events=[NewEvent("changed")]) is None
        assert records.renew(lost, lease=LEASE, now=NOON) is None
        assert count_of_events(records) == 0

    def test_a_claim_outlives_an_apply_by_someone_else_but_must_look_again(self, records: Records) -> None:
        made = records.create(draft("a", due_at=NOON), now=NOON)
        mine = held(records)
        records.apply(made, Change(status="Stopping"), now=NOON)
        assert records.apply_claimed(mine, Change(status="Completed"), now=NOON, events=[NewEvent("changed")]) is None
        assert count_of_events(records) == 0
        renewed = records.renew(mine, lease=LEASE, now=NOON)
        assert renewed is not None
        assert renewed.resource.status == "Stopping"
        kept = records.apply_claimed(renewed, Change(body={"x": 1}), now=NOON)
        assert kept is not None
        assert (kept.resource.status, kept.resource.body, kept.resource.revision) == ("Stopping", {"x": 1}, 3)

    def test_a_release_does_not_forget_a_time_that_someone_else_set_meanwhile(self, records: Records) -> None:
        made = records.create(draft("a", due_at=NOON), now=NOON)
        mine = held(records)
        records.apply(made, Change(due_at=minutes(2)), now=NOON)
        assert records.apply_claimed(mine, Change(), now=NOON, release=True) is None
        assert claim(records, at=2) is not None

    def test_an_apply_before_a_claim_was_written_makes_the_other_stale(self, records: Records) -> None:
        seen = records.create(draft("a", due_at=NOON), now=NOON)
        records.apply_claimed(held(records), Change(status="x"), now=NOON)
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

        # A worker may see all that is due in the hands of others and stop; what is left is done by one more.
        assert sum(in_threads(8, work)) + work(0) == 100
        assert {resource.body["count"] for resource in found(records)} == {5}
        assert count_of_events(records) == 100

    def test_of_many_workers_one_gets_the_only_resource(self, records: Records) -> None:
        records.create(draft("a", due_at=NOON), now=NOON)
        assert len([got for got in in_threads(16, lambda _: claim(records)) if got]) == 1

    def test_of_many_workers_one_takes_over_an_expired_lease(self, records: Records) -> None:
        records.create(draft("a", due_at=NOON), now=NOON)
        lost = held(records)
        taken = [got for got in in_threads(16, lambda _: claim(records, at=5)) if got]
        assert len(taken) == 1
        assert taken[0].token != lost.token

    def assert_is_lost(self, records: Records, lost: Claim, *, at: datetime) -> None:
        before = found(records)
        change = Change(status="late", body={"late": True}, due_at=minutes(-60))
        late = [NewEvent("late"), NewEvent("later")]
        assert records.apply_claimed(lost, change, now=at, events=late) is None
        assert records.apply_claimed(lost, change, now=at, events=late, release=True) is None
        assert records.renew(lost, lease=LEASE, now=at) is None
        assert found(records) == before
        assert count_of_events(records) == 0


def claim(records: Records, *, at: float = 0) -> Claim | None:
    return records.claim_next(KIND, worker="w", lease=LEASE, now=minutes(at))


def held(records: Records) -> Claim:
    claimed = claim(records)
    assert claimed is not None
    return claimed


def claimed_name(records: Records, *, at: float) -> str | None:
    claimed = claim(records, at=at)
    return None if claimed is None else claimed.resource.key.name


def found(records: Records) -> list[Resource]:
    return list(records.find(Query(KIND, limit=1000)).resources)


def heads(records: Records, *lines: str) -> Sequence[Waiting]:
    """Those that are due after noon."""
    return records.heads(KIND, lines, after=NOON)
