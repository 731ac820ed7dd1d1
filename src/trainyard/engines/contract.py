"""Where instances run.

`Engine` is the seam between the yard and the machines. Each must pass `trainyard.testing.engines.EngineContract`. An
engine decides nothing about jobs: what is started when, on which node, with which share, and what a report means for
the job is for the yard to say.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol, Self

from trainyard.foundation.errors import InvalidRequest
from trainyard.link.contract import Command, CommandKind, InstanceSpec
from trainyard.link.folders import AttemptRef, InstanceRef
from trainyard.link.spool import Read

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

__all__ = ["AttemptRef", "Capabilities", "Capacity", "Engine", "InstanceRef", "Node", "Read", "refs_of"]


@dataclass(frozen=True, slots=True)
class Node:
    """A machine on which instances are placed.

    `slots` is how many instances run there at once; `gpus` are the indexes of its GPUs. Where it `reserves`, cores and
    memory are handed out so that no two instances have the same ones; otherwise instances share them below ceilings.
    """

    name: str  # unique in its engine; stays the same when the machine leaves and comes back
    slots: int
    cpus: float
    memory_bytes: int
    gpus: tuple[int, ...] = ()
    reserves: bool = False
    is_spot: bool = False  # may be taken away at any moment, so that only spot jobs are placed there
    address: str = ""  # by which other machines reach it; empty on the yard's own machine


@dataclass(frozen=True, slots=True)
class Capacity:
    """What all jobs together can have, node by node."""

    nodes: tuple[Node, ...]
    obstacle: str = ""  # why nothing can be placed for now, as a sentence; the nodes are then those last seen, slotless

    @classmethod
    def of_machine(cls, slots: int, cpus: float, memory_bytes: int, gpus: tuple[int, ...] = ()) -> Self:
        """One machine, which instances share."""
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
    """What an engine does for jobs. Each is empty where it does, and otherwise a clause that says why not."""

    limits: str = ""  # shares of cores and memory are enforced
    gpus: str = ""  # an instance sees the GPUs that it was given and no others
    warm_workers: str = ""  # programs start from interpreters that are kept
    several_nodes: str = ""  # the instances of one job may lie on several machines
    images: str = "the engine runs programs in the environments that images are mapped to"  # images really run


def refs_of(specs: Sequence[InstanceSpec]) -> tuple[InstanceRef, ...]:
    """The instances that specs describe.

    InvalidRequest when they are not those of one attempt, each once, or their names cannot be those of folders.
    """
    refs = tuple(map(InstanceRef.of, specs))
    if len({ref.attempt for ref in refs}) != 1 or len(set(refs)) != len(refs):
        raise InvalidRequest("Started together are the instances of one attempt, each once.")
    for name in (refs[0].attempt.job_id, *(ref.name for ref in refs)):
        if not _PLAIN_NAME.fullmatch(name):
            raise InvalidRequest(f'"{name}" cannot be the name of a folder of its own.')
    return refs


class Engine(Protocol):
    """Starts agents, carries their reports and commands, and ends them for good.

    Every call blocks and may be made from any thread. Nothing that matters is kept in memory: an engine made anew,
    after the yard was killed at any moment, goes on with the instances that an earlier one started. Calls for
    different attempts never wait for each other longer than it takes to write a few files; `end` may.
    """

    @property
    def name(self) -> str:
        """How users know this engine: local, ray …"""
        ...

    @property
    def is_here(self) -> bool:
        """Whether its instances run on the yard's own machine, of which all such engines of a yard give the same."""
        ...

    def make_ready(self) -> None:
        """Do now what the first start would otherwise wait for; Unavailable when it cannot be done."""
        ...

    def capacity(self) -> Capacity:
        """What there is in all, in use or not. It may change from one call to the next."""
        ...

    def why_not_isolated(self, instances: int) -> str:
        """Why a job of so many instances cannot be cut off from every network, as a clause; empty when it can be."""
        ...

    def capabilities(self) -> Capabilities:
        """What it does for jobs. It may change from one call to the next."""
        ...

    def start(self, specs: Sequence[InstanceSpec]) -> tuple[InstanceRef, ...]:
        """Start one agent for each instance of one attempt: all of them or, when an error is raised, none.

        `specs` are all instances of the attempt. Asked again for the same attempt it starts what was not started
        yet and leaves alone what was, running or not: an instance never starts twice. When this returns, each agent is
        alive or has left its last report. Specs without a master port get one, all the same: the first of
        `link.port_blocks.ports_of` in a row that are free where the first instance runs and that no other attempt
        there has. Conflict when the attempt was ended. Unavailable when the machine refuses a
        process or a file for now: then the attempt is ended, and the next try is another attempt.
        """
        ...

    def reports(self, instance: InstanceRef, offset: int) -> Read:
        """The frames after `offset`, which is 0 at first and then the `next_offset` of the last read.

        Reading takes nothing away. No frames when there is nothing new, or the instance was never started.
        """
        ...

    def command(self, instance: InstanceRef, kind: CommandKind, payload: Mapping[str, Any] | None = None) -> Command:
        """Leave a command for the agent, which may be gone or may not have started to listen. NotFound when unknown."""
        ...

    def is_alive(self, instance: InstanceRef) -> bool:
        """Whether the agent still runs; False for good once it does not, and for an instance never started.

        An instance that is not alive and whose reports, read after that was found out, do not close with an ENDED
        frame, is lost.
        """
        ...

    def was_taken(self, instance: InstanceRef) -> bool:
        """Whether an instance was lost because its node went away, and not by a fault of its own."""
        ...

    def end(self, attempt: AttemptRef, *, patience: timedelta = timedelta(seconds=10)) -> None:
        """Make sure that nothing of the attempt runs or is left behind, and that nothing of it ever starts again.

        An agent that has left its ENDED frame is given a moment to go by itself; every other is killed, and so is all
        it started. When this returns, their death is proven. The reports, logs and metrics stay. Unavailable when
        something does not die within `patience`; then ask again. Asking again, or for an attempt never started, is
        fine.
        """
        ...

    def close(self) -> None:
        """Let go of connections and of processes that help; every instance runs on. Nothing is asked after that."""
        ...
