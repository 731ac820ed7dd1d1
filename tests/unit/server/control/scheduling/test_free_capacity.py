"""The free capacity of a queue stays in step with what runs."""

import random

from tests.unit.server.control.scheduling.samples import GIB, HALF, LARGE, SMALL, allocated, nodes
from trainyard.engines.contract import Capacity
from trainyard.engines.placement import Demand, FreeResources
from trainyard.foundation.jobs.attempts import Share
from trainyard.server.control.scheduling.contract import Allocation, shares_of
from trainyard.server.control.scheduling.free_capacity import FreeCapacity, is_shared
from trainyard.server.records.contract import ResourceId

A, B = ResourceId("a"), ResourceId("b")


def test_an_updated_capacity_equals_one_that_is_computed_again() -> None:
    chance = random.Random(3)
    machine, capacity, allocations = nodes("a", "b", "c"), FreeCapacity(), dict[ResourceId, Allocation]()
    demands = [Demand((each,) * count) for each in (SMALL, HALF, LARGE) for count in (1, 2, 3)]
    for number in range(300):
        if number % 50 == 49:
            machine = nodes(*chance.sample("abcd", 3))
        fresh = FreeResources(machine, shares_of(allocations))
        capacity.update(machine, dict(allocations))
        assert [capacity.resources.place(each) for each in demands] == [fresh.place(each) for each in demands]
        shares = fresh.place(chance.choice(demands))
        if shares is not None:
            allocations[ResourceId(str(number))] = allocated(*shares)
        if shares is None or chance.random() < 0.4:
            allocations.pop(chance.choice(list(allocations)))


def test_the_version_rises_only_with_a_change() -> None:
    capacity, machine = FreeCapacity(), nodes("a")
    first = allocated(Share(2.0, GIB, node="a"))
    capacity.update(machine, {A: first})
    version = capacity.version
    capacity.update(machine, {A: first})
    assert capacity.version == version
    capacity.update(machine, {})
    assert capacity.version == version + 1
    capacity.update(nodes("a", "b"), {})
    assert capacity.version == version + 2


def test_one_started_job_is_distinguished_from_other_changes() -> None:
    capacity, machine = FreeCapacity(), nodes("a")
    first, second = allocated(Share(2.0, GIB, node="a")), allocated(Share(4.0, GIB, node="a"))
    capacity.update(machine, {})
    capacity.update(machine, {A: first})
    assert capacity.added == (A, first)
    capacity.update(machine, {B: second})
    assert capacity.added is None  # another one ended


def test_only_one_machine_that_does_not_reserve_is_shared() -> None:
    machine = Capacity.of_machine(slots=2, cpus=2.0, memory_bytes=8 * GIB)
    assert is_shared(machine)
    assert not is_shared(Capacity(machine.nodes * 2))
    assert not is_shared(nodes("a"))
    assert not is_shared(Capacity(()))
