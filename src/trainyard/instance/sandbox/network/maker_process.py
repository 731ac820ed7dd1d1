"""The private network of a job, as held by the process that puts programs into it."""

import contextlib
import marshal
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from trainyard.foundation.errors import Unavailable
from trainyard.foundation.interpreter import PACKAGE, boot_code
from trainyard.instance.sandbox.network.maker import MADE, MAX_MESSAGE_BYTES

_BOOT = boot_code("trainyard.instance.sandbox.network.maker")
_TIMEOUT_S = 30.0
# The kernel passes at most 253 descriptors at once.
_MAX_INSTANCES = 250


@dataclass(frozen=True, slots=True)
class JobNetwork:
    """Descriptors of a network's namespaces: the bridge's, one per instance, and the user namespace that owns them.

    Root's networks have no separate owner. A network disappears with its last descriptor and the last process in it.
    """

    bridge: int
    instances: Sequence[int]
    owner: int | None


class NetworkMakerProcess:
    """A process that is ready to make one network, started in advance because its start takes most of the time."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(_TIMEOUT_S)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _BOOT, PACKAGE],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                cwd="/",
                start_new_session=True,
            )

    def make(self, addresses: Sequence[str], *, prefix: int, peer_namespace: int | None = None) -> JobNetwork:
        """Make a network with an instance at each address; Unavailable if the machine refuses it.

        `peer_namespace` is a user namespace whose processes can enter the network too.
        """
        assert len(addresses) <= _MAX_INSTANCES, f"a network has at most {_MAX_INSTANCES} instances"
        request = marshal.dumps({"addresses": list(addresses), "prefix": prefix})
        try:
            socket.send_fds(self._socket, [request], [] if peer_namespace is None else [peer_namespace])
            answer, received, _, _ = socket.recv_fds(self._socket, MAX_MESSAGE_BYTES, len(addresses) + 2)
        except OSError as error:
            raise Unavailable(f"Cannot create a private network: {error.strerror or error}.") from error
        finally:
            self.close()
        for descriptor in received:
            # Python 3.11 does not pass on the flag that would do this.
            os.set_inheritable(descriptor, False)
        if answer != MADE:
            why = answer.decode(errors="replace") or "the process that makes it has ended"
            raise Unavailable(f"Cannot create a private network: {why}.")
        *owner, bridge = received[: -len(addresses)]
        return JobNetwork(bridge, received[-len(addresses) :], owner[0] if owner else None)

    def close(self) -> None:
        """End the process, whether it has made a network or not."""
        self._socket.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_TIMEOUT_S)
