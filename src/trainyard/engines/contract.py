"""Where instances run.

`Engine` is the seam between the yard and the machines. Every engine must pass
`trainyard.testing.engines.EngineContract`. Engines decide nothing about jobs: the yard decides what starts when, on
which node and with which share, and what a report means for the job.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol, Self

from trainyard.foundation.errors import InvalidRequest
from trainyard.link.contract import Command, CommandKind, InstanceSpec
from trainyard.link.folders import AttemptRef, InstanceRef
from trainyard.link.spool import SpoolRead

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

__all__ = ["AttemptRef", "Capabilities", "Capacity", "Engine", "InstanceRef", "Node", "SpoolRead", "refs_of"]


@dataclass(frozen=True, slots=True)
class Node:
    """A machine on which instances are placed.

    `name` is unique in its engine, and stays the same when the machine leaves and comes back. `slots` is how many
    instances run there at once; `gpus` are the indexes of its GPUs. If it `reserves`, each instance gets cores and
    memory of its own; otherwise instances share them, each up to its limit. A spot node may go away at any moment, so
    only spot jobs run there. Other machines reach it at `address`, which is empty on the yard's own machine.
    """

    name: str
    slots: int
    cpus: float
    memory_bytes: int
    gpus: tuple[int, ...] = ()
    reserves: bool = False
    is_spot: bool = False
    address: str = ""


@dataclass(frozen=True, slots=True)
class Capacity:
    """What an engine has for all jobs together, node by node.

    `obstacle` is a sentence that says why nothing can be placed for now. The nodes are then the last known ones,
    without slots.
    """

    nodes: tuple[Node, ...]
    obstacle: str = ""

    @classmethod
    def of_machine(cls, slots: int, cpus: float, memory_bytes: int, gpus: tuple[int, ...] = ()) -> Self:
        """Return the capacity of one machine that instances share."""
        return cls((Node("", slots, cpus, memory_bytes, gpus),))

    @property
    def slots(self) -> int:
        return sum(node.slots for node in self.nodes)

    @property
    def cpus(self) -> float:
        return sum(node.cpus for node in self.nodes)

    @property
    def memory_bytes(self) -> int:
        return sum(node.memory_bytes for node in self.nodes)

    @property
    def gpus(self) -> tuple[int, ...]:
        return tuple(gpu for node in self.nodes for gpu in node.gpus)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do for jobs. A field is empty if it can, otherwise a clause that says why not.

    `limits`: shares of cores and memory are enforced. `gpus`: an instance sees the GPUs of its share and no others.
    `warm_workers`: programs start in interpreters that are kept warm. `several_nodes`: the instances of one job may
    run on several machines. `images`: jobs run in the real container image.
    """

    limits: str = ""
    gpus: str = ""
    warm_workers: str = ""
    several_nodes: str = ""
    images: str = "the engine runs programs in the environments that images are mapped to"


def refs_of(specs: Sequence[InstanceSpec]) -> tuple[InstanceRef, ...]:
    """Return the instances that specs describe.

    Raises InvalidRequest unless they belong to one attempt, each occurs once, and their names can name folders.
    """
    refs = tuple(map(InstanceRef.of, specs))
    if len({ref.attempt for ref in refs}) != 1 or len(set(refs)) != len(refs):
        raise InvalidRequest("Only instances of one attempt start together, and each of them once.")
    for name in (refs[0].attempt.job_id, *(ref.name for ref in refs)):
        if not _PLAIN_NAME.fullmatch(name):
            raise InvalidRequest(f'"{name}" cannot be the name of a folder.')
    return refs


class Engine(Protocol):
    """Starts agents, carries their reports and commands, and ends them for good.

    Every call blocks and is safe from any thread. Nothing that matters is kept only in memory: after the yard is
    killed at any moment, a new engine takes over the instances that an earlier one started. Calls for different
    attempts never wait for each other longer than it takes to write a few files, except for `end`.
    """

    @property
    def name(self) -> str:
        """The name by which users know this engine: local, ray …"""
        ...

    @property
    def is_here(self) -> bool:
        """Whether its instances run on the yard's own machine. All such engines of a yard share its capacity."""
        ...

    def make_ready(self) -> None:
        """Do now what the first start would otherwise wait for. Raises Unavailable if that fails."""
        ...

    def capacity(self) -> Capacity:
        """Return the total capacity, in use or not. It may change between calls."""
        ...

    def why_not_isolated(self, instances: int) -> str:
        """Return a clause that says why a job of that many instances cannot be isolated from every network, or ""."""
        ...

    def capabilities(self) -> Capabilities:
        """Return what the engine can do for jobs. It may change between calls."""
        ...

    def start(self, specs: Sequence[InstanceSpec]) -> tuple[InstanceRef, ...]:
        """Start one agent for each instance of one attempt: all of them or, if an error is raised, none.

        `specs` are all instances of the attempt. A second call for the same attempt starts only what has not been
        started, running or not: an instance never starts twice. When this returns, each agent is alive or has left its
        last report. Specs without a master port all get the same one: the first of `link.port_blocks.ports_of`
        consecutive ports that are free where the first instance runs and that no other attempt has there.

        Raises Conflict if the attempt was ended. Raises Unavailable if the machine refuses a process or a file for
        now; the attempt is then ended, and the next try is another attempt.
        """
        ...

    def reports(self, instance: InstanceRef, offset: int) -> SpoolRead:
        """Return the frames after `offset`, which is 0 at first and then the `next_offset` of the last read.

        Reading removes nothing. There are no frames if nothing is new, or if the instance was never started.
        """
        ...

    def command(self, instance: InstanceRef, kind: CommandKind, payload: Mapping[str, Any] | None = None) -> Command:
        """Leave a command for the agent, which may be gone or not listen yet. Raises NotFound if unknown."""
        ...

    def is_alive(self, instance: InstanceRef) -> bool:
        """Whether the agent still runs. Once False, or for an instance never started, it stays False.

        An instance is lost if it is not alive and its reports, read after that, do not end with an ENDED frame.
        """
        ...

    def has_lost_node(self, instance: InstanceRef) -> bool:
        """Whether an instance was lost because its node went away, not through a fault of its own."""
        ...

    def end(self, attempt: AttemptRef, *, patience: timedelta = timedelta(seconds=10)) -> None:
        """Make sure that nothing of the attempt runs or is left behind, and that none of it ever starts again.

        An agent that has left its ENDED frame gets a moment to exit by itself. Any other is killed with everything it
        started. When this returns, they are proven dead. Reports, logs and metrics stay. Raises Unavailable if
        something does not die within `patience`; then call again. Calling again is always fine, and so is a call for an
        attempt that was never started.
        """
        ...

    def close(self) -> None:
        """Close connections and end helper processes; instances keep running. No other call may follow."""
        ...
