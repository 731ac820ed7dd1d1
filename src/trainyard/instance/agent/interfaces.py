"""The links of this machine and their addresses, as the kernel tells them."""

import array
import fcntl
import socket
import struct
from contextlib import suppress
from pathlib import Path

_LIST = 0x8912  # SIOCGIFCONF
_LISTED = struct.Struct("iP")  # struct ifconf: a size, and where the entries are
_ENTRY = struct.Struct("16s4x4s16x")  # struct ifreq: a name, and a socket address with an IPv4 address in it
_MOST = 1024
_IPV6 = Path("/proc/net/if_inet6")
_LOOPBACK = "lo"
_ANY_PORT = 9


def interface_with(address: str, *, towards: str) -> str:
    """The link that has the address, or by which `towards` is reached where none has; else the loopback."""
    if address.startswith("127.") or address == "::1":
        return _LOOPBACK
    known = _ipv4() | _ipv6()
    return known.get(address) or known.get(_own_towards(towards)) or _LOOPBACK


def _ipv4() -> dict[str, str]:
    entries = array.array("B", bytes(_MOST * _ENTRY.size))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        listed = fcntl.ioctl(asking, _LIST, _LISTED.pack(len(entries), entries.buffer_info()[0]))
    size, _ = _LISTED.unpack(listed)
    found = _ENTRY.iter_unpack(entries.tobytes()[:size])
    # An address that was added later may have a label behind the name of its link.
    return {socket.inet_ntoa(address): _text(name).partition(":")[0] for name, address in found}


def _ipv6() -> dict[str, str]:
    with suppress(OSError):  # there is no IPv6 here
        lines = [line.split() for line in _IPV6.read_text().splitlines()]
        return {socket.inet_ntop(socket.AF_INET6, bytes.fromhex(fields[0])): fields[5] for fields in lines}
    return {}


def _own_towards(other: str) -> str:
    """The address of this machine by which it reaches another. Nothing is sent."""
    family = socket.AF_INET6 if ":" in other else socket.AF_INET
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as asking:
        asking.connect((other, _ANY_PORT))
        return str(asking.getsockname()[0])
    return ""


def _text(name: bytes) -> str:
    return name.partition(b"\0")[0].decode()
