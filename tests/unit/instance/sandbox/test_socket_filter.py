"""The filter of calls, run by a small machine of our own as the kernel would run it."""

import errno
import socket
import struct

import pytest

from trainyard.instance.sandbox.socket_filter import filter_program

MARK, SOCKET, IO_URING, READ = 0xC000003E, 41, 425, 0
ALLOWED, REFUSED = 0x7FFF0000, 0x00050000


def judged(call: int, argument: int = 0, *, mark: int = MARK) -> int:
    """What the filter returns for a call."""
    shown = struct.pack("=IIQQ", call, mark, 0, argument)
    program = list(struct.iter_unpack("=HBBI", filter_program(MARK, SOCKET)))
    held = place = 0
    while True:
        code, if_so, if_not, value = program[place]
        place += 1
        if code == 0x20:
            (held,) = struct.unpack_from("=I", shown, value)
        elif code == 0x06:
            return int(value)
        else:
            place += if_so if (held == value if code == 0x15 else held >= value) else if_not


@pytest.mark.parametrize("family", [socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK])
def test_sockets_that_namespaces_hold_are_allowed(family: int) -> None:
    assert judged(SOCKET, family) == ALLOWED


@pytest.mark.parametrize("family", [socket.AF_VSOCK, socket.AF_PACKET, socket.AF_CAN, 0, 3, 46])
def test_other_sockets_do_not_exist(family: int) -> None:
    assert judged(SOCKET, family) == REFUSED | errno.EAFNOSUPPORT


def test_ways_around_the_filter_do_not_exist() -> None:
    assert judged(IO_URING) == REFUSED | errno.ENOSYS
    assert judged(0x40000000 + SOCKET, socket.AF_VSOCK) == REFUSED | errno.ENOSYS
    assert judged(359, socket.AF_VSOCK, mark=0x40000003) == REFUSED | errno.ENOSYS


def test_all_other_calls_are_allowed() -> None:
    assert {judged(call, socket.AF_VSOCK) for call in (READ, 42, 424, 426, 0x3FFFFFFF)} == {ALLOWED}
