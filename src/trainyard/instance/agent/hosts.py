"""The addresses by which the instances of a job find each other on one machine."""

import hashlib
from collections.abc import Sequence

from trainyard.link.contract import InstanceSpec


def host_lines(spec: InstanceSpec) -> list[str]:
    """Lines of /etc/hosts. Every instance of a job makes the same ones, and another job almost surely others."""
    return [f"{address} {host}" for host, address in zip(spec.hosts, _addresses(spec), strict=True)]


def _addresses(spec: InstanceSpec) -> Sequence[str]:
    """Of 127.64.0.0 to 127.127.255.255: all of it is this machine, and nothing else listens there."""
    digest = hashlib.sha256(f"{spec.job_id}/{spec.attempt}".encode()).digest()
    first = int.from_bytes(digest[:2], "big") % 0x4000 * 256
    numbers = [(first + number) % 0x400000 for number in range(1, len(spec.hosts) + 1)]
    return [f"127.{64 + (n >> 16)}.{(n >> 8) & 255}.{n & 255}" for n in numbers]
