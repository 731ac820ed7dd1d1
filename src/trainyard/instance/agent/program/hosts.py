"""The addresses at which the instances of a job reach each other, on one machine or on several."""

import hashlib
from collections.abc import Sequence
from functools import cache

from trainyard.instance.agent.program.interfaces import find_interface
from trainyard.link.contract import InstanceSpec
from trainyard.link.spec_queries import is_spread, remote_hosts

# The prefix length of the network that isolated instances share.
PREFIX = 24


def host_lines(spec: InstanceSpec) -> list[str]:
    """The lines of /etc/hosts. They are the same on every instance of a job, and almost surely differ between jobs."""
    return [f"{address} {host}" for host, address in zip(spec.hosts, addresses(spec), strict=True)]


def network_interface(spec: InstanceSpec) -> str:
    """The name of the network interface through which the instances reach each other."""
    if is_spread(spec):
        return _interface(*_own_and_other(spec))
    return "eth0" if _has_own_network(spec) else "lo"


def addresses(spec: InstanceSpec) -> Sequence[str]:
    """The addresses of the instances in the order of the hosts; on several machines, those of the machines."""
    if is_spread(spec):
        return spec.addresses
    numbers = range(1, len(spec.hosts) + 1)
    if _has_own_network(spec):
        return [f"10.200.0.{number}" for number in numbers]
    return [_loopback(_first(spec) + number) for number in numbers]


def _own_and_other(spec: InstanceSpec) -> tuple[str, str]:
    by_host = dict(zip(spec.hosts, spec.addresses, strict=True))
    return by_host[spec.instance], by_host[remote_hosts(spec)[0]]


@cache
def _interface(own: str, other: str) -> str:
    return find_interface(own, towards=other)


def _has_own_network(spec: InstanceSpec) -> bool:
    """Whether the job has a network of its own. A single isolated instance needs none, having no peers."""
    return spec.is_isolated and len(spec.hosts) > 1


def _first(spec: InstanceSpec) -> int:
    digest = hashlib.sha256(f"{spec.job_id}/{spec.attempt}".encode()).digest()
    return int.from_bytes(digest[:2], "big") % 0x4000 * 256


def _loopback(number: int) -> str:
    """An address from 127.64.0.0 to 127.127.255.255, which are all this machine and where nothing else listens."""
    number %= 0x400000
    return f"127.{64 + (number >> 16)}.{(number >> 8) & 255}.{number & 255}"
