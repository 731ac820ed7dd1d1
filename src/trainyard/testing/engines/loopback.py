"""A cluster without a network: its nodes are folders of this machine, and their keepers threads of the ferry's process.

Instances are as real as those of the local engine. What becomes of a node is said by files in its folder, so that a
test can cut it off while the ferry runs in another process: `python -m trainyard.testing.engines.loopback`.
"""

import asyncio
import dataclasses
import json
import os
import pickle
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Self

from trainyard.engines.cluster.contract import ClusterNode, Keeper, RemoteKeeper, Seat, Unreachable
from trainyard.engines.cluster.crew import AsProcess, Launch, OnThread, run_ferry
from trainyard.engines.cluster.engine import ClusterEngine
from trainyard.engines.cluster.ferry import Ferry
from trainyard.engines.cluster.keeper import NodeKeeper
from trainyard.engines.cluster.localising import NodeFolder
from trainyard.engines.cluster.route import Patience
from trainyard.engines.contract import AttemptRef, Engine, InstanceRef, Node
from trainyard.engines.local import LocalEngine
from trainyard.engines.local.processes import kill
from trainyard.foundation.confined import remove_tree
from trainyard.foundation.errors import Unavailable
from trainyard.foundation.files import PRIVATE_FOLDER, replace_file
from trainyard.link.folders import InstanceFolder
from trainyard.link.presence import presence_of

_GIB = 1024**3
_MOST_CALLS = 256  # at once
_REACH_S = 0.05  # until a node that is cut off counts as unreachable, where calls do not hang

THREE = (
    Node("north", slots=2, cpus=2.0, memory_bytes=4 * _GIB),
    Node("south", slots=2, cpus=2.0, memory_bytes=4 * _GIB),
    Node("spot", slots=2, cpus=2.0, memory_bytes=4 * _GIB, is_spot=True),
)
QUICK = Patience(poll=0.5, answer=2.0, margin=1.0, soonest=0.02, latest=0.2)


@dataclass(frozen=True, slots=True)
class LoopbackNode:
    """What a test does to a node, and finds on it."""

    folder: Path

    def cut_off(self, *, hangs: bool = False) -> None:
        """Let no call through any more, nor any answer; what runs there runs on. Calls fail, or hang."""
        self._write("cut", "hangs" if hangs else "fails")

    def join_again(self) -> None:
        (self.folder / "cut").unlink(missing_ok=True)
        (self.folder / "gone").unlink(missing_ok=True)

    def leave(self) -> None:
        """End all that runs there at once, as when a machine is taken away."""
        self._write("gone", "")
        for instance in self.instances():
            presence = presence_of(instance.root)
            if presence is not None:
                kill(presence)

    def set_up_anew(self) -> None:
        """Be another machine under the same name."""
        remove_tree(self._node.jobs)
        self.join_again()

    def kill_keepers(self) -> None:
        """End the keepers that are there, and nothing else."""
        self._write("killed", str(self.keepers_killed + 1))

    @property
    def is_gone(self) -> bool:
        return (self.folder / "gone").exists()

    @property
    def is_cut_off(self) -> bool:
        return self.is_gone or (self.folder / "cut").exists()

    @property
    def hangs(self) -> bool:
        try:
            return (self.folder / "cut").read_text() == "hangs"
        except FileNotFoundError:
            return False

    @property
    def keepers_killed(self) -> int:
        try:
            return int((self.folder / "killed").read_text())
        except FileNotFoundError:
            return 0

    def instances(self) -> list[InstanceFolder]:
        """The folders of those that were started there and have not been forgotten."""
        return [InstanceFolder(file.parent) for file in sorted(self._node.jobs.glob("*/*/*/spec.json"))]

    def instance(self, instance: InstanceRef) -> InstanceFolder:
        return instance.folder(self._node.jobs)

    @property
    def _node(self) -> NodeFolder:
        return NodeFolder(self.folder)

    def _write(self, name: str, content: str) -> None:
        self.folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        replace_file(self.folder / name, content.encode())


