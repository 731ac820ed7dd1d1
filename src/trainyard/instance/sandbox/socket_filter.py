"""Keeps a program that is cut off from the network from sockets that no network namespace holds.

Some families know none, such as those between a virtual machine and its host. Calls of other kinds than the machine's
own, and io_uring, which makes sockets unseen, would lead around this, and are answered as kernels without them do.
"""

import os
import struct

from trainyard.instance.sandbox import system_calls

ALLOWED = (1, 2, 10, 16)  # unix, IPv4, IPv6, and netlink, which tells of the links

_MACHINES = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}  # what its calls are marked with, and `socket`
_IO_URING_SETUP = 425
_FOREIGN = 0x40000000  # from here on, calls of x86_64 are of its kind with short pointers
_CALL, _MACHINE, _ARGUMENT = 0, 4, 16  # where the kernel shows them to a filter
_LOAD, _IF_EQUAL, _IF_FROM, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000
_NOT_IMPLEMENTED, _NO_SUCH_FAMILY = 38, 97


class CannotFilter(OSError):
    """It is not known here how this kind of machine makes calls."""


def forbid_other_sockets() -> None:
    """For this process and all it starts, which must have given up gaining privileges."""
    machine = os.uname().machine
    if machine not in _MACHINES:
        raise CannotFilter(f"the calls of {machine} are not known")
    system_calls.filter_calls(instructions(*_MACHINES[machine]))


def instructions(mark: int, socket_call: int) -> bytes:
    """The filter, as the kernel's small machine runs it: jumps are counted from the next instruction."""
    families = len(ALLOWED)
    lines = [
        (_LOAD, 0, 0, _MACHINE),
        (_IF_EQUAL, 1, 0, mark),
        (_RETURN, 0, 0, _REFUSE | _NOT_IMPLEMENTED),
        (_LOAD, 0, 0, _CALL),
        (_IF_FROM, 1, 0, _FOREIGN),
        (_IF_EQUAL, 0, 1, _IO_URING_SETUP),
        (_RETURN, 0, 0, _REFUSE | _NOT_IMPLEMENTED),
        (_IF_EQUAL, 0, families + 2, socket_call),
        (_LOAD, 0, 0, _ARGUMENT),
        *((_IF_EQUAL, families - number, 0, family) for number, family in enumerate(ALLOWED)),
        (_RETURN, 0, 0, _REFUSE | _NO_SUCH_FAMILY),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)
