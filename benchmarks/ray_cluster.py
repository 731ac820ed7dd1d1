"""A Ray cluster of one node on the loopback, and jobs for it.

A Ray node uses 127.0.0.1 as its address only if multi-node clusters are disabled, by a variable that is named for other
systems; otherwise it listens on all interfaces. The benchmark checks the listening addresses before it sends anything.
Clients need a token that is created for the run. Every process that was started is stopped by its pid.
"""

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conformance.environments import interpreter

CLIENT = Path(__file__).with_name("ray_client.py")
START_S = 120.0

_LISTENING = "0A"
_LOOPBACK = ("0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000")


@dataclass(frozen=True, slots=True)
class RayCluster:
    """The address of a cluster, and the environment of its clients."""

    address: str
    environment: dict[str, str]
    pid: int

    def run(self, command: Sequence[str], *, count: int = 1, cpus: int = 0) -> dict[str, Any]:
        """Submit a command several times at once, wait for all jobs to end, and return the report of ray_client.py."""
        _require_loopback(self.pid)
        return submit(self.address, command, environment=self.environment, count=count, cpus=cpus)


def submit(
    address: str, command: Sequence[str], *, environment: Mapping[str, str], count: int = 1, cpus: int = 0
) -> dict[str, Any]:
    """Return the report of ray_client.py on a command that it submitted several times at once."""
    run = subprocess.run(
        [interpreter("ray"), CLIENT, address, str(count), str(cpus), *command],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    told: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return told


@contextlib.contextmanager
def ray_cluster(*, cpus: int) -> Iterator[RayCluster]:
    """Run a cluster for the length of a block."""
    port = _free_port()
    # Ray's sockets need a short path.
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": folder,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    process = _start(folder, port, cpus=cpus, environment=environment)
    try:
        _await_port(port, process)
        yield RayCluster(f"http://127.0.0.1:{port}", environment, process.pid)
    finally:
        _stop(process)
        shutil.rmtree(folder, ignore_errors=True)


def _start(folder: str, port: int, *, cpus: int, environment: dict[str, str]) -> "subprocess.Popen[bytes]":
    ray = interpreter("ray").with_name("ray")
    options = ["--node-ip-address=127.0.0.1", "--port=0", "--dashboard-host=127.0.0.1", f"--dashboard-port={port}"]
    options += [
        f"--num-cpus={cpus}",
        f"--temp-dir={folder}",
        "--disable-usage-stats",
        "--object-store-memory=100000000",
    ]
    return subprocess.Popen(
        [ray, "start", "--head", "--block", *options],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _await_port(port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    raise TimeoutError(f"Ray did not start within {START_S} s.")


def _require_loopback(pid: int) -> None:
    """Check what the processes of the cluster listen on, and stop if it is more than the loopback."""
    inodes = {inode for each in _tree(pid) for inode in _socket_inodes(each)}
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENING and fields[9] in inodes and not fields[1].startswith(_LOOPBACK):
                raise RuntimeError(f"Ray listens on {fields[1]}, beyond the loopback.")


def _tree(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
        return [pid, *(each for child in children for each in _tree(child))]
    return []


def _socket_inodes(pid: int) -> list[str]:
    with contextlib.suppress(OSError):
        links = [str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()]
        return [link.removeprefix("socket:[").rstrip("]") for link in links if link.startswith("socket:")]
    return []


def _stop(process: "subprocess.Popen[bytes]") -> None:
    started = _tree(process.pid)
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pid in started[1:]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
