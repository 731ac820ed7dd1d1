"""The network of a job that is cut off from all others, as those hold it who put programs into it."""

import contextlib
import marshal
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainyard.foundation.errors import Unavailable
from trainyard.instance.sandbox.network_maker import MADE, MOST_BYTES

_PACKAGE = Path(__file__).resolve().parents[2]
# As the keeper, it enters the package past its __init__.
_BOOT = (
    "import sys; package = sys.modules['trainyard'] = type(sys)('trainyard'); package.__path__ = sys.argv[1:]; "
    "from trainyard.instance.sandbox.network_maker import main; main()"
)
_LIMIT_S = 30.0
_MOST_INSTANCES = 250  # the kernel passes at most 253 descriptors at once


@dataclass(frozen=True, slots=True)
class JobNetwork:
    """Descriptors of its namespaces: the bridge's, one for each instance, and the user namespace that owns them all.

    Root's networks have no owner of their own. All of it is gone with the last descriptor and the last process in it.
    """

    bridge: int
    instances: Sequence[int]
    owner: int | None


class NetworkMaker:
    """A process that is ready to make one network; started ahead, because the start is what takes long."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(_LIMIT_S)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _BOOT, str(_PACKAGE)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                cwd="/",
                start_new_session=True,
            )

    def make(self, addresses: Sequence[str], *, prefix: int, beside: int | None = None) -> JobNetwork:
        """A network with an instance at each address; Unavailable when the machine refuses it.

        `beside` is a descriptor of a user namespace whose processes shall be able to enter it, besides this one's.
        """
        assert len(addresses) <= _MOST_INSTANCES, "no job has so many instances"
        orders = marshal.dumps({"addresses": list(addresses), "prefix": prefix})
        try:
            socket.send_fds(self._socket, [orders], [] if beside is None else [beside])
            said, received, _, _ = socket.recv_fds(self._socket, MOST_BYTES, len(addresses) + 2)
        except OSError as error:
            raise Unavailable(f"A network of its own cannot be made: {error.strerror or error}.") from error
        finally:
            self.close()
        for descriptor in received:  # the flag that would do this is not passed on by Python 3.11
            os.set_inheritable(descriptor, False)
        if said != MADE:
            why = said.decode(errors="replace") or "the process that makes it has ended"
            raise Unavailable(f"A network of its own cannot be made: {why}.")
        *owner, bridge = received[: -len(addresses)]
        return JobNetwork(bridge, received[-len(addresses) :], owner[0] if owner else None)

    def close(self) -> None:
        """Let it go, whether it has made something or not."""
        self._socket.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_LIMIT_S)
