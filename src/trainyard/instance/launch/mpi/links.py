"""The network links of this host."""

import fcntl
import socket
import struct

_ADDRESS = 0x8915  # SIOCGIFADDR
_LOOPBACK = "lo"


def has_other_than_loopback() -> bool:
    """Whether a link beside the loopback has an IPv4 address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        return any(_has_address(asked, name) for _, name in socket.if_nameindex() if name != _LOOPBACK)


def _has_address(asked: socket.socket, name: str) -> bool:
    try:
        fcntl.ioctl(asked, _ADDRESS, struct.pack("256s", name.encode()[:15]))
    except OSError:
        return False
    return True
