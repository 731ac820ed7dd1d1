"""Ports of which no two jobs of a machine have the same."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainyard.engines.local.ports import PortAllocator
from trainyard.link.folders import AttemptRef
from trainyard.link.port_blocks import AGENT, BLOCK_PORTS, ENGINE, hold_block, ports_needed

ATTEMPT = AttemptRef("j-ports", 1)
OTHER = AttemptRef("j-ports-of-another", 1)


@pytest.fixture
def ports() -> Iterator[PortAllocator]:
    made = PortAllocator()
    yield made
    made.release(ATTEMPT)
    made.release(OTHER)


def test_the_same_attempt_is_given_others_as_long_as_its_ports_are_held(ports: PortAllocator) -> None:
    other_yard = PortAllocator()
    first = ports.allocate(ATTEMPT, ports_needed(3))
    second = other_yard.allocate(ATTEMPT, ports_needed(3))
    other_yard.release(ATTEMPT)
    ports.release(ATTEMPT)
    assert abs(first - second) >= BLOCK_PORTS
    assert ports.allocate(ATTEMPT, ports_needed(3)) == first


def test_many_hosts_take_several_blocks_in_a_row_that_overlap_with_nobodys(ports: PortAllocator) -> None:
    first = ports.allocate(ATTEMPT, ports_needed(100))
    held = [hold_block(first + number * BLOCK_PORTS, "engine") for number in range(1 + 200 // BLOCK_PORTS)]
    assert held == [None] * len(held)


def test_ports_of_a_job_whose_yard_was_killed_stay_its_own(ports: PortAllocator) -> None:
    first = ports.allocate(ATTEMPT, 3)
    ports.release(ATTEMPT)
    agent = hold_block(first, AGENT)
    assert agent is not None
    with agent:
        assert ports.allocate(ATTEMPT, 3) != first


def test_a_port_on_which_somebody_listens_is_not_given_away(ports: PortAllocator) -> None:
    first = ports.allocate(ATTEMPT, 3)
    ports.release(ATTEMPT)
    with socket.socket() as somebody:
        somebody.bind(("127.0.0.1", first + 2))
        somebody.listen()
        assert ports.allocate(ATTEMPT, 3) != first


def test_blocks_that_were_not_chosen_are_not_held(ports: PortAllocator) -> None:
    first = ports.allocate(ATTEMPT, ports_needed(100))
    ports.release(ATTEMPT)
    passed = range(first, first + ports_needed(100), BLOCK_PORTS)
    in_the_way = hold_block(passed[-1], ENGINE)
    assert in_the_way is not None
    with in_the_way:
        second = ports.allocate(ATTEMPT, ports_needed(100))
    chosen = range(second, second + ports_needed(100), BLOCK_PORTS)
    assert [block for block in passed if is_held(block)] == [block for block in passed if block in chosen]


def test_ports_are_let_go_with_who_chose_them(ports: PortAllocator) -> None:
    first = ports.allocate(ATTEMPT, 3)
    assert is_held(first)
    ports.release(ATTEMPT)
    assert not is_held(first)
    other = PortAllocator()
    first = other.allocate(ATTEMPT, 3)
    del other
    assert not is_held(first)


def test_ports_are_outside_the_ephemeral_range_of_the_kernel(ports: PortAllocator) -> None:
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    assert ports.allocate(OTHER, 3) not in range(low, high + 1)


def is_held(block: int) -> bool:
    hold = hold_block(block, ENGINE)
    if hold is None:
        return True
    hold.close()
    return False
