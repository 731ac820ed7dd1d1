"""The network of an isolated job: each instance reaches the other instances of the job and nothing else.

The first instance creates the network for all, and writes into its folder which of its descriptors belong to which
instance. The others open these through /proc. The network has no name on the machine and needs no cleanup: it vanishes
with the last agent that has it open, however that ends.
"""

import contextlib
import json
import os
import time
from collections.abc import Callable, Sequence
from functools import cached_property

from trainyard.foundation.errors import Unavailable
from trainyard.foundation.files import replace_file
from trainyard.instance.agent.program.hosts import PREFIX, addresses
from trainyard.instance.agent.results.failure import CannotRun, FailureKind
from trainyard.instance.sandbox.contract import Forker, SandboxNetwork
from trainyard.instance.sandbox.network.maker_process import JobNetwork, NetworkMakerProcess
from trainyard.link.agent_process import find_agent_process
from trainyard.link.contract import InstanceSpec
from trainyard.link.folders import InstanceFolder

_POLL_S = 0.002


class InstanceNetwork:
    """The network of the programs of one instance. The agent holds it until it ends, because other instances need it.

    `check` is called while it waits for the first instance, and may raise.
    """

    def __init__(self, folder: InstanceFolder, spec: InstanceSpec, *, check: Callable[[], None]) -> None:
        self._folder = folder
        self._spec = spec
        self._check = check
        self._entered: SandboxNetwork | None = None
        if self._makes:
            # Started early, so that it is ready when a program needs it.
            _ = self._maker

    def for_program(self, forker: Forker | None, *, is_lone: bool = False) -> SandboxNetwork | None:
        """Return the network for a program that `forker` may fork; None for the machine's own.

        With `is_lone` it does not reach the other instances either. CannotRun when the machine refuses a network.
        """
        if not self._spec.is_isolated:
            return None
        if is_lone or len(self._spec.hosts) == 1:
            return SandboxNetwork()
        if self._entered is None:
            self._entered = self._make(forker) if self._makes else self._find()
        return self._entered

    @property
    def _makes(self) -> bool:
        return self._spec.is_isolated and len(self._spec.hosts) > 1 and self._spec.instance == self._spec.hosts[0]

    @cached_property
    def _maker(self) -> NetworkMakerProcess:
        return NetworkMakerProcess()

    def _make(self, forker: Forker | None) -> SandboxNetwork:
        forker_namespace = None if forker is None or os.geteuid() == 0 else _open_user_namespace(forker.pid)
        try:
            network = self._maker.make(addresses(self._spec), prefix=PREFIX, peer_namespace=forker_namespace)
        except Unavailable as error:
            raise CannotRun(f"EnableNetworkIsolation: {error.message}", FailureKind.INTERNAL) from error
        finally:
            if forker_namespace is not None:
                os.close(forker_namespace)
        replace_file(self._folder.network, json.dumps(_to_plain(network)).encode())
        return SandboxNetwork(network.instances[0], network.owner)

    def _find(self) -> SandboxNetwork:
        """Wait for the network of the first instance, which creates it right before its own program starts."""
        first = InstanceFolder(self._folder.root.with_name(self._spec.hosts[0]))
        while not first.network.exists():
            self._check()
            presence = find_agent_process(first.root)
            if presence is not None and not presence.is_alive and not first.network.exists():
                raise _first_is_gone(first)
            time.sleep(_POLL_S)
        network = json.loads(first.network.read_bytes())
        own = network["instances"][self._spec.hosts.index(self._spec.instance)]
        # The bridge too, so that the remaining instances still reach each other when the first has ended.
        _, namespace, *owner = _open_descriptors(first, [network["bridge"], own, *network["owner"]])
        return SandboxNetwork(namespace, *owner)


_FLAGS = os.O_RDONLY | os.O_CLOEXEC


def _to_plain(network: JobNetwork) -> dict[str, object]:
    return {
        "bridge": network.bridge,
        "instances": list(network.instances),
        "owner": [] if network.owner is None else [network.owner],
    }


def _open_descriptors(first: InstanceFolder, numbers: Sequence[int]) -> list[int]:
    """Open what the agent of the first instance has open under these descriptors."""
    presence = find_agent_process(first.root)
    try:
        opened = [os.open(f"/proc/{presence.pid}/fd/{number}", _FLAGS) for number in numbers] if presence else []
    except OSError as error:
        raise _first_is_gone(first) from error
    # If it has ended, another process may have its pid by now.
    if presence is None or not presence.is_alive:
        raise _first_is_gone(first)
    return opened


def _first_is_gone(first: InstanceFolder) -> CannotRun:
    message = f"{first.root.name}, which creates the network of this isolated job, is gone."
    return CannotRun(message, FailureKind.INTERNAL)


def _open_user_namespace(pid: int) -> int | None:
    """Open the user namespace of a warm worker, whose programs must enter the network; None when it has just ended."""
    with contextlib.suppress(OSError):
        return os.open(f"/proc/{pid}/ns/user", _FLAGS)
    return None
