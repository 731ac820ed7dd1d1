"""Addresses of instances, on one machine and on several."""

from ipaddress import IPv4Address, IPv4Network

from tests.unit.instance.agent.samples import changed
from trainyard.instance.agent.program.hosts import host_lines, network_interface

HOSTS = tuple(f"algo-{number}" for number in range(1, 301))


def test_every_instance_of_a_job_makes_the_same_lines() -> None:
    lines = host_lines(changed(hosts=HOSTS, instance="algo-1"))
    assert lines == host_lines(changed(hosts=HOSTS, instance="algo-2"))
    assert [line.split()[1] for line in lines] == list(HOSTS)


def test_addresses_are_loopback_ones_of_their_own() -> None:
    addresses = [IPv4Address(line.split()[0]) for line in host_lines(changed(hosts=HOSTS))]
    assert len(set(addresses)) == len(HOSTS)
    assert all(address in IPv4Network("127.64.0.0/10") for address in addresses)


def test_jobs_and_attempts_do_not_share_addresses() -> None:
    firsts = {host_lines(changed(job_id=f"j-{job}", attempt=attempt))[0] for job in range(30) for attempt in (1, 2)}
    assert len(firsts) == 60


def test_isolated_instances_meet_on_a_network_of_their_own() -> None:
    isolated = changed(hosts=HOSTS[:3], is_isolated=True)
    assert host_lines(isolated) == ["10.200.0.1 algo-1", "10.200.0.2 algo-2", "10.200.0.3 algo-3"]
    assert network_interface(isolated) == "eth0"


def test_an_isolated_instance_without_others_has_only_its_loopback() -> None:
    lone = changed(is_isolated=True)
    assert host_lines(lone) == host_lines(changed())
    assert network_interface(lone) == network_interface(changed(hosts=HOSTS)) == "lo"


def test_instances_on_several_machines_have_the_addresses_of_those() -> None:
    spread = changed(hosts=HOSTS[:3], addresses=("10.0.0.1", "10.0.0.2", "10.0.0.2"))
    assert host_lines(spread) == ["10.0.0.1 algo-1", "10.0.0.2 algo-2", "10.0.0.2 algo-3"]


def test_instances_that_share_a_node_meet_as_they_do_on_the_yards_machine() -> None:
    together = changed(hosts=HOSTS[:2], addresses=("10.0.0.1", "10.0.0.1"))
    assert host_lines(together) == host_lines(changed(hosts=HOSTS[:2]))
    assert network_interface(together) == "lo"
