"""Sets up links and addresses over netlink: a request takes microseconds, the `ip` program 20 ms.

Requests apply to the network namespace that the process was in when it opened its `Netlink`.
"""

import _socket
import os
import struct

_ROUTE = 0
_NEW_LINK, _SET_LINK, _NEW_ADDRESS, _ERROR = 16, 19, 20, 2
_REQUEST, _ACKNOWLEDGE, _EXCLUSIVE, _CREATE = 0x1, 0x4, 0x200, 0x400
_UP = 1
# Attributes of links, of a link's info, of veth data, and of addresses.
_NAME, _MTU, _MASTER, _LINK_INFO, _NAMESPACE = 3, 4, 10, 18, 28
_KIND, _DATA = 1, 2
_PEER = 1
_ADDRESS, _LOCAL = 1, 2
_MAX_ANSWER_BYTES = 65536


class Netlink:
    """A netlink socket. Each method sends one request, and raises OSError that names it if the kernel refuses."""

    def __init__(self) -> None:
        self._socket = _socket.socket(_socket.AF_NETLINK, _socket.SOCK_RAW | _socket.SOCK_CLOEXEC, _ROUTE)
        self._sequence = 0

    def close(self) -> None:
        self._socket.close()

    def add_bridge(self, name: str) -> None:
        self._add(f"bridge {name}", link_header() + pack_text(_NAME, name) + _kind("bridge"))

    def add_pair(self, name: str, peer: str, *, namespace: int, mtu: int) -> None:
        """Add a veth pair: one end here, and one in the namespace of the descriptor."""
        size = pack_number(_MTU, mtu)
        other = link_header() + pack_text(_NAME, peer) + size + pack_number(_NAMESPACE, namespace)
        self._add(
            f"link {name}", link_header() + pack_text(_NAME, name) + size + _kind("veth", pack_attribute(_PEER, other))
        )

    def add_address(self, name: str, address: str, *, prefix: int) -> None:
        packed = _socket.inet_aton(address)
        index = _socket.if_nametoindex(name)
        header = struct.pack("=BBBBI", _socket.AF_INET, prefix, 0, 0, index)
        body = header + pack_attribute(_LOCAL, packed) + pack_attribute(_ADDRESS, packed)
        self._request(f"address {address}", _NEW_ADDRESS, body, _CREATE | _EXCLUSIVE)

    def set_up(self, name: str) -> None:
        self._request(f"{name} up", _SET_LINK, link_header(_socket.if_nametoindex(name), flags=_UP))

    def attach(self, name: str, bridge: str) -> None:
        master = pack_number(_MASTER, _socket.if_nametoindex(bridge))
        self._request(f"{name} at {bridge}", _SET_LINK, link_header(_socket.if_nametoindex(name)) + master)

    def _add(self, what: str, body: bytes) -> None:
        self._request(what, _NEW_LINK, body, _CREATE | _EXCLUSIVE)

    def _request(self, what: str, kind: int, body: bytes, flags: int = 0) -> None:
        self._sequence += 1
        self._socket.send(pack_message(kind, body, flags=_REQUEST | _ACKNOWLEDGE | flags, sequence=self._sequence))
        code = parse_acknowledgement(self._socket.recv(_MAX_ANSWER_BYTES))
        if code:
            raise OSError(code, os.strerror(code), what)


def pack_message(kind: int, body: bytes, *, flags: int, sequence: int) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, flags, sequence, 0) + body


def parse_acknowledgement(data: bytes) -> int:
    """Return the error number of an answer; 0 for success."""
    _, kind, _, _, _, code = struct.unpack_from("=IHHIIi", data)
    if kind != _ERROR:
        raise OSError(f"unexpected netlink message of type {kind}")
    return -int(code)


def link_header(index: int = 0, *, flags: int = 0) -> bytes:
    """Return the header of every request about a link; only the given flags change."""
    return struct.pack("=BxHiII", _socket.AF_UNSPEC, 0, index, flags, flags)


def pack_attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)


def pack_text(kind: int, value: str) -> bytes:
    return pack_attribute(kind, value.encode() + b"\0")


def pack_number(kind: int, value: int) -> bytes:
    return pack_attribute(kind, struct.pack("=I", value))


def _kind(name: str, data: bytes = b"") -> bytes:
    return pack_attribute(_LINK_INFO, pack_text(_KIND, name) + (pack_attribute(_DATA, data) if data else b""))
