"""A Ray cluster on simulated machines, with its own token.

The first machine has the head and the yard but no cores, so that no jobs run there. Each has its own folder for Ray,
whose sockets need short paths. As a program, `python -m tests.ray_cluster NODES CPUS COMMAND…` runs a command on the
network of the first machine, with the settings of a yard that uses the cluster.
"""

import contextlib
import os
import secrets
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path

from tests.conformance.environments import interpreter
from tests.machines import Machine, Machines, machines
from trainyard.testing.eventually import eventually
from trainyard.testing.yard import ENGINE_SWITCH

PORT = 6379
STORE_BYTES = 80_000_000
WITHOUT_DASHBOARD = "--include-dashboard=false"
_START = timedelta(minutes=5)


@dataclass(slots=True)
class RayCluster:
    """The cluster. `nodes` are the machines with cores, by their addresses."""

    head: Machine
    nodes: dict[str, Machine]
    options: dict[str, Sequence[str]]
    token: str
    folder: Path
    cpus: int
    network: Machines
    of_head: Sequence[str]
    _processes: dict[int, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return f"{self.head.address}:{PORT}"

    @property
    def node_folder(self) -> Path:
        """The folder for the yard's files on nodes; each node has its own folder below it."""
        return self.folder / "nodes"

    @property
    def settings(self) -> Mapping[str, str]:
        """The settings of a yard on the first machine."""
        return {
            "TRAINYARD_SERVER_ENGINES": "ray",
            "TRAINYARD_SERVER_RAY_ADDRESS": self.address,
            "TRAINYARD_SERVER_RAY_TOKEN": self.token,
            "TRAINYARD_SERVER_RAY_PYTHON": str(interpreter("ray")),
            "TRAINYARD_SERVER_RAY_FOLDER": str(self.node_folder),
            "TRAINYARD_SERVER_HOST": self.head.address,
        }

    def python(self, machine: Machine) -> Path:
        """Return a program that runs Ray's Python on a machine, to be called from this one."""
        path = self.folder / f"python-{machine.number}"
        words = shlex.join(machine.command(interpreter("ray")))
        path.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        path.chmod(0o755)
        return path

    def start_head(self) -> None:
        self._start(self.head, "--head", f"--port={PORT}", "--num-cpus=0", *self.of_head)

    def start_node(self, machine: Machine) -> None:
        """Let a machine join, also one that has left."""
        self.nodes[machine.address] = machine
        options = self.options.get(machine.address, ())
        self._start(machine, f"--address={self.address}", f"--num-cpus={self.cpus}", *options)

    def restart(self, machine: Machine) -> None:
        """Switch a machine off and on again, and let it join."""
        machine.switch_off()
        self.start_node(self.network.switch_on(machine.number))

    def await_nodes(self) -> None:
        """Wait until all nodes have joined. Restart a machine that takes over 30 s, because Ray gives up on it."""
        for machine in tuple(self.nodes.values()):
            eventually(partial(self._has_joined, machine), within=_START)

    def _has_joined(self, machine: Machine) -> bool:
        if self._processes[machine.number].poll() is not None:
            self.restart(self.nodes[machine.address])
        return "Ray runtime started" in self._log(machine).read_text()

    def _start(self, machine: Machine, *options: str) -> None:
        folder = self.folder / str(machine.number)
        ray = [str(interpreter("ray").with_name("ray")), "start", "--block", "--disable-usage-stats", *options]
        ray += [f"--node-ip-address={machine.address}", f"--temp-dir={folder}"]
        ray += [f"--object-store-memory={STORE_BYTES}", "--include-log-monitor=false"]
        with self._log(machine).open("ab") as log:
            self._processes[machine.number] = machine.start(*ray, environment=self._environment, output=log)

    def _log(self, machine: Machine) -> Path:
        return self.folder / f"{machine.number}.log"

    @property
    def _environment(self) -> Mapping[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": self.token,
            "OMP_NUM_THREADS": "1",
        }


@contextlib.contextmanager
def ray_cluster(
    *, nodes: int, cpus: int, of_head: Sequence[str] = (WITHOUT_DASHBOARD,), of_last: Sequence[str] = ()
) -> Iterator[RayCluster]:
    """Run a cluster for the length of a block, or raise MachinesMissing if machines cannot be simulated.

    `of_head` and `of_last` are Ray's options for the head and for the last node.
    """
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    # The users of jobs read the code below it.
    folder.chmod(0o755)
    try:
        with machines(nodes + 1) as (network, (head, *others)):
            options = {others[-1].address: of_last}
            cluster = RayCluster(head, {}, options, secrets.token_hex(32), folder, cpus, network, of_head)
            cluster.start_head()
            for machine in others:
                cluster.start_node(machine)
            cluster.await_nodes()
            yield cluster
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main(nodes: str, cpus: str, *command: str) -> int:
    with ray_cluster(nodes=int(nodes), cpus=int(cpus)) as cluster:
        environment = {**os.environ, **cluster.settings, ENGINE_SWITCH: "ray"}
        return subprocess.run(cluster.head.command_beside(*command), env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
