"""A seccomp filter that keeps an isolated program from sockets that network namespaces do not contain.

Some socket families have no namespaces, such as the one between a virtual machine and its host. System calls of other
ABIs, and io_uring, which makes sockets without a system call, could bypass the filter. They fail as they do on kernels
that lack them.
"""

import os
import struct

from trainyard.instance.sandbox import system_calls

# Unix, IPv4, IPv6 and netlink.
ALLOWED_FAMILIES = (1, 2, 10, 16)

# By machine: the audit architecture of its system calls, and the number of `socket`.
_MACHINES = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
_IO_URING_SETUP = 425
# On x86_64, numbers from here on belong to the x32 ABI.
_X32_SYSCALL_BIT = 0x40000000
# Offsets in the kernel's `struct seccomp_data`.
_CALL, _MACHINE, _ARGUMENT = 0, 4, 16
_LOAD, _IF_EQUAL, _IF_FROM, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000
_NOT_IMPLEMENTED, _NO_SUCH_FAMILY = 38, 97


class UnknownArchitecture(OSError):
    """The system call numbers of this machine are not known here."""


def forbid_other_sockets() -> None:
    """Install the filter for this process and all it starts; requires `no_new_privs`."""
    machine = os.uname().machine
    if machine not in _MACHINES:
        raise UnknownArchitecture(f"the system calls of {machine} are not known")
    system_calls.filter_calls(filter_program(*_MACHINES[machine]))


def filter_program(mark: int, socket_call: int) -> bytes:
    """Return the BPF program of the filter. Jumps count from the next instruction."""
    families = len(ALLOWED_FAMILIES)
    lines = [
        (_LOAD, 0, 0, _MACHINE),
        (_IF_EQUAL, 1, 0, mark),
        (_RETURN, 0, 0, _REFUSE | _NOT_IMPLEMENTED),
        (_LOAD, 0, 0, _CALL),
        (_IF_FROM, 1, 0, _X32_SYSCALL_BIT),
        (_IF_EQUAL, 0, 1, _IO_URING_SETUP),
        (_RETURN, 0, 0, _REFUSE | _NOT_IMPLEMENTED),
        (_IF_EQUAL, 0, families + 2, socket_call),
        (_LOAD, 0, 0, _ARGUMENT),
        *((_IF_EQUAL, families - number, 0, family) for number, family in enumerate(ALLOWED_FAMILIES)),
        (_RETURN, 0, 0, _REFUSE | _NO_SUCH_FAMILY),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)
