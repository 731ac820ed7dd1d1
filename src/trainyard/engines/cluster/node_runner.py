"""Runs one instance on a node, in the same way as on the yard's own machine.

Everything that matters is in the node's folder, so a runner may be killed and restarted at any moment: the agent keeps
running without it, and only the lease ends it.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from trainyard.engines.cluster.contract import InstanceRunner, PreparedInstance, PullResult
from trainyard.engines.cluster.folder_tar import PART_BYTES, FolderTar
from trainyard.engines.cluster.lease_watchdog import ensure_watchdog
from trainyard.engines.cluster.leftovers import sweep_leftovers
from trainyard.engines.cluster.mirror import collect_update
from trainyard.engines.cluster.node_spec import NodeFacts, NodeFolder, spec_for_node
from trainyard.engines.cluster.sibling_sync import ACTIVITY, RESULT_FOLDERS, SPOOL, SiblingSync
from trainyard.engines.cluster.tensor_sync import NO_TENSORS, TENSORS, TensorFiles
from trainyard.engines.contract import InstanceRef
from trainyard.engines.local import LocalEngine
from trainyard.engines.local.ports import PortAllocator
from trainyard.foundation.confined import remove_tree
from trainyard.foundation.errors import Conflict, InvalidRequest, Unavailable
from trainyard.foundation.files import PRIVATE_FOLDER, replace_file
from trainyard.foundation.hidden_paths import hidden_paths
from trainyard.link.contract import Command, InstanceSpec
from trainyard.link.folders import host_path
from trainyard.link.lease import Lease, stamp, was_ended_by_lease
from trainyard.link.mailbox import Mailbox
from trainyard.link.port_blocks import ports_needed
from trainyard.link.specs import read_spec

PULL_BYTES = 4 << 20

_MIN_POLL_S, _MAX_POLL_S = 0.005, 0.05
# So that a program that prints line by line does not cause one answer per line.
_MIN_ANSWER_INTERVAL_S = 0.02


def node_engine(node: Path, *, python: str = sys.executable) -> LocalEngine:
    """Return the engine for the folder of a node. Its agents outlive this process."""
    folder = NodeFolder(node.absolute())
    return LocalEngine(folder.jobs, folder.agents, python=python, forks=False, orphans=True)


class NodeRunner:
    """Implements `InstanceRunner` in the folder of a node. Safe to share between threads.

    `siblings` returns the runner of another instance of the attempt, given its name and the address of its node.
    `engine` is the engine of the node's folder, which several runners share. `python` runs agents. `gpus` are those
    that the node has given to the instance.
    """

    def __init__(
        self,
        node: Path,
        instance: InstanceRef,
        *,
        siblings: Callable[[str, str], InstanceRunner] | None = None,
        engine: LocalEngine | None = None,
        python: str = sys.executable,
        gpus: Sequence[int] | None = None,
    ) -> None:
        self._node = NodeFolder(node.absolute())
        self._instance = instance
        self._folder = instance.folder(self._node.jobs)
        self._siblings = siblings
        self._python = python
        self._gpus = None if gpus is None else tuple(gpus)
        self._engine = engine or node_engine(node, python=python)
        self._ports = PortAllocator()
        self._lock = threading.Lock()
        self._sibling_sync: SiblingSync | None = None
        self._answered_at = 0.0
        self._cached_spec: InstanceSpec | None = None
        self._tar: tuple[str, FolderTar] | None = None

    def prepare(self, spec: InstanceSpec) -> PreparedInstance:
        try:
            self._node.root.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            # Before the stamp, from which the lease counts.
            self._engine.make_ready()
            self._folder.root.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            port = self._master_port(spec) if spec.instance == spec.hosts[0] else 0
        except OSError as error:
            raise Unavailable(f"{self._instance.attempt}/{self._instance.name} cannot run here: {error}.") from error
        return PreparedInstance(port, stamp())

    def start(self, spec: InstanceSpec, *, heard: str) -> None:
        try:
            self._folder.root.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            self._begin_lease(spec, heard)
            self._engine.start([spec_for_node(spec, self._node_facts())])
        except OSError as error:
            raise Unavailable(f"{self._instance.attempt}/{self._instance.name} cannot start: {error}.") from error
        self._ensure_sibling_sync(spec)
        # If this fails, the next instance tries again.
        with suppress(OSError):
            sweep_leftovers(self._node.jobs, self._engine)

    def pull(
        self, cursors: Mapping[str, int], commands: Sequence[Command], *, wait_s: float, heard: str = ""
    ) -> PullResult:
        if not self._folder.spec.exists():
            return PullResult((), is_alive=False, is_all=True, is_known=self._folder.root.exists(), stamp=stamp())
        spec = self._spec()
        if spec.lease_s:
            Lease.of(self._folder).renew(heard, spec.lease_s)
        for command in commands:
            Mailbox(self._folder.mailbox).copy(command)
        if self._engine.is_alive(self._instance):
            self._ensure_companions(spec)
        return self._wait_for_update(cursors, wait_s)

    def end(self, *, patience_s: float) -> None:
        self._engine.end(self._instance.attempt, patience=timedelta(seconds=patience_s))
        self._ports.release(self._instance.attempt)

    def forget(self) -> None:
        """Remove the instance, but not the mark that the attempt was ended: a late call must not start it again."""
        if self._engine.is_alive(self._instance):
            raise Conflict("instance", f"{self._instance.attempt}/{self._instance.name}", "has not ended here")
        for folder in self._instance.attempt.instances(self._node.jobs):
            # Folders without a spec are copies of instances on other nodes.
            if folder.root == self._folder.root or not folder.spec.exists():
                remove_tree(folder.root)

    def part(self, path: str, offset: int) -> bytes:
        if path == SPOOL:
            return self._spool_part(offset)
        if path == ACTIVITY:
            return json.dumps(self._activity_ages()).encode()
        kind, _, wanted = path.partition("/")
        if kind == TENSORS:
            return self._tensor_part(wanted, offset)
        if path not in RESULT_FOLDERS:
            shared = ", ".join((SPOOL, TENSORS, *RESULT_FOLDERS))
            raise InvalidRequest(f'Other instances cannot read "{path}" of an instance, only {shared}.')
        with self._lock:
            if self._tar is None or self._tar[0] != path:
                self._tar = path, FolderTar(self._folder.root, path)
            return self._tar[1].read(offset)

    def _spec(self) -> InstanceSpec:
        if self._cached_spec is None:
            self._cached_spec = read_spec(self._folder.root)
        return self._cached_spec

    def _master_port(self, spec: InstanceSpec) -> int:
        """Return the port in the spec, or the one chosen before, or choose one."""
        port_file = self._folder.root / "port"
        with self._lock:
            if not spec.master_port and not port_file.exists():
                port = self._ports.allocate(self._instance.attempt, ports_needed(len(spec.hosts)))
                replace_file(port_file, str(port).encode())
            return spec.master_port or int(port_file.read_text())

    def _begin_lease(self, spec: InstanceSpec, heard: str) -> None:
        if not spec.lease_s:
            return
        if not Lease.of(self._folder).renew(heard, spec.lease_s):
            raise Unavailable(
                f"The lease of {self._instance.attempt}/{self._instance.name} expired before it was started."
            )
        ensure_watchdog(self._folder, python=self._python)

    def _node_facts(self) -> NodeFacts:
        return NodeFacts(
            self._node,
            self._python,
            is_root=os.geteuid() == 0,
            hidden=hidden_paths(self._node.root),
            exists=os.path.exists,
            gpus=self._gpus,
        )

    def _ensure_companions(self, spec: InstanceSpec) -> None:
        """Start again what `start` did: this runner may be new, and the watchdog may have been killed."""
        if spec.lease_s:
            # If this fails, the next pull tries again.
            with suppress(OSError):
                ensure_watchdog(self._folder, python=self._python)
        self._ensure_sibling_sync(spec)

    def _ensure_sibling_sync(self, spec: InstanceSpec) -> None:
        if self._siblings is None or not SiblingSync.is_needed(spec):
            return
        with self._lock:
            if self._sibling_sync is None or not self._sibling_sync.is_alive:
                self._sibling_sync = SiblingSync(self._node.jobs, spec, self._sibling_part, is_over=self._has_ended)
                self._sibling_sync.start()

    def _sibling_part(self, name: str, path: str, offset: int) -> bytes:
        assert self._siblings is not None, "nothing is copied where there are no siblings"
        spec = self._spec()
        return self._siblings(name, spec.addresses[tuple(spec.hosts).index(name)]).part(path, offset)

    def _has_ended(self) -> bool:
        return not self._engine.is_alive(self._instance)

    def _wait_for_update(self, cursors: Mapping[str, int], wait_s: float) -> PullResult:
        deadline = time.monotonic() + wait_s
        pause_s = min(max(_MIN_POLL_S, self._answered_at + _MIN_ANSWER_INTERVAL_S - time.monotonic()), wait_s)
        while True:
            time.sleep(min(pause_s, max(0.0, deadline - time.monotonic())))
            # Determined before anything is read, as PullResult says.
            is_alive = self._engine.is_alive(self._instance)
            update = collect_update(self._folder, cursors, limit_bytes=PULL_BYTES)
            if update.chunks or not is_alive or time.monotonic() >= deadline:
                break
            pause_s = min(pause_s * 2, _MAX_POLL_S)
        self._answered_at = time.monotonic()
        has_lost_node = not is_alive and was_ended_by_lease(self._folder)
        return PullResult(update.chunks, is_alive, update.is_all, has_lost_node=has_lost_node, stamp=stamp())

    def _spool_part(self, offset: int) -> bytes:
        try:
            with self._folder.spool.open("rb", buffering=0) as file:
                data = os.pread(file.fileno(), PART_BYTES, offset)
        except FileNotFoundError:
            return b""
        return data[: data.rfind(b"\n") + 1]

    def _tensor_part(self, wanted: str, offset: int) -> bytes:
        if not self._folder.spec.exists() or (debugger := self._spec().debugger) is None:
            return b"" if wanted else NO_TENSORS
        files = TensorFiles(*host_path(self._folder, self._spec(), debugger.tensors.path))
        return files.read(wanted, offset) if wanted else files.list_changed(offset)

    def _activity_ages(self) -> dict[str, float]:
        """Return the seconds since each instance that is known here was last active."""
        marks = [folder.activity for folder in self._instance.attempt.instances(self._node.jobs)]
        return {mark.parent.name: time.time() - mark.stat().st_mtime for mark in marks if mark.exists()}