class LoopbackCluster:
    """A `Cluster` of pretended nodes, in the folder `root`; all run agents from the copy of their code in `agents`."""

    def __init__(self, root: Path, agents: Path, nodes: Sequence[Node] = THREE) -> None:
        self._root = root
        self._agents = agents
        self._machine = LocalEngine(root, agents, forks=False)
        self._nodes = {node.name: node for node in nodes}
        self._keepers: dict[InstanceRef, _Kept] = {}
        self._threads = ThreadPoolExecutor(_MOST_CALLS, "keeper")

    def node(self, name: str) -> LoopbackNode:
        return LoopbackNode(self._root / name)

    def node_of(self, instance: InstanceRef) -> str:
        """Where an instance really is."""
        return next((name for name in self._nodes if self.node(name).instance(instance).spec.exists()), "")

    async def nodes(self) -> Sequence[ClusterNode]:
        if all(self.node(name).is_cut_off for name in self._nodes):
            raise Unreachable("No node of the cluster answers.")
        isolation = await asyncio.to_thread(self._machine.why_not_isolated, 1)
        return [
            ClusterNode(node, f"127.0.0.{at}", isolation)
            for at, node in enumerate(self._nodes.values(), start=2)
            if not self.node(node.name).is_gone
        ]

    async def reserve(self, attempt: AttemptRef, seats: Sequence[Seat]) -> None:
        places = [seat.node for seat in seats]
        taken = [place for other, each in self._reserved().items() if other != _name(attempt) for place in each]
        for name in {*places}:
            if self.node(name).is_cut_off:
                raise Unreachable(f"Node {name} does not answer.")
            if name in taken and (taken + places).count(name) > self._nodes[name].slots:  # alone, a job may share slots
                raise Unavailable(f"Node {name} has no room for {attempt}.")
        self._reservations.mkdir(parents=True, exist_ok=True)
        replace_file(self._reservations / _name(attempt), json.dumps(places).encode())

    async def keepers(self, attempt: AttemptRef, seats: Sequence[Seat]) -> Mapping[InstanceRef, RemoteKeeper]:  # noqa: ARG002
        for seat in seats:
            kept = self._keepers.get(seat.instance)
            if self.node(seat.node).is_cut_off:
                await asyncio.sleep(_REACH_S)
                raise Unreachable(f"Node {seat.node} does not answer.")
            if kept is None or kept.is_dead:
                self._keepers[seat.instance] = _Kept(self.node(seat.node), self._keeper(seat), self._threads)
        return {seat.instance: self._keepers[seat.instance] for seat in seats}

    async def release(self, attempt: AttemptRef) -> None:
        (self._reservations / _name(attempt)).unlink(missing_ok=True)
        for instance in [each for each in self._keepers if each.attempt == attempt]:
            del self._keepers[instance]

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _keeper(self, seat: Seat) -> NodeKeeper:
        folder = NodeFolder(self._root / seat.node)
        engine = LocalEngine(folder.jobs, self._agents, forks=False)
        return NodeKeeper(folder.root, seat.instance, siblings=partial(self._sibling, seat), engine=engine)

    def _sibling(self, seat: Seat, name: str, address: str) -> Keeper:  # noqa: ARG002 - all have the same
        """The keeper of another instance, as it is reached from the node of a seat."""
        kept = self._keepers.get(InstanceRef(seat.instance.attempt, name))
        if kept is None or kept.node.is_cut_off or self.node(seat.node).is_cut_off:
            raise Unreachable(f"Instance {name} cannot be reached from node {seat.node}.")
        return kept.keeper

    def _reserved(self) -> dict[str, list[str]]:
        if not self._reservations.exists():
            return {}
        return {file.name: json.loads(file.read_bytes()) for file in self._reservations.iterdir()}

    @property
    def _reservations(self) -> Path:
        return self._root / "reserved"


