"""The side of the node: one instance, run by the same means as on the yard's own machine.

Everything that matters lies in the node's folder, so that a keeper may be killed and made anew at any moment: the agent
runs on without it, and only the lease ends it.
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

from trainyard.engines.cluster.bringing import ACTIVITY, LEFT, SPOOL, Bringing
from trainyard.engines.cluster.contract import Keeper, Prepared, Pulled
from trainyard.engines.cluster.leftovers import sweep_leftovers
from trainyard.engines.cluster.localising import NodeFolder, Surroundings, localise
from trainyard.engines.cluster.mirror import news
from trainyard.engines.cluster.parts import PART_BYTES, FolderTar
from trainyard.engines.cluster.tensors import NO_TENSORS, TENSORS, TensorFiles
from trainyard.engines.cluster.warden import ensure_warden
from trainyard.engines.contract import InstanceRef
from trainyard.engines.local import LocalEngine
from trainyard.engines.local.ports import Ports
from trainyard.foundation.confined import remove_tree
from trainyard.foundation.errors import Conflict, InvalidRequest, Unavailable
from trainyard.foundation.files import PRIVATE_FOLDER, replace_file
from trainyard.foundation.hiding import hidden_places
from trainyard.link.contract import Command, InstanceSpec
from trainyard.link.lease import Lease, stamp, was_taken
from trainyard.link.mailbox import Mailbox
from trainyard.link.places import place_of
from trainyard.link.port_blocks import ports_of
from trainyard.link.specs import read_spec

PULL_BYTES = 4 << 20

_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.005, 0.05
_GATHER_S = 0.02  # between two answers, so that a program that prints line by line does not make one of each


def node_engine(node: Path, *, python: str = sys.executable) -> LocalEngine:
    """What runs the instances in the folder of a node; whoever ends this process does not end their agents."""
    folder = NodeFolder(node.absolute())
    return LocalEngine(folder.jobs, folder.agents, python=python, forks=False, orphans=True)


class NodeKeeper:
    """Keeps one instance in the folder of a node; a `Keeper` that may be shared by threads.

    `siblings` gives the keepers of other instances of the attempt, by their names and the addresses of their nodes.
    `engine` is one for the node's folder that several keepers share, `python` runs agents, `gpus` are those that the
    node has given to the instance.
    """

    def __init__(
        self,
        node: Path,
        instance: InstanceRef,
        *,
        siblings: Callable[[str, str], Keeper] | None = None,
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
        self._ports = Ports()
        self._lock = threading.Lock()
        self._bringing: Bringing | None = None
        self._answered_at = 0.0
        self._read: InstanceSpec | None = None
        self._tar: tuple[str, FolderTar] | None = None

    def prepare(self, spec: InstanceSpec) -> Prepared:
        try:
            self._node.root.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            self._engine.make_ready()  # before the stamp, from which the lease counts
            self._folder.root.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            port = self._master_port(spec) if spec.instance == spec.hosts[0] else 0
        except OSError as error:
            raise Unavailable(f"{self._instance.attempt}/{self._instance.name} has no place here: {error}.") from error
        return Prepared(port, stamp())

    def start(self, spec: InstanceSpec, *, heard: str) -> None:
        try:
            self._folder.root.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            self._begin_lease(spec, heard)
            self._engine.start([localise(spec, self._surroundings())])
        except OSError as error:
            raise Unavailable(f"{self._instance.attempt}/{self._instance.name} cannot start: {error}.") from error
        self._ensure_brought(spec)
        with suppress(OSError):  # tried again with another instance
            sweep_leftovers(self._node.jobs, self._engine)

    def pull(
        self, cursors: Mapping[str, int], commands: Sequence[Command], *, wait_s: float, heard: str = ""
    ) -> Pulled:
        if not self._folder.spec.exists():
            return Pulled((), is_alive=False, is_all=True, is_known=self._folder.root.exists(), stamp=stamp())
        spec = self._spec()
        if spec.lease_s:
            Lease.of(self._folder).renew(heard, spec.lease_s)
        for command in commands:
            Mailbox(self._folder.mailbox).copy(command)
        if self._engine.is_alive(self._instance):
            self._ensure_watched(spec)
        return self._wait_for_news(cursors, wait_s)

    def end(self, *, patience_s: float) -> None:
        self._engine.end(self._instance.attempt, patience=timedelta(seconds=patience_s))
        self._ports.release(self._instance.attempt)

    def forget(self) -> None:
        """That the attempt was ended stays, so that a call which comes late does not start it again."""
        if self._engine.is_alive(self._instance):
            raise Conflict("instance", f"{self._instance.attempt}/{self._instance.name}", "has not ended here")
        for folder in self._instance.attempt.instances(self._node.jobs):
            if folder.root == self._folder.root or not folder.spec.exists():  # those that were brought have no spec
                remove_tree(folder.root)

    def part(self, path: str, offset: int) -> bytes:
        if path == SPOOL:
            return self._new_frames(offset)
        if path == ACTIVITY:
            return json.dumps(self._ages_of_activity()).encode()
        kind, _, wanted = path.partition("/")
        if kind == TENSORS:
            return self._part_of_tensors(wanted, offset)
        if path not in LEFT:
            shared = ", ".join((SPOOL, TENSORS, *LEFT))
            raise InvalidRequest(f'"{path}" of an instance is not for the others; {shared} are.')
        with self._lock:
            if self._tar is None or self._tar[0] != path:
                self._tar = path, FolderTar(self._folder.root, path)
            return self._tar[1].read(offset)

    def _spec(self) -> InstanceSpec:
        if self._read is None:
            self._read = read_spec(self._folder.root)
        return self._read

    def _master_port(self, spec: InstanceSpec) -> int:
        """The one that the spec has, or that was chosen before, or one chosen now."""
        chosen = self._folder.root / "port"
        with self._lock:
            if not spec.master_port and not chosen.exists():
                port = self._ports.choose(self._instance.attempt, ports_of(len(spec.hosts)))
                replace_file(chosen, str(port).encode())
            return spec.master_port or int(chosen.read_text())

    def _begin_lease(self, spec: InstanceSpec, heard: str) -> None:
        if not spec.lease_s:
            return
        if not Lease.of(self._folder).renew(heard, spec.lease_s):
            raise Unavailable(
                f"The lease of {self._instance.attempt}/{self._instance.name} has run out before it was started."
            )
        ensure_warden(self._folder, python=self._python)

    def _surroundings(self) -> Surroundings:
        return Surroundings(
            self._node,
            self._python,
            is_root=os.geteuid() == 0,
            hidden=hidden_places(self._node.root),
            exists=os.path.exists,
            gpus=self._gpus,
        )

    def _ensure_watched(self, spec: InstanceSpec) -> None:
        """Once more what `start` did: a keeper made anew has to, and a warden may have been killed."""
        if spec.lease_s:
            with suppress(OSError):  # tried again with the next pull
                ensure_warden(self._folder, python=self._python)
        self._ensure_brought(spec)

    def _ensure_brought(self, spec: InstanceSpec) -> None:
        if self._siblings is None or not Bringing.is_needed(spec):
            return
        with self._lock:
            if self._bringing is None or not self._bringing.is_alive:
                self._bringing = Bringing(self._node.jobs, spec, self._part_of, is_over=self._has_ended)
                self._bringing.start()

    def _part_of(self, name: str, path: str, offset: int) -> bytes:
        assert self._siblings is not None, "nothing is brought where there are no siblings"
        spec = self._spec()
        return self._siblings(name, spec.addresses[tuple(spec.hosts).index(name)]).part(path, offset)

    def _has_ended(self) -> bool:
        return not self._engine.is_alive(self._instance)

    def _wait_for_news(self, cursors: Mapping[str, int], wait_s: float) -> Pulled:
        deadline = time.monotonic() + wait_s
        pause_s = min(max(_SHORTEST_PAUSE_S, self._answered_at + _GATHER_S - time.monotonic()), wait_s)
        while True:
            time.sleep(min(pause_s, max(0.0, deadline - time.monotonic())))
            is_alive = self._engine.is_alive(self._instance)  # asked before anything is read
            found = news(self._folder, cursors, limit_bytes=PULL_BYTES)
            if found.pieces or not is_alive or time.monotonic() >= deadline:
                break
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
        self._answered_at = time.monotonic()
        is_taken = not is_alive and was_taken(self._folder)
        return Pulled(found.pieces, is_alive, found.is_all, was_taken=is_taken, stamp=stamp())

    def _new_frames(self, offset: int) -> bytes:
        try:
            with self._folder.spool.open("rb", buffering=0) as file:
                data = os.pread(file.fileno(), PART_BYTES, offset)
        except FileNotFoundError:
            return b""
        return data[: data.rfind(b"\n") + 1]

    def _part_of_tensors(self, wanted: str, offset: int) -> bytes:
        if not self._folder.spec.exists() or (debugger := self._spec().debugger) is None:
            return b"" if wanted else NO_TENSORS
        files = TensorFiles(*place_of(self._folder, self._spec(), debugger.tensors.path))
        return files.read(wanted, offset) if wanted else files.told(offset)

    def _ages_of_activity(self) -> dict[str, float]:
        """Seconds since the instances were active that are known here."""
        marks = [folder.activity for folder in self._instance.attempt.instances(self._node.jobs)]
        return {mark.parent.name: time.time() - mark.stat().st_mtime for mark in marks if mark.exists()}
