"""The order of a queue: priority, fair share, time."""

from datetime import timedelta

import pytest

from tests.unit.foundation.sample_jobs import NOON
from tests.unit.server.control.scheduling.samples import allocated, queued
from trainyard.foundation.jobs.attempts import Share
from trainyard.server.control.scheduling.queue_order import (
    MAX_TURN_DELAY,
    TURN_DELAY_PER_INSTANCE,
    FairShare,
    fair_share_of,
    order_heads,
)
from trainyard.server.records.contract import Priority, QueuedResource, ResourceId

NOBODY = FairShare({}, {})


def names(*heads: QueuedResource, fair_share: FairShare = NOBODY) -> list[str]:
    return [head.id for head in order_heads(heads, fair_share)]


def test_accounts_that_run_nothing_come_in_the_order_of_their_jobs() -> None:
    assert names(queued("b", account="ben", after_s=2), queued("a", after_s=1)) == ["a", "b"]


def test_on_demand_jobs_come_before_spot_jobs() -> None:
    spot = queued("spot", account="ben", priority=Priority.SPOT)
    assert names(spot, queued("on-demand", after_s=600)) == ["on-demand", "spot"]


def test_of_an_account_with_jobs_in_several_queues_of_the_records_the_first_counts() -> None:
    assert names(queued("late", after_s=9), queued("early"), queued("later", after_s=10)) == ["early"]


def test_an_account_that_just_had_a_turn_comes_after_one_that_waits() -> None:
    fair_share = FairShare({}, {"anna": NOON + timedelta(seconds=60)})
    heads = queued("annas"), queued("bens", account="ben", after_s=59)
    assert names(*heads, fair_share=fair_share) == ["bens", "annas"]


@pytest.mark.parametrize(
    ("running", "delay"), [(0, timedelta()), (3, 3 * TURN_DELAY_PER_INSTANCE), (999, MAX_TURN_DELAY)]
)
def test_running_instances_delay_a_turn_up_to_a_limit(running: int, delay: timedelta) -> None:
    assert FairShare({"anna": running}, {}).turn_of(queued("a")) == NOON + delay


def test_the_fair_share_counts_instances_and_takes_a_forgotten_turn_from_the_youngest_job() -> None:
    allocations = {
        ResourceId("1"): allocated(Share(), Share(), since=NOON),
        ResourceId("2"): allocated(Share(), since=NOON + timedelta(minutes=1)),
        ResourceId("3"): allocated(Share(), account="ben", since=NOON + timedelta(minutes=2)),
    }
    turns = {"ben": NOON, "carl": NOON}
    fair_share = fair_share_of(allocations, turns)
    assert fair_share.running == {"anna": 3, "ben": 1}
    assert fair_share.last_turns == {"anna": NOON + timedelta(minutes=1), "ben": NOON, "carl": NOON}
