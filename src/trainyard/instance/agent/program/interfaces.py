"""Finds network interfaces of this machine by their addresses."""

import array
import fcntl
import socket
import struct
from contextlib import suppress
from pathlib import Path

_SIOCGIFCONF = 0x8912
# struct ifconf: a size, and the address of the entries.
_IFCONF = struct.Struct("iP")
# struct ifreq: a name, and a socket address with an IPv4 address in it.
_IFREQ = struct.Struct("16s4x4s16x")
_MAX_INTERFACES = 1024
_IPV6 = Path("/proc/net/if_inet6")
_LOOPBACK = "lo"
_ANY_PORT = 9


def find_interface(address: str, *, towards: str) -> str:
    """Return the interface that has the address, else the one that leads to `towards`, else the loopback."""
    if address.startswith("127.") or address == "::1":
        return _LOOPBACK
    known = _ipv4() | _ipv6()
    return known.get(address) or known.get(_source_address(towards)) or _LOOPBACK


def _ipv4() -> dict[str, str]:
    entries = array.array("B", bytes(_MAX_INTERFACES * _IFREQ.size))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as query:
        answer = fcntl.ioctl(query, _SIOCGIFCONF, _IFCONF.pack(len(entries), entries.buffer_info()[0]))
    size, _ = _IFCONF.unpack(answer)
    # An address that was added later may have a label after the name of its interface.
    return {
        socket.inet_ntoa(address): _text(name).partition(":")[0]
        for name, address in _IFREQ.iter_unpack(entries.tobytes()[:size])
    }


def _ipv6() -> dict[str, str]:
    # The file is missing on machines without IPv6.
    with suppress(OSError):
        lines = [line.split() for line in _IPV6.read_text().splitlines()]
        return {socket.inet_ntop(socket.AF_INET6, bytes.fromhex(fields[0])): fields[5] for fields in lines}
    return {}


def _source_address(other: str) -> str:
    """The address that this machine uses to reach another. Nothing is sent."""
    family = socket.AF_INET6 if ":" in other else socket.AF_INET
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as query:
        query.connect((other, _ANY_PORT))
        return str(query.getsockname()[0])
    return ""


def _text(name: bytes) -> str:
    return name.partition(b"\0")[0].decode()
