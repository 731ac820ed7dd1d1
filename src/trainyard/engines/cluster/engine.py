"""The engine of a cluster: its instances run on nodes, and it reads their reports from mirrors on this machine."""

import logging
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from trainyard.engines.cluster.attempt_register import AttemptRegister
from trainyard.engines.cluster.contract import ClusterNode
from trainyard.engines.cluster.proxy import ended_marker
from trainyard.engines.cluster.proxy_supervisor import ProxyLauncher, ProxySupervisor
from trainyard.engines.cluster.remote_state import RemoteState, read_remote_state
from trainyard.engines.contract import AttemptRef, Capabilities, Capacity, InstanceRef, SpoolRead, refs_of
from trainyard.foundation.errors import Conflict, InvalidRequest, NotFound, Unavailable
from trainyard.foundation.files import PRIVATE_FOLDER
from trainyard.link.contract import Command, CommandKind, InstanceSpec
from trainyard.link.mailbox import Mailbox
from trainyard.link.specs import write_spec
from trainyard.link.spool import read_frames

log = logging.getLogger(__name__)

_NODES_INTERVAL_S = 1.0
_NODES_TIMEOUT_S = 5.0
_START_TIMEOUT_S = 120.0
_NOTIFY_TIMEOUT_S = 5.0
_READY_TIMEOUT_S = 60.0
# What the end of an attempt may take beyond its patience: a runner may have to be started for it.
_END_MARGIN_S = 30.0


@dataclass(frozen=True, slots=True)
class _NodeSnapshot:
    """The nodes as last seen, and why the cluster cannot be reached now, if so."""

    nodes: tuple[ClusterNode, ...]
    obstacle: str


class ClusterEngine:
    """Runs instances on the nodes of a cluster, through the proxy that `launch` starts.

    `jobs` has the mirrors; `folder` is the engine's own. An instance that hears nothing from the yard for the time of
    `lease` ends itself. Reports come from the mirror, whether the cluster can be reached or not.
    """

    is_here = False

    def __init__(
        self, name: str, launch: ProxyLauncher, *, jobs: Path, folder: Path, lease: timedelta = timedelta(minutes=3)
    ) -> None:
        self.name = name
        self._jobs = jobs
        self._lease = lease
        self._register = AttemptRegister.of(folder)
        self._proxy = ProxySupervisor(launch)
        self._seen = _NodeSnapshot((), f"The cluster of the engine {name} has not been reached yet.")
        self._is_closing = threading.Event()
        self._watch: threading.Thread | None = None
        self._lock = threading.Lock()

    def make_ready(self) -> None:
        self._begin()
        if not self._proxy.wait(_READY_TIMEOUT_S):
            raise Unavailable(self._seen.obstacle)
        self._update_nodes(timeout_s=_READY_TIMEOUT_S)
        if self._seen.obstacle:
            raise Unavailable(self._seen.obstacle)

    def capacity(self) -> Capacity:
        self._begin()
        seen = self._seen
        nodes = (replace(each.node, address=each.address) for each in seen.nodes)
        return Capacity(tuple(replace(node, slots=0) if seen.obstacle else node for node in nodes), seen.obstacle)

    def why_not_isolated(self, instances: int) -> str:
        if instances > 1:
            return "its instances may run on several nodes, which have no private network between them"
        self._begin()
        seen = self._seen
        if not seen.nodes:
            return "the cluster has no node at the moment"
        return next((each.isolation for each in seen.nodes if each.isolation), "")

    def capabilities(self) -> Capabilities:
        return Capabilities()

    def start(self, specs: Sequence[InstanceSpec]) -> tuple[InstanceRef, ...]:
        refs = refs_of(specs)
        attempt = refs[0].attempt
        for spec in specs:
            if not spec.node:
                raise InvalidRequest(f"Instance {spec.instance} of {attempt} has no node of the cluster.")
        if ended_marker(self._jobs, attempt).exists():
            raise Conflict("attempt", str(attempt), "was ended and cannot be started again")
        self._begin()
        try:
            for ref, spec in zip(refs, specs, strict=True):
                self._write_spec(ref, spec)
        except OSError as error:
            raise Unavailable(f"The instances of {attempt} cannot be started: {error}.") from error
        in_order = sorted(specs, key=lambda spec: tuple(spec.hosts).index(spec.instance))
        try:
            self._proxy.client.start(attempt, [spec.instance for spec in in_order], timeout_s=_START_TIMEOUT_S)
        except Unavailable:
            # A node may have left, and the next attempt must not be placed there.
            self._update_nodes(timeout_s=_NODES_TIMEOUT_S)
            raise
        return refs

    def reports(self, instance: InstanceRef, offset: int) -> SpoolRead:
        return read_frames(instance.folder(self._jobs).spool, offset)

    def command(self, instance: InstanceRef, kind: CommandKind, payload: Mapping[str, Any] | None = None) -> Command:
        folder = instance.folder(self._jobs)
        if not folder.spec.exists():
            raise NotFound("instance", f"{instance.attempt}/{instance.name}")
        command = Mailbox(folder.mailbox).put(kind, payload)
        self._begin()
        # If this fails, the proxy finds the command in the mailbox.
        with suppress(Unavailable):
            self._proxy.client.notify_command(instance, timeout_s=_NOTIFY_TIMEOUT_S)
        return command

    def is_alive(self, instance: InstanceRef) -> bool:
        self._begin()
        state = read_remote_state(instance.folder(self._jobs))
        return state is not None and state.may_run

    def has_lost_node(self, instance: InstanceRef) -> bool:
        return read_remote_state(instance.folder(self._jobs)) is RemoteState.NODE_LOST

    def end(self, attempt: AttemptRef, *, patience: timedelta = timedelta(seconds=10)) -> None:
        if ended_marker(self._jobs, attempt).exists() and not self._register.has(attempt):
            return
        self._begin()
        patience_s = patience.total_seconds()
        self._proxy.client.end(attempt, patience_s=patience_s, timeout_s=patience_s + _END_MARGIN_S)

    def close(self) -> None:
        self._is_closing.set()
        self._proxy.close()
        if self._watch is not None:
            self._watch.join()

    def _begin(self) -> None:
        """Start the proxy on first use. An engine that is never used starts nothing."""
        if self._watch is not None or self._is_closing.is_set():
            return
        with self._lock:
            if self._watch is None:
                self._proxy.start()
                self._watch = threading.Thread(target=self._watch_nodes, name=f"{self.name}-nodes", daemon=True)
                self._watch.start()

    def _watch_nodes(self) -> None:
        while not self._is_closing.is_set():
            self._update_nodes(timeout_s=_NODES_TIMEOUT_S)
            self._is_closing.wait(_NODES_INTERVAL_S)

    def _update_nodes(self, *, timeout_s: float) -> None:
        try:
            self._seen = _NodeSnapshot(self._proxy.client.nodes(timeout_s=timeout_s), "")
        except Unavailable as error:
            self._seen = _NodeSnapshot(self._seen.nodes, error.message)

    def _write_spec(self, ref: InstanceRef, spec: InstanceSpec) -> None:
        """Write the spec for the proxy. One that is already there stays: it has more, such as the master port."""
        folder = ref.folder(self._jobs)
        if not folder.spec.exists():
            folder.root.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            lease_s = spec.lease_s or max(1, int(self._lease.total_seconds()))
            write_spec(folder.root, replace(spec, lease_s=lease_s))