class _Kept:
    """A keeper as the ferry reaches it."""

    def __init__(self, node: LoopbackNode, keeper: NodeKeeper, threads: ThreadPoolExecutor) -> None:
        self.node = node
        self.keeper = keeper
        self._threads = threads
        self._born_after = node.keepers_killed

    @property
    def is_dead(self) -> bool:
        return self.node.keepers_killed > self._born_after

    async def call(self, method: str, /, *arguments: Any, timeout_s: float, **options: Any) -> Any:
        if self.node.is_cut_off or self.is_dead:
            await asyncio.sleep(timeout_s if self.node.hangs else _REACH_S)
            raise Unreachable(f"Node {self.node.folder.name} does not answer.")
        work = asyncio.get_running_loop().run_in_executor(
            self._threads, self._carried_out, method, pickle.dumps((arguments, options))
        )
        await asyncio.wait({work}, timeout=timeout_s)
        if not work.done() or self.node.is_cut_off or self.is_dead:  # the answer does not come through either
            work.add_done_callback(lambda done: done.cancelled() or done.exception())
            raise Unreachable(f"Node {self.node.folder.name} does not answer.")
        return pickle.loads(work.result())

    def _carried_out(self, method: str, message: bytes) -> bytes:
        """By value in both directions, as over a network."""
        arguments, options = pickle.loads(message)
        return pickle.dumps(getattr(self.keeper, method)(*arguments, **options))


@dataclass(frozen=True, slots=True)
class Loopback:
    """What it takes to run a ferry over a loopback cluster, on a thread or as a process."""

    root: Path
    jobs: Path
    folder: Path
    agents: Path
    nodes: Sequence[Node] = THREE
    patience: Patience = QUICK

    @property
    def cluster(self) -> LoopbackCluster:
        return LoopbackCluster(self.root, self.agents, self.nodes)

    def node(self, name: str) -> LoopbackNode:
        return LoopbackNode(self.root / name)

    def engine(self, *, lease: timedelta = timedelta(seconds=30), as_process: bool = False) -> ClusterEngine:
        launch = self._process if as_process else OnThread(self.ferry)
        return ClusterEngine("loopback", launch, jobs=self.jobs, folder=self.folder, lease=lease)

    async def ferry(self) -> Ferry:
        return Ferry(self.cluster, jobs=self.jobs, folder=self.folder, patience=self.patience)

    @property
    def _process(self) -> Launch:
        self.folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        command = [sys.executable, "-m", __name__, json.dumps(dataclasses.asdict(self), default=str)]
        return AsProcess(command, environment=os.environ, output=self.folder / "ferry.log")

    @classmethod
    def parse(cls, text: str) -> Self:
        values = json.loads(text)
        nodes = [Node(**{**each, "gpus": tuple(each["gpus"])}) for each in values["nodes"]]
        paths = {name: Path(values[name]) for name in ("root", "jobs", "folder", "agents")}
        return cls(**paths, nodes=nodes, patience=Patience(**values["patience"]))


def open_engine(jobs: Path, agents: Path) -> Engine:
    """An engine on three pretended nodes, for a yard whose setting `engines` names this function."""
    root = agents.with_name("loopback")
    return Loopback(root / "nodes", jobs, root / "engine", agents).engine()


def open_sized(jobs: Path, agents: Path) -> Engine:
    """An engine on two pretended nodes that together have the slots of the yard's setting, as one machine would."""
    slots = int(os.environ.get("TRAINYARD_SERVER_SLOTS") or 4)
    shares = {"north": slots - slots // 2, "south": slots // 2}
    nodes = [
        Node(name, slots=share, cpus=max(2.0, share), memory_bytes=4 * _GIB) for name, share in shares.items() if share
    ]
    root = agents.with_name("loopback")
    return Loopback(root / "nodes", jobs, root / "engine", agents, nodes).engine()


def _name(attempt: AttemptRef) -> str:
    return f"{attempt.job_id}-{attempt.attempt}"


if __name__ == "__main__":
    run_ferry(int(sys.argv[2]), Loopback.parse(sys.argv[1]).ferry)
