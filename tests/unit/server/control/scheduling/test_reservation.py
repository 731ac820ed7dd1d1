"""Capacity that is reserved for a job that does not fit, and for aged jobs."""

from datetime import timedelta

from tests.unit.foundation.sample_jobs import NOON
from tests.unit.server.control.scheduling.samples import GIB, LARGE, allocated, asking, nodes, queued
from trainyard.engines.placement import Demand, FreeResources
from trainyard.foundation.jobs.attempts import Share
from trainyard.server.control.scheduling.contract import Placement
from trainyard.server.control.scheduling.free_capacity import FreeCapacity
from trainyard.server.control.scheduling.reservation import (
    AGED_AFTER,
    MAX_AGED,
    Reservation,
    place_or_reserve_aged,
    reserve_nodes,
    select_aged,
)
from trainyard.server.records.contract import Priority, ResourceId

LATER = NOON + 2 * AGED_AFTER


def test_capacity_is_reserved_where_least_has_to_end_first() -> None:
    free = FreeResources(nodes("a", "b"), [Share(16.0, GIB, node="a"), Share(2.0, GIB, node="b")])
    assert [share.node for share in reserve_nodes(Demand((LARGE,)), free)] == ["b"]


def test_a_job_that_no_node_can_have_reserves_nothing() -> None:
    free = FreeResources(nodes("a", spot=("a",)))
    assert reserve_nodes(Demand((LARGE,)), free) == ()


def test_the_oldest_jobs_that_have_waited_long_are_aged() -> None:
    recent = queued("recent", after_s=AGED_AFTER.total_seconds() + 1)
    old = [queued(f"old-{number}", after_s=number) for number in range(MAX_AGED + 2)]
    aged = select_aged(queued("first"), [recent, *reversed(old)], now=LATER)
    assert list(aged) == old[:MAX_AGED]


def test_spot_jobs_are_aged_only_behind_a_spot_job() -> None:
    spot = queued("spot", priority=Priority.SPOT)
    assert list(select_aged(queued("first"), [spot], now=LATER)) == []
    assert list(select_aged(queued("first", priority=Priority.SPOT), [spot], now=LATER)) == [spot]


def test_an_aged_job_that_fits_is_placed_beside_the_reservations_before_it() -> None:
    free = FreeResources(nodes("a", "b"), [Share(8.0, GIB, node="a"), Share(14.0, GIB, node="b")])
    large = asking("large", instance_type="ml.m5.4xlarge")
    found = place_or_reserve_aged([large, asking("small")], free, left=free.copy(), reserved=())
    assert found is not None
    request, shares = found
    # The large job reserves a, where less has to end.
    assert (request.id, [share.node for share in shares]) == ("small", ["b"])


def test_aged_jobs_that_do_not_fit_take_their_reservations_from_what_is_left() -> None:
    free = FreeResources(nodes("a"), [Share(8.0, GIB, node="a")])
    left = free.copy()
    large = asking("large", instance_type="ml.m5.4xlarge")
    assert place_or_reserve_aged([large], free, left=left, reserved=()) is None
    assert free.place(asking("small").demand) is not None
    assert left.place(asking("small").demand) is None


def test_a_reservation_stays_in_force_when_its_own_backfill_starts_and_no_longer() -> None:
    machine, capacity = nodes("a"), FreeCapacity()
    capacity.update(machine, {})
    reservation = Reservation.of(ResourceId("first"), (), capacity, left=capacity.resources.copy(), now=NOON)
    share = Share(2.0, GIB, node="a")
    reservation.last_backfill = Placement(ResourceId("small"), "training-job", (share,), is_backfill=True)

    capacity.update(machine, {ResourceId("small"): allocated(share)})
    assert not reservation.is_for(ResourceId("first"), capacity)
    reservation.update(capacity)
    assert reservation.is_for(ResourceId("first"), capacity)

    capacity.update(machine, {})
    reservation.update(capacity)
    assert not reservation.is_for(ResourceId("first"), capacity)


def test_a_reservation_is_computed_again_for_other_aged_jobs_and_after_a_minute() -> None:
    capacity = FreeCapacity()
    reservation = Reservation.of(ResourceId("first"), (), capacity, left=capacity.resources, now=NOON)
    assert reservation.covers((), now=NOON + timedelta(seconds=59))
    assert not reservation.covers((), now=NOON + timedelta(seconds=60))
    assert not reservation.covers((queued("aged"),), now=NOON)
