"""The engine of a cluster: its instances run on nodes, and what it tells of them lies in mirrors on this machine."""

import logging
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from trainyard.engines.cluster.contract import ClusterNode
from trainyard.engines.cluster.crew import Crew, Launch
from trainyard.engines.cluster.ferry import ended_file
from trainyard.engines.cluster.register import Register
from trainyard.engines.cluster.standing import Standing, standing_of
from trainyard.engines.contract import AttemptRef, Capabilities, Capacity, InstanceRef, Read, refs_of
from trainyard.foundation.errors import Conflict, InvalidRequest, NotFound, Unavailable
from trainyard.foundation.files import PRIVATE_FOLDER
from trainyard.link.contract import Command, CommandKind, InstanceSpec
from trainyard.link.mailbox import Mailbox
from trainyard.link.specs import write_spec
from trainyard.link.spool import read_frames

log = logging.getLogger(__name__)

_ASKED_EVERY_S = 1.0  # for the nodes
_NODES_S = 5.0
_START_S = 120.0
_TELL_S = 5.0
_READY_S = 60.0
_BEYOND_PATIENCE_S = 30.0  # that the end of an attempt may take: a keeper may have to be started for it


@dataclass(frozen=True, slots=True)
class _Seen:
    """The nodes as they were seen last, and why they are not seen now."""

    nodes: tuple[ClusterNode, ...]
    obstacle: str


class ClusterEngine:
    """Runs instances on the nodes of a cluster, through the ferry that `launch` starts.

    `jobs` has the mirrors; `folder` is the engine's own. Without a word of the yard an instance ends itself after
    `lease`. What is told of an instance comes from its mirror, whether the cluster is there or not.
    """

    is_here = False

    def __init__(
        self, name: str, launch: Launch, *, jobs: Path, folder: Path, lease: timedelta = timedelta(minutes=3)
    ) -> None:
        self.name = name
        self._jobs = jobs
        self._lease = lease
        self._register = Register.of(folder)
        self._crew = Crew(launch)
        self._seen = _Seen((), f"The cluster of the engine {name} has not been reached yet.")
        self._is_closing = threading.Event()
        self._watch: threading.Thread | None = None
        self._lock = threading.Lock()

    def make_ready(self) -> None:
        self._begin()
        if not self._crew.wait(_READY_S):
            raise Unavailable(self._seen.obstacle)
        self._look(timeout_s=_READY_S)
        if self._seen.obstacle:
            raise Unavailable(self._seen.obstacle)

    def capacity(self) -> Capacity:
        self._begin()
        seen = self._seen
        nodes = (replace(each.node, address=each.address) for each in seen.nodes)
        return Capacity(tuple(replace(node, slots=0) if seen.obstacle else node for node in nodes), seen.obstacle)

    def why_not_isolated(self, instances: int) -> str:
        if instances > 1:
            return "its instances may lie on several nodes, between which there is no network that is theirs alone"
        self._begin()
        seen = self._seen
        if not seen.nodes:
            return "the cluster has no node now that could be asked"
        return next((each.isolation for each in seen.nodes if each.isolation), "")

    def capabilities(self) -> Capabilities:
        return Capabilities()

    def start(self, specs: Sequence[InstanceSpec]) -> tuple[InstanceRef, ...]:
        refs = refs_of(specs)
        attempt = refs[0].attempt
        for spec in specs:
            if not spec.node:
                raise InvalidRequest(f"Instance {spec.instance} of {attempt} is placed on no node of the cluster.")
        if ended_file(self._jobs, attempt).exists():
            raise Conflict("attempt", str(attempt), "was ended and cannot be started again")
        self._begin()
        try:
            for ref, spec in zip(refs, specs, strict=True):
                self._lay_out(ref, spec)
        except OSError as error:
            raise Unavailable(f"The instances of {attempt} cannot be started: {error}.") from error
        in_order = sorted(specs, key=lambda spec: tuple(spec.hosts).index(spec.instance))
        try:
            self._crew.caller.start(attempt, [spec.instance for spec in in_order], timeout_s=_START_S)
        except Unavailable:
            self._look(timeout_s=_NODES_S)  # for a node may have gone, which the next attempt must not be placed on
            raise
        return refs

    def reports(self, instance: InstanceRef, offset: int) -> Read:
        return read_frames(instance.folder(self._jobs).spool, offset)

    def command(self, instance: InstanceRef, kind: CommandKind, payload: Mapping[str, Any] | None = None) -> Command:
        folder = instance.folder(self._jobs)
        if not folder.spec.exists():
            raise NotFound("instance", f"{instance.attempt}/{instance.name}")
        command = Mailbox(folder.mailbox).put(kind, payload)
        self._begin()
        with suppress(Unavailable):  # then the ferry finds it in the mailbox
            self._crew.caller.tell(instance, timeout_s=_TELL_S)
        return command

    def is_alive(self, instance: InstanceRef) -> bool:
        self._begin()
        standing = standing_of(instance.folder(self._jobs))
        return standing is not None and standing.may_run

    def was_taken(self, instance: InstanceRef) -> bool:
        return standing_of(instance.folder(self._jobs)) is Standing.TAKEN

    def end(self, attempt: AttemptRef, *, patience: timedelta = timedelta(seconds=10)) -> None:
        if ended_file(self._jobs, attempt).exists() and not self._register.has(attempt):
            return
        self._begin()
        patience_s = patience.total_seconds()
        self._crew.caller.end(attempt, patience_s=patience_s, timeout_s=patience_s + _BEYOND_PATIENCE_S)

    def close(self) -> None:
        self._is_closing.set()
        self._crew.close()
        if self._watch is not None:
            self._watch.join()

    def _begin(self) -> None:
        """Start what goes to the cluster, unless it was; an engine that is made and not used starts nothing."""
        if self._watch is not None or self._is_closing.is_set():
            return
        with self._lock:
            if self._watch is None:
                self._crew.start()
                self._watch = threading.Thread(target=self._watch_nodes, name=f"{self.name}-nodes", daemon=True)
                self._watch.start()

    def _watch_nodes(self) -> None:
        while not self._is_closing.is_set():
            self._look(timeout_s=_NODES_S)
            self._is_closing.wait(_ASKED_EVERY_S)

    def _look(self, *, timeout_s: float) -> None:
        try:
            self._seen = _Seen(self._crew.caller.nodes(timeout_s=timeout_s), "")
        except Unavailable as error:
            self._seen = _Seen(self._seen.nodes, error.message)

    def _lay_out(self, ref: InstanceRef, spec: InstanceSpec) -> None:
        """Leave the spec for the ferry, unless that was done: then it says more, such as the master port."""
        folder = ref.folder(self._jobs)
        if not folder.spec.exists():
            folder.root.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            lease_s = spec.lease_s or max(1, int(self._lease.total_seconds()))
            write_spec(folder.root, replace(spec, lease_s=lease_s))
