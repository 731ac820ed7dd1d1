"""The parts of an engine for clusters, and what a kind of cluster has to provide.

The yard keeps a mirror of each instance's folder: spool, logs and metrics are the same bytes as on the node, so that
every reader reads files of the yard's own machine. On the node an `InstanceRunner` runs one instance, in the same way
as the local engine. The `ClusterProxy` connects the two: it pulls what is new into the mirrors, delivers commands, and
so renews the lease of every instance. An instance whose lease expires ends itself. After that time the yard knows that
nothing of it runs, whatever happened to its node.

A `ClusterBackend` is what a kind of cluster has to provide: its nodes, a reservation for all instances of an attempt or
for none, and access to the runners. `ray` has one; `testing.engines.loopback` has another.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from trainyard.engines.contract import AttemptRef, InstanceRef, Node
from trainyard.foundation.errors import Unavailable
from trainyard.link.contract import Command, InstanceSpec, LimitSpec


class Unreachable(Unavailable):
    """A node, or the runner of an instance there, does not answer. It may be gone, or cut off and still running."""


@dataclass(frozen=True, slots=True)
class InstancePlacement:
    """The node of one instance, and the resources that are reserved for it there."""

    instance: InstanceRef
    node: str
    limits: LimitSpec


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A node of the cluster. Instances on other nodes reach it at `address`.

    `isolation` is a clause that says why an instance there cannot be isolated from every network; empty if it can.
    `joined` changes each time a node of this name joins the cluster.
    """

    node: Node
    address: str
    isolation: str = ""
    joined: str = ""


@dataclass(frozen=True, slots=True)
class FileChunk:
    """Bytes of a file in an instance's folder, from `offset` on. Files there only grow, or are removed as a whole.

    The facts about programs are replaced as a whole; `offset` is their version then, see mirror.py. `path` is relative
    to the folder. `is_removed` says that the file is gone, as when a log exceeds its size limit.
    """

    path: str
    offset: int
    data: bytes
    is_removed: bool = False


@dataclass(frozen=True, slots=True)
class PreparedInstance:
    """An instance whose folder exists. `port` is the master port if it is the first of its job, otherwise 0."""

    port: int
    stamp: str


@dataclass(frozen=True, slots=True)
class PullResult:
    """The answer to a pull.

    `is_alive` was determined before anything was read. `is_all` says that there was nothing more to send; if the
    instance is not alive either, nothing will ever follow. The very last frame is sent only after everything else, so
    that whoever reads it in the mirror finds all that led to it.

    `is_known` says whether the node has the instance at all; a machine that was set up again does not. `has_lost_node`
    says that the instance is dead because its lease expired or its machine was rebooted.
    """

    chunks: Sequence[FileChunk]
    is_alive: bool
    is_all: bool
    is_known: bool = True
    has_lost_node: bool = False
    stamp: str = ""


# Runners of earlier releases pickle their answers under these names, and run on after an upgrade.
Piece = FileChunk
Prepared = PreparedInstance
Pulled = PullResult


class InstanceRunner(Protocol):
    """Runs one instance on its node.

    Every call may come twice, concurrently with another one, and again after the runner itself was restarted. Names of
    methods and arguments are part of the protocol: after an upgrade, a new proxy calls runners of the release before.

    A call may also come late: it may be held up on a broken link, and arrive long after the yard gave the instance up.
    So a lease counts from the last answer that the yard received. Each answer carries a `stamp`, the node's clock in a
    form that only the node reads, and the yard returns the last stamp that it received as `heard`. A lease ends
    `lease_s` after that moment by the node's clock. The yard counts the same time from when it received the answer,
    which was later.
    """

    def prepare(self, spec: InstanceSpec) -> PreparedInstance:
        """Create the instance's folder, and choose the master port if it is the first of its job.

        Raises Unavailable if the node refuses it for now.
        """
        ...

    def start(self, spec: InstanceSpec, *, heard: str) -> None:
        """Start the agent, once and never again, with a lease of `spec.lease_s` after `heard`.

        Raises Conflict if the attempt was ended here, Unavailable if the node refuses it for now or the lease has
        already expired.
        """
        ...

    def pull(
        self, cursors: Mapping[str, int], commands: Sequence[Command], *, wait_s: float, heard: str = ""
    ) -> PullResult:
        """Renew the lease, put new commands into the mailbox, and return what is new.

        `cursors` are the sizes of the files that the yard has, or the versions of those that are replaced. Waits up to
        `wait_s` for something new. A stamp from before the machine's last boot, or an empty one, renews nothing.
        """
        ...

    def end(self, *, patience_s: float) -> None:
        """Do what `Engine.end` promises, for this instance. Raises Unavailable if something does not die in time."""
        ...

    def forget(self) -> None:
        """Remove what is left of the instance on the node, after it was ended and its last byte was pulled."""
        ...

    def part(self, path: str, offset: int) -> bytes:
        """Return what another instance of the job may read of this one, from an offset on; empty at the end.

        This is its `spool`; the tar of `ml/model` and of `ml/output/data`, once its program has ended; its `activity`,
        a JSON object with the seconds since each instance known here was last active; and its `tensors`: the list of
        files that `tensor_sync` describes, for which the offset is a time, and those files.
        """
        ...


class RemoteRunner(Protocol):
    """A runner as the proxy reaches it: the same calls, awaited. Raises Unreachable if the node does not answer."""

    async def call(self, method: str, /, *arguments: Any, timeout_s: float, **options: Any) -> Any: ...


class ClusterBackend(Protocol):
    """One kind of cluster. The proxy calls it on its event loop; any call may raise Unreachable."""

    async def nodes(self) -> Sequence[ClusterNode]:
        """Return the nodes of the cluster. What others than this yard use there is not subtracted."""
        ...

    async def reserve(self, attempt: AttemptRef, placements: Sequence[InstancePlacement]) -> None:
        """Reserve resources for all instances or, if an error is raised, for none. Calling again is fine.

        Raises Unavailable if the nodes do not have the resources after all.
        """
        ...

    async def runners(
        self, attempt: AttemptRef, placements: Sequence[InstancePlacement]
    ) -> Mapping[InstanceRef, RemoteRunner]:
        """Return the runners of instances, started if need be, each on its own node. Raises Unreachable otherwise."""
        ...

    async def release(self, attempt: AttemptRef) -> None:
        """Release the reservation and end the runners."""
        ...

    async def close(self) -> None: ...
