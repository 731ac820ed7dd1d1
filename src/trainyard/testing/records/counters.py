"""Counters change with what they count, and never exceed a limit."""

from dataclasses import replace

import pytest

from trainyard.foundation.errors import AlreadyExists
from trainyard.server.records.contract import Change, Counter, CounterFull, NewEvent, Records
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


def values(records: Records, account: str = ALICE) -> dict[str, int]:
    return {counter.name: counter.value for counter in records.counters(account)}


class CounterContract:
    def test_a_create_increments_and_a_change_decrements(self, records: Records) -> None:
        created = records.create(replace(draft("a"), counts={"cpus": 4, "jobs": 1}), now=NOON)
        assert values(records) == {"cpus": 4, "jobs": 1}
        assert records.apply(created, Change(counts={"cpus": -4}), now=NOON) is not None
        assert values(records) == {"cpus": 0, "jobs": 1}

    def test_accounts_have_separate_counters(self, records: Records) -> None:
        records.create(replace(draft("a"), counts={"jobs": 1}), now=NOON)
        records.create(replace(draft("a", account=BOB), counts={"jobs": 2}), now=NOON)
        assert records.counters() == [Counter(ALICE, "jobs", 1), Counter(BOB, "jobs", 2)]

    def test_a_change_under_a_claim_counts_too(self, records: Records) -> None:
        records.create(replace(draft("a", due_at=NOON), counts={"jobs": 1}), now=NOON)
        claim = records.claim_next(KIND, worker="w", lease=LEASE, now=NOON)
        assert claim is not None
        assert records.apply_claimed(claim, Change(counts={"jobs": -1}), now=NOON, release=True) is not None
        assert values(records) == {"jobs": 0}

    def test_a_change_without_effect_counts_nothing(self, records: Records) -> None:
        created = records.create(replace(draft("a"), counts={"jobs": 1}), now=NOON)
        with pytest.raises(AlreadyExists):
            records.create(replace(draft("a"), counts={"jobs": 1}), now=NOON)
        records.apply(created, Change(status="x"), now=NOON)
        assert records.apply(created, Change(counts={"jobs": -1}), now=NOON) is None
        assert values(records) == {"jobs": 1}

    def test_a_create_above_a_limit_leaves_nothing_behind(self, records: Records) -> None:
        records.create(replace(draft("a"), counts={"jobs": 3}), now=NOON, limits={"jobs": 4})
        with pytest.raises(CounterFull) as caught:
            records.create(
                replace(draft("b"), counts={"cpus": 1, "jobs": 2}),
                now=NOON,
                event=NewEvent("created"),
                limits={"jobs": 4},
            )
        assert (caught.value.counter, caught.value.limit) == (Counter(ALICE, "jobs", 3), 4)
        assert caught.value.added == 2
        assert values(records) == {"jobs": 3}
        assert count_of_events(records) == 0
        records.create(replace(draft("b"), counts={"jobs": 1}), now=NOON, limits={"jobs": 4})

    def test_concurrent_creates_succeed_up_to_the_limit(self, records: Records) -> None:
        def create(number: int) -> bool:
            counted = replace(draft(f"job-{number}"), counts={"jobs": 1, "cpus": 2})
            try:
                records.create(counted, now=NOON, event=NewEvent("created"), limits={"jobs": 7})
            except CounterFull:
                return False
            return True

        assert sum(in_threads(8, create, times=40)) == 7
        assert values(records) == {"cpus": 14, "jobs": 7}

    def test_after_a_settling_change_a_resource_is_no_longer_due(self, records: Records) -> None:
        created = records.create(draft("a", due_at=NOON), now=NOON)
        assert records.apply(created, Change(is_settling=True), now=NOON) is not None
        assert records.claim_next(KIND, worker="w", lease=LEASE, now=minutes(1)) is None

    def test_a_quiet_change_keeps_the_modification_time(self, records: Records) -> None:
        created = records.create(draft("a", due_at=NOON), now=NOON)
        quiet = records.apply(created, Change(body={"x": 1}, is_quiet=True), now=minutes(1))
        assert quiet is not None
        assert quiet == records.load(key("a"))
        assert (quiet.modified_at, quiet.revision) == (NOON, 2)
        claim = records.claim_next(KIND, worker="w", lease=LEASE, now=minutes(1))
        assert claim is not None
        records.apply_claimed(claim, Change(body={"x": 2}, is_quiet=True), now=minutes(1), release=True)
        assert records.load(key("a")).modified_at == NOON
