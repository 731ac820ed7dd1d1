"""The addresses by which the instances of a job find each other, on one machine or on several."""

import hashlib
from collections.abc import Sequence
from functools import cache

from trainyard.instance.agent.interfaces import interface_with
from trainyard.link.contract import InstanceSpec
from trainyard.link.neighbours import elsewhere, is_spread

PREFIX = 24  # how much of an address is that of the network, where the instances are isolated


def host_lines(spec: InstanceSpec) -> list[str]:
    """Lines of /etc/hosts. Every instance of a job makes the same ones, and another job almost surely others."""
    return [f"{address} {host}" for host, address in zip(spec.hosts, addresses(spec), strict=True)]


def network_interface(spec: InstanceSpec) -> str:
    """What the link is called by which the instances reach each other."""
    if is_spread(spec):
        return _interface(*_own_and_other(spec))
    return "eth0" if _has_own_network(spec) else "lo"


def addresses(spec: InstanceSpec) -> Sequence[str]:
    """One for each instance, in the order of the hosts. On several machines they are those of the machines."""
    if is_spread(spec):
        return spec.addresses
    numbers = range(1, len(spec.hosts) + 1)
    if _has_own_network(spec):
        return [f"10.200.0.{number}" for number in numbers]
    return [_loopback(_first(spec) + number) for number in numbers]


def _own_and_other(spec: InstanceSpec) -> tuple[str, str]:
    by_host = dict(zip(spec.hosts, spec.addresses, strict=True))
    return by_host[spec.instance], by_host[elsewhere(spec)[0]]


@cache
def _interface(own: str, other: str) -> str:
    return interface_with(own, towards=other)


def _has_own_network(spec: InstanceSpec) -> bool:
    """A single instance that is isolated needs none: it meets nobody but itself."""
    return spec.is_isolated and len(spec.hosts) > 1


def _first(spec: InstanceSpec) -> int:
    digest = hashlib.sha256(f"{spec.job_id}/{spec.attempt}".encode()).digest()
    return int.from_bytes(digest[:2], "big") % 0x4000 * 256


def _loopback(number: int) -> str:
    """Of 127.64.0.0 to 127.127.255.255: all of it is this machine, and nothing else listens there."""
    number %= 0x400000
    return f"127.{64 + (number >> 16)}.{(number >> 8) & 255}.{number & 255}"
