"""What lies between a yard and the nodes of a cluster.

The yard keeps a mirror of each instance's folder: spool, logs and metrics are the same bytes as on the node, so that
whatever reads them reads files of the yard's own machine. On the node a `Keeper` looks after one instance, by the same
means as the local engine. Between the two goes the `Ferry`: it pulls what is new into the mirrors, takes the commands
along, and renews the lease of every instance by doing so. An instance whose lease runs out ends itself, so that after
that time the yard knows that nothing of it runs, whatever became of its node.

A `Cluster` is what a kind of cluster has to bring: which nodes there are, room that is reserved on them for all
instances of an attempt or for none, and a way to the keepers. `ray` is one; `testing.engines.loopback` another.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from trainyard.engines.contract import AttemptRef, InstanceRef, Node
from trainyard.foundation.errors import Unavailable
from trainyard.link.contract import Command, InstanceSpec, LimitSpec


class Unreachable(Unavailable):
    """A node, or what looks after an instance there, does not answer. It may be gone, or cut off and running on."""


@dataclass(frozen=True, slots=True)
class Seat:
    """The room for one instance on a node."""

    instance: InstanceRef
    node: str
    limits: LimitSpec


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A node that is there now. `address` is the one by which instances on other nodes reach it."""

    node: Node
    address: str
    isolation: str = ""  # why an instance there cannot be cut off from every network, as a clause; empty where it can
    joined: str = ""  # other words each time that the node of this name has joined the cluster


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes that a file of an instance's folder has from `offset` on. Files there only ever grow, or go as a whole."""

    path: str  # below the folder
    offset: int
    data: bytes
    is_removed: bool = False  # the file is gone: a segment of a log that passed its limit


@dataclass(frozen=True, slots=True)
class Prepared:
    """An instance that is laid out. `port` is the master's where it is the first of its job, and 0 otherwise."""

    port: int
    stamp: str


@dataclass(frozen=True, slots=True)
class Pulled:
    """What a pull brought. Of an instance that is not alive and `is_all`, nothing more will ever come.

    Whether it is alive was asked before anything was read. The last frame of all comes only when all else is in the
    mirror or among the pieces before it: who reads it there finds all that led to it.
    """

    pieces: Sequence[Piece]
    is_alive: bool
    is_all: bool  # there was nothing more to bring when it was asked
    is_known: bool = True  # whether the node has the instance at all; a machine that was set up anew has not
    was_taken: bool = False  # it is not alive because its lease ran out or its machine was started anew
    stamp: str = ""


class Keeper(Protocol):
    """One instance, on its node.

    Every call may come twice, while another one goes on, and again after the keeper itself was started anew.

    A call may also come late: it may lie on a link that was cut, and arrive when the yard has long given the instance
    up. So a lease counts from the last answer that the yard has had. Each answer carries a `stamp`, the node's clock
    in the node's own words, and the yard hands back as `heard` the last one that it got. A lease ends `lease_s` after
    what was heard, on the node's clock; the yard counts the same time from when it got that answer, which was later.
    """

    def prepare(self, spec: InstanceSpec) -> Prepared:
        """Lay out the instance, and choose the master port where it is the first of its job.

        Unavailable when the node refuses it for now.
        """
        ...

    def start(self, spec: InstanceSpec, *, heard: str) -> None:
        """Start the agent, once and for all, with a lease of `spec.lease_s` after `heard`.

        Conflict when the attempt was ended here, Unavailable when the node refuses it for now, or when that lease has
        run out already.
        """
        ...

    def pull(
        self, cursors: Mapping[str, int], commands: Sequence[Command], *, wait_s: float, heard: str = ""
    ) -> Pulled:
        """Renew the lease, put commands into the mailbox that are not there yet, and bring what is new.

        `cursors` are the sizes of the files that the yard has. Waits up to `wait_s` for something to bring. Nothing is
        renewed by what was heard before the machine was started, nor by nothing.
        """
        ...

    def end(self, *, patience_s: float) -> None:
        """What `Engine.end` says, for this instance on this node. Unavailable when something does not die in time."""
        ...

    def forget(self) -> None:
        """Remove what is left of the instance on the node, once its last byte was pulled and it was ended."""
        ...

    def part(self, path: str, offset: int) -> bytes:
        """What another instance of the job may have of this one, from an offset on; empty at its end.

        That is its spool, as it stands; the tar of `ml/model` and of `ml/output/data`, once its program has ended; its
        `activity`: a JSON object of instances, with the seconds since each did anything that is known here; and of its
        `tensors` what the module of that name tells, where the offset is a moment, and the files that are told of.
        """
        ...


class RemoteKeeper(Protocol):
    """A keeper as the ferry reaches it: the same calls, awaited. Unreachable when the node does not answer in time."""

    async def call(self, method: str, /, *arguments: Any, timeout_s: float, **options: Any) -> Any: ...


class Cluster(Protocol):
    """One kind of cluster. Calls are made on the loop of the ferry; any may raise Unreachable."""

    async def nodes(self) -> Sequence[ClusterNode]:
        """Those that are there, by their names. What others than this yard use of them is not counted."""
        ...

    async def reserve(self, attempt: AttemptRef, seats: Sequence[Seat]) -> None:
        """Make room for all instances or, when an error is raised, for none; asked again it is fine.

        Unavailable when there is not that room after all.
        """
        ...

    async def keepers(self, attempt: AttemptRef, seats: Sequence[Seat]) -> Mapping[InstanceRef, RemoteKeeper]:
        """The keepers of instances, started where need be; each on the node of its seat, or it is Unreachable."""
        ...

    async def release(self, attempt: AttemptRef) -> None:
        """Give the room back, and end the keepers."""
        ...

    async def close(self) -> None: ...
