"""A cluster without a network: its nodes are folders of this machine, and their runners are threads of the proxy.

Instances are as real as those of the local engine. Files in the folder of a node control its fate, so that a test can
cut it off while the proxy runs in another process: `python -m trainyard.testing.engines.loopback`.
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

from trainyard.engines.cluster.contract import ClusterNode, InstancePlacement, InstanceRunner, RemoteRunner, Unreachable
from trainyard.engines.cluster.engine import ClusterEngine
from trainyard.engines.cluster.instance_session import ProxyTimeouts
from trainyard.engines.cluster.node_runner import NodeRunner
from trainyard.engines.cluster.node_spec import NodeFolder
from trainyard.engines.cluster.proxy import ClusterProxy
from trainyard.engines.cluster.proxy_supervisor import ProcessLauncher, ProxyLauncher, ThreadLauncher, run_proxy
from trainyard.engines.contract import AttemptRef, Engine, InstanceRef, Node
from trainyard.engines.local import LocalEngine
from trainyard.engines.local.processes import kill
from trainyard.foundation.confined import remove_tree
from trainyard.foundation.errors import Unavailable
from trainyard.foundation.files import PRIVATE_FOLDER, replace_file
from trainyard.link.agent_process import find_agent_process
from trainyard.link.folders import InstanceFolder

_GIB = 1024**3
_MAX_CONCURRENT_CALLS = 256
# How long a call to a node that is cut off takes to fail, unless it hangs.
_FAIL_S = 0.05

THREE = (
    Node("north", slots=2, cpus=2.0, memory_bytes=4 * _GIB),
    Node("south", slots=2, cpus=2.0, memory_bytes=4 * _GIB),
    Node("spot", slots=2, cpus=2.0, memory_bytes=4 * _GIB, is_spot=True),
)
QUICK = ProxyTimeouts(poll_s=0.5, answer_s=2.0, lease_margin_s=1.0, first_retry_s=0.02, max_retry_s=0.2)


@dataclass(frozen=True, slots=True)
class LoopbackNode:
    """A node as a test sees and manipulates it."""

    folder: Path

    def cut_off(self, *, hangs: bool = False) -> None:
        """Block every call and every answer. Calls fail, or hang; what runs there keeps running."""
        self._write("cut", "hangs" if hangs else "fails")

    def join_again(self) -> None:
        (self.folder / "cut").unlink(missing_ok=True)
        (self.folder / "gone").unlink(missing_ok=True)

    def leave(self) -> None:
        """End everything that runs there at once, as when a machine is taken away."""
        self._write("gone", "")
        # Or they would speak for another machine that takes its place.
        self.kill_runners()
        for instance in self.instances():
            presence = find_agent_process(instance.root)
            if presence is not None:
                kill(presence)

    def replace_machine(self) -> None:
        """Put another machine in its place, under the same name."""
        remove_tree(self._node.jobs)
        self.join_again()

    def kill_runners(self) -> None:
        """End the current runners, and nothing else."""
        self._write("killed", str(self.runners_killed + 1))

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
    def runners_killed(self) -> int:
        try:
            return int((self.folder / "killed").read_text())
        except FileNotFoundError:
            return 0

    def instances(self) -> list[InstanceFolder]:
        """Return the folders of instances that were started there and have not been forgotten."""
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
    """A `ClusterBackend` of simulated nodes in the folder `root`. Agents run from the code in `agents`."""

    def __init__(self, root: Path, agents: Path, nodes: Sequence[Node] = THREE) -> None:
        self._root = root
        self._agents = agents
        self._machine = LocalEngine(root, agents, forks=False)
        self._nodes = {node.name: node for node in nodes}
        self._runners: dict[InstanceRef, _LoopbackRunner] = {}
        self._threads = ThreadPoolExecutor(_MAX_CONCURRENT_CALLS, "runner")

    def node(self, name: str) -> LoopbackNode:
        return LoopbackNode(self._root / name)

    def node_of(self, instance: InstanceRef) -> str:
        """Return the node on which an instance really runs."""
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

    async def reserve(self, attempt: AttemptRef, placements: Sequence[InstancePlacement]) -> None:
        places = [placement.node for placement in placements]
        taken = [
            place for other, each in self._read_reservations().items() if other != _name(attempt) for place in each
        ]
        for name in {*places}:
            if self.node(name).is_cut_off:
                raise Unreachable(f"Node {name} does not answer.")
            # A job alone on a node may share slots.
            if name in taken and (taken + places).count(name) > self._nodes[name].slots:
                raise Unavailable(f"Node {name} has too little free for {attempt}.")
        self._reservations.mkdir(parents=True, exist_ok=True)
        replace_file(self._reservations / _name(attempt), json.dumps(places).encode())

    async def runners(
        self,
        attempt: AttemptRef,  # noqa: ARG002 - a placement names its instance
        placements: Sequence[InstancePlacement],
    ) -> Mapping[InstanceRef, RemoteRunner]:
        for placement in placements:
            runner = self._runners.get(placement.instance)
            if self.node(placement.node).is_cut_off:
                await asyncio.sleep(_FAIL_S)
                raise Unreachable(f"Node {placement.node} does not answer.")
            if runner is None or runner.is_dead:
                self._runners[placement.instance] = _LoopbackRunner(
                    self.node(placement.node), self._make_runner(placement), self._threads
                )
        return {placement.instance: self._runners[placement.instance] for placement in placements}

    async def release(self, attempt: AttemptRef) -> None:
        (self._reservations / _name(attempt)).unlink(missing_ok=True)
        for instance in [each for each in self._runners if each.attempt == attempt]:
            del self._runners[instance]

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _make_runner(self, placement: InstancePlacement) -> NodeRunner:
        folder = NodeFolder(self._root / placement.node)
        engine = LocalEngine(folder.jobs, self._agents, forks=False)
        return NodeRunner(folder.root, placement.instance, siblings=partial(self._sibling, placement), engine=engine)

    def _sibling(self, placement: InstancePlacement, name: str, address: str) -> InstanceRunner:  # noqa: ARG002 - all have the same
        """Return the runner of another instance, as reached from the node of a placement."""
        runner = self._runners.get(InstanceRef(placement.instance.attempt, name))
        if runner is None or runner.node.is_cut_off or self.node(placement.node).is_cut_off:
            raise Unreachable(f"Instance {name} cannot be reached from node {placement.node}.")
        return runner.runner

    def _read_reservations(self) -> dict[str, list[str]]:
        if not self._reservations.exists():
            return {}
        return {file.name: json.loads(file.read_bytes()) for file in self._reservations.iterdir()}

    @property
    def _reservations(self) -> Path:
        return self._root / "reserved"


class _LoopbackRunner:
    """A runner as the proxy reaches it."""

    def __init__(self, node: LoopbackNode, runner: NodeRunner, threads: ThreadPoolExecutor) -> None:
        self.node = node
        self.runner = runner
        self._threads = threads
        self._generation = node.runners_killed

    @property
    def is_dead(self) -> bool:
        return self.node.runners_killed > self._generation

    async def call(self, method: str, /, *arguments: Any, timeout_s: float, **options: Any) -> Any:
        if self.node.is_cut_off or self.is_dead:
            await asyncio.sleep(timeout_s if self.node.hangs else _FAIL_S)
            raise Unreachable(f"Node {self.node.folder.name} does not answer.")
        work = asyncio.get_running_loop().run_in_executor(
            self._threads, self._carry_out, method, pickle.dumps((arguments, options))
        )
        await asyncio.wait({work}, timeout=timeout_s)
        # Answers are blocked as well.
        if not work.done() or self.node.is_cut_off or self.is_dead:
            work.add_done_callback(lambda done: done.cancelled() or done.exception())
            raise Unreachable(f"Node {self.node.folder.name} does not answer.")
        return pickle.loads(work.result())

    def _carry_out(self, method: str, message: bytes) -> bytes:
        """Call the runner, by value in both directions, as over a network."""
        arguments, options = pickle.loads(message)
        return pickle.dumps(getattr(self.runner, method)(*arguments, **options))


@dataclass(frozen=True, slots=True)
class Loopback:
    """What it takes to run a proxy over a loopback cluster, on a thread or in a process."""

    root: Path
    jobs: Path
    folder: Path
    agents: Path
    nodes: Sequence[Node] = THREE
    timeouts: ProxyTimeouts = QUICK

    @property
    def cluster(self) -> LoopbackCluster:
        return LoopbackCluster(self.root, self.agents, self.nodes)

    def node(self, name: str) -> LoopbackNode:
        return LoopbackNode(self.root / name)

    def engine(self, *, lease: timedelta = timedelta(seconds=30), as_process: bool = False) -> ClusterEngine:
        launch = self._process if as_process else ThreadLauncher(self.proxy)
        return ClusterEngine("loopback", launch, jobs=self.jobs, folder=self.folder, lease=lease)

    async def proxy(self) -> ClusterProxy:
        return ClusterProxy(self.cluster, jobs=self.jobs, folder=self.folder, timeouts=self.timeouts)

    @property
    def _process(self) -> ProxyLauncher:
        self.folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        command = [sys.executable, "-m", __name__, json.dumps(dataclasses.asdict(self), default=str)]
        return ProcessLauncher(command, environment=os.environ, output=self.folder / "ferry.log")

    @classmethod
    def parse(cls, text: str) -> Self:
        values = json.loads(text)
        nodes = [Node(**{**each, "gpus": tuple(each["gpus"])}) for each in values["nodes"]]
        paths = {name: Path(values[name]) for name in ("root", "jobs", "folder", "agents")}
        return cls(**paths, nodes=nodes, timeouts=ProxyTimeouts(**values["timeouts"]))


def open_engine(jobs: Path, agents: Path) -> Engine:
    """Open an engine on three simulated nodes, for a yard whose setting `engines` names this function."""
    root = agents.with_name("loopback")
    return Loopback(root / "nodes", jobs, root / "engine", agents).engine()


def open_sized(jobs: Path, agents: Path) -> Engine:
    """Open an engine on two simulated nodes that together have the slots of the yard's setting."""
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
    run_proxy(int(sys.argv[2]), Loopback.parse(sys.argv[1]).proxy)
