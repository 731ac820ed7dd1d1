"""The network of an instance whose job is isolated: it reaches the other instances of the job, and nothing else.

The first instance makes the network of all, and tells in its folder which of its descriptors are whose. The others open
those, through /proc. Nothing of it has a name on the machine or needs to be cleared away: it is gone with the last
agent that has it open, however that ends.
"""

import contextlib
import json
import os
import time
from collections.abc import Callable, Sequence
from functools import cached_property

from trainyard.foundation.errors import Unavailable
from trainyard.foundation.files import replace_file
from trainyard.instance.agent.failure import CannotRun, FailureKind
from trainyard.instance.agent.hosts import PREFIX, addresses
from trainyard.instance.sandbox.contract import Forker, Network
from trainyard.instance.sandbox.networks import JobNetwork, NetworkMaker
from trainyard.link.contract import InstanceSpec
from trainyard.link.folders import InstanceFolder
from trainyard.link.presence import presence_of

_PAUSE_S = 0.002  # between two looks for what the first instance makes


class InstanceNetwork:
    """What the programs of one instance have of networks. It is held until the agent ends, for the others need it too.

    `check` is called while it waits, and may raise to end that.
    """

    def __init__(self, folder: InstanceFolder, spec: InstanceSpec, *, check: Callable[[], None]) -> None:
        self._folder = folder
        self._spec = spec
        self._check = check
        self._entered: Network | None = None
        if self._makes:
            _ = self._maker  # which has time to start until a program needs it

    def for_program(self, forker: Forker | None, *, is_lone: bool = False) -> Network | None:
        """What a program gets, that `forker` may fork; None is the network of the machine.

        One that `is_lone` reaches not even the other instances. CannotRun when the machine refuses a network.
        """
        if not self._spec.is_isolated:
            return None
        if is_lone or len(self._spec.hosts) == 1:
            return Network()
        if self._entered is None:
            self._entered = self._make(forker) if self._makes else self._find()
        return self._entered

    @property
    def _makes(self) -> bool:
        return self._spec.is_isolated and len(self._spec.hosts) > 1 and self._spec.instance == self._spec.hosts[0]

    @cached_property
    def _maker(self) -> NetworkMaker:
        return NetworkMaker()

    def _make(self, forker: Forker | None) -> Network:
        beside = None if forker is None or os.geteuid() == 0 else _user_namespace(forker.pid)
        try:
            made = self._maker.make(addresses(self._spec), prefix=PREFIX, beside=beside)
        except Unavailable as error:
            raise CannotRun(f"EnableNetworkIsolation: {error.message}", FailureKind.INTERNAL) from error
        finally:
            if beside is not None:
                os.close(beside)
        replace_file(self._folder.network, json.dumps(_told(made)).encode())
        return Network(made.instances[0], made.owner)

    def _find(self) -> Network:
        """Wait for what the first instance makes, which it does right before its own program starts."""
        first = InstanceFolder(self._folder.root.with_name(self._spec.hosts[0]))
        while not first.network.exists():
            self._check()
            presence = presence_of(first.root)
            if presence is not None and not presence.is_alive and not first.network.exists():
                raise CannotRun(_gone(first), FailureKind.INTERNAL)
            time.sleep(_PAUSE_S)
        told = json.loads(first.network.read_bytes())
        mine = told["instances"][self._spec.hosts.index(self._spec.instance)]
        # The bridge as well, so that the instances which are left still meet when the first has ended.
        _, namespace, *owner = _opened(first, [told["bridge"], mine, *told["owner"]])
        return Network(namespace, *owner)


_FLAGS = os.O_RDONLY | os.O_CLOEXEC


def _told(made: JobNetwork) -> dict[str, object]:
    return {
        "bridge": made.bridge,
        "instances": list(made.instances),
        "owner": [] if made.owner is None else [made.owner],
    }


def _opened(first: InstanceFolder, numbers: Sequence[int]) -> list[int]:
    """Descriptors of our own for some that the agent of the first instance has."""
    presence = presence_of(first.root)
    try:
        opened = [os.open(f"/proc/{presence.pid}/fd/{number}", _FLAGS) for number in numbers] if presence else []
    except OSError as error:
        raise CannotRun(_gone(first), FailureKind.INTERNAL) from error
    if presence is None or not presence.is_alive:  # or these may be descriptors of another process by now
        raise CannotRun(_gone(first), FailureKind.INTERNAL)
    return opened


def _gone(first: InstanceFolder) -> str:
    return f"{first.root.name}, which makes the network of this isolated job, is gone."


def _user_namespace(pid: int) -> int | None:
    """That of a warm worker, whose programs shall be able to enter the network; None when it has just gone."""
    with contextlib.suppress(OSError):
        return os.open(f"/proc/{pid}/ns/user", _FLAGS)
    return None
