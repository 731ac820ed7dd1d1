"""Makes the network of one job: a bridge in a namespace of its own, and a namespace with a link to it per instance.

It runs as `python -I -S -c …`, started by `networks.py`, since a process that has threads can enter no user namespace.
Its standard input is a socket: orders come in, descriptors of the namespaces go out, and it ends. Nothing of a network
has a name on the machine: it lasts as long as somebody has it open, and not a moment longer.
"""

import _socket
import marshal
import os
import struct

from trainyard.instance.sandbox import identity, status, system_calls
from trainyard.instance.sandbox.netlink import Netlink
from trainyard.instance.sandbox.system_calls import NEW_NET

MADE = b"made"
MOST_BYTES = 65536

_BRIDGE, _LINK, _LOOPBACK = "bridge", "eth0", "lo"
_MTU = 65535  # the largest of such a link; all-reduce is twice as fast as with the usual 1500
_DESCRIPTOR_BYTES = 4


def main() -> None:
    """Carry out one order and never return."""
    launcher = _socket.socket(fileno=0)
    data, ancillary, _, _ = launcher.recvmsg(MOST_BYTES, _socket.CMSG_SPACE(_DESCRIPTOR_BYTES))
    if not data:
        os._exit(1)  # the launcher died, or needs no network any more
    try:
        given = [struct.unpack_from("i", each)[0] for _, _, each in ancillary]
        made = make_network(marshal.loads(data), beside=given[0] if given else -1)
    except OSError as error:
        launcher.send(status.describe_error(error).encode())
        os._exit(1)
    packed = struct.pack(f"{len(made)}i", *made)
    launcher.sendmsg([MADE], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, packed)])
    os._exit(0)


def make_network(orders: dict[str, object], *, beside: int) -> list[int]:
    """Descriptors of the user namespace that owns the network, unless root does, of the bridge's, and of each instance.

    `beside` is a user namespace whose processes shall be able to enter the network as well; -1 is the present one.
    """
    addresses, prefix = orders["addresses"], orders["prefix"]
    assert isinstance(addresses, list)
    assert isinstance(prefix, int)
    owner = _enter_namespaces(beside)
    place, bridge = _present("net"), Netlink()
    bridge.add_bridge(_BRIDGE)
    bridge.set_up(_BRIDGE)
    instances = [_add_instance(each, prefix, number, place) for number, each in enumerate(addresses)]
    system_calls.enter_namespace(place)  # its names are looked up in the namespace that the process is in
    for number, _ in enumerate(addresses):
        # Only now: a link that is attached before its other end is up waits up to a second for the kernel to notice.
        bridge.set_up(_port(number))
        bridge.attach(_port(number), _BRIDGE)
    bridge.close()
    return [*owner, place, *instances]


def raise_loopback() -> None:
    """Let a program that is alone in its namespace talk to itself."""
    netlink = Netlink()
    netlink.set_up(_LOOPBACK)
    netlink.close()


def _enter_namespaces(beside: int) -> list[int]:
    if os.geteuid() == 0:
        system_calls.unshare(NEW_NET)
        return []
    if beside >= 0:
        system_calls.enter_namespace(beside)
    identity.enter_user_namespace(NEW_NET)
    return [_present("user")]


def _add_instance(address: str, prefix: int, number: int, bridge: int) -> int:
    system_calls.unshare(NEW_NET)
    netlink = Netlink()
    netlink.set_up(_LOOPBACK)
    netlink.add_pair(_LINK, _port(number), namespace=bridge, mtu=_MTU)
    netlink.add_address(_LINK, address, prefix=prefix)
    netlink.set_up(_LINK)
    netlink.close()
    return _present("net")


def _present(kind: str) -> int:
    return os.open(f"/proc/self/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)


def _port(number: int) -> str:
    return f"port{number}"
