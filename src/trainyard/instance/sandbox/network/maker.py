"""Makes the network of one job: a bridge in its own namespace, and one namespace per instance with a link to it.

It runs as `python -I -S -c …`, started by `maker_process.py`, since a process with threads cannot enter a user
namespace. Its standard input is a socket: a request comes in, descriptors of the namespaces go out, and it exits.
A network has no name on the machine: it exists exactly as long as something holds it open.
"""

import _socket
import marshal
import os
import struct

from trainyard.instance.sandbox import identity, status, system_calls
from trainyard.instance.sandbox.network.netlink import Netlink
from trainyard.instance.sandbox.system_calls import NEW_NET

MADE = b"made"
MAX_MESSAGE_BYTES = 65536

_BRIDGE, _LINK, _LOOPBACK = "bridge", "eth0", "lo"
# The maximum of a veth link; all-reduce is twice as fast as with the usual 1500.
_MTU = 65535
_DESCRIPTOR_BYTES = 4


def main() -> None:
    """Make one network and never return."""
    launcher = _socket.socket(fileno=0)
    data, ancillary, _, _ = launcher.recvmsg(MAX_MESSAGE_BYTES, _socket.CMSG_SPACE(_DESCRIPTOR_BYTES))
    if not data:
        # The launcher died or no longer needs the network.
        os._exit(1)
    try:
        received = [struct.unpack_from("i", each)[0] for _, _, each in ancillary]
        namespaces = make_network(marshal.loads(data), peer_namespace=received[0] if received else -1)
    except OSError as error:
        launcher.send(status.describe_error(error).encode())
        os._exit(1)
    packed = struct.pack(f"{len(namespaces)}i", *namespaces)
    launcher.sendmsg([MADE], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, packed)])
    os._exit(0)


def make_network(request: dict[str, object], *, peer_namespace: int) -> list[int]:
    """Make the network and return descriptors of its namespaces: owner (unless root owns it), bridge, each instance.

    `peer_namespace` is a user namespace whose processes can enter the network too; -1 is the current one.
    """
    addresses, prefix = request["addresses"], request["prefix"]
    assert isinstance(addresses, list)
    assert isinstance(prefix, int)
    owner = _enter_namespaces(peer_namespace)
    bridge_namespace, bridge = _open_own_namespace("net"), Netlink()
    bridge.add_bridge(_BRIDGE)
    bridge.set_up(_BRIDGE)
    instances = [_add_instance(each, prefix, number, bridge_namespace) for number, each in enumerate(addresses)]
    # Link names are looked up in the namespace that the process is in.
    system_calls.enter_namespace(bridge_namespace)
    for number, _ in enumerate(addresses):
        # Only now: if a link is attached before its other end is up, the kernel takes up to a second to notice.
        bridge.set_up(_port(number))
        bridge.attach(_port(number), _BRIDGE)
    bridge.close()
    return [*owner, bridge_namespace, *instances]


def bring_up_loopback() -> None:
    """Bring up loopback for a program that is alone in its network namespace."""
    netlink = Netlink()
    netlink.set_up(_LOOPBACK)
    netlink.close()


def _enter_namespaces(peer_namespace: int) -> list[int]:
    if os.geteuid() == 0:
        system_calls.unshare(NEW_NET)
        return []
    if peer_namespace >= 0:
        system_calls.enter_namespace(peer_namespace)
    identity.enter_user_namespace(NEW_NET)
    return [_open_own_namespace("user")]


def _add_instance(address: str, prefix: int, number: int, bridge: int) -> int:
    system_calls.unshare(NEW_NET)
    netlink = Netlink()
    netlink.set_up(_LOOPBACK)
    netlink.add_pair(_LINK, _port(number), namespace=bridge, mtu=_MTU)
    netlink.add_address(_LINK, address, prefix=prefix)
    netlink.set_up(_LINK)
    netlink.close()
    return _open_own_namespace("net")


def _open_own_namespace(kind: str) -> int:
    return os.open(f"/proc/self/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)


def _port(number: int) -> str:
    return f"port{number}"
