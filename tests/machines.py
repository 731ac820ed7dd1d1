"""Simulated machines for tests, each with its own network and processes, joined by a bridge.

They share the files of this machine, and are invisible on its network. Switching a machine off kills all its processes,
whatever they did to escape. If the test itself is killed, all machines end.
"""

import contextlib
import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from trainyard.testing.eventually import eventually

_NETWORK = "10.77.0"
_LINK = "eth0"
_CLONE_NEWNET = 0x40000000


class MachinesMissing(Exception):
    """This machine does not allow simulated machines; the message says why."""


@dataclass(slots=True)
class Machine:
    """A simulated machine. `pid` is its first process; when it ends, all others end."""

    number: int
    address: str
    _network: "Machines"
    _holder: "subprocess.Popen[bytes]"
    pid: int = field(init=False)

    def __post_init__(self) -> None:
        self.pid = _only_child(self._holder.pid)

    def command(self, *words: str | Path) -> list[str]:
        """Return a command line that runs another one on the machine."""
        return [*_enter(self.pid), *map(str, words)]

    def command_beside(self, *words: str | Path) -> list[str]:
        """Return a command line that runs another one on its network, with the processes of all machines visible."""
        return [*_enter(self.pid, "--net"), *map(str, words)]

    def start(self, *words: str | Path, environment: Mapping[str, str], output: IO[bytes]) -> "subprocess.Popen[bytes]":
        """Start a process on the machine. It ends with the machine at the latest."""
        process = subprocess.Popen(
            self.command(*words),
            env=dict(environment),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        self._network.started.append(process)
        return process

    def run(self, *words: str | Path) -> str:
        return _run(self.command(*words))

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Move this thread, and what it starts, to the network of the machine for the length of a block. Needs root."""
        with Path("/proc/thread-self/ns/net").open() as ours, Path(f"/proc/{self.pid}/ns/net").open() as its:
            _join_network(its.fileno())
            try:
                yield
            finally:
                _join_network(ours.fileno())

    def cut(self) -> None:
        """Disconnect it from the network; its processes continue."""
        self._network.run("ip", "link", "set", f"port{self.number}", "down")

    def join(self) -> None:
        """Connect it to the network again."""
        self._network.run("ip", "link", "set", f"port{self.number}", "up")

    def switch_off(self) -> None:
        """Kill it with all its processes, at once."""
        self._holder.kill()
        self._holder.wait()


class Machines:
    """The bridge between the machines."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._stack = stack
        self.started: list[subprocess.Popen[bytes]] = []
        stack.callback(self._reap)
        self._pid = _only_child(self._hold(["unshare", *_AS_ROOT, "--net"]).pid)
        self.run("ip", "link", "add", "bridge0", "type", "bridge")
        self.run("ip", "link", "set", "bridge0", "up")

    def run(self, *words: str) -> str:
        """Run a command on the bridge."""
        return _run([*_enter(self._pid, "--net"), *words])

    def switch_on(self, number: int) -> Machine:
        """Start the machine with that number, also again after it was switched off."""
        # The port of the machine that was switched off: the kernel removes it later.
        with contextlib.suppress(subprocess.CalledProcessError):
            self.run("ip", "link", "delete", f"port{number}")
        holder = self._hold([*_enter(self._pid, "--net"), "unshare", "--net", "--pid", "--mount-proc"])
        machine = Machine(number, address := f"{_NETWORK}.{number}", self, holder)
        peer = ["peer", "name", _LINK, "netns", str(machine.pid)]
        self.run("ip", "link", "add", f"port{number}", "type", "veth", *peer)
        self.run("ip", "link", "set", f"port{number}", "master", "bridge0", "up")
        machine.run("ip", "address", "add", f"{address}/24", "dev", _LINK)
        for link in ("lo", _LINK):
            machine.run("ip", "link", "set", link, "up")
        return machine

    def _reap(self) -> None:
        for process in self.started:
            process.wait()

    def _hold(self, unshare: Sequence[str]) -> "subprocess.Popen[bytes]":
        """Start a process that ends when its input is closed, also because this process has ended."""
        command = [*unshare, "--fork", "--kill-child", sys.executable, "-I", "-S", "-c", _FIRST]
        holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self._stack.callback(_let_go, holder)
        return holder


@contextlib.contextmanager
def machines(count: int) -> Iterator[tuple[Machines, list[Machine]]]:
    """Provide a network with machines for the length of a block, or raise MachinesMissing if that is not allowed."""
    with contextlib.ExitStack() as stack:
        try:
            network = Machines(stack)
            started = [network.switch_on(number) for number in range(1, count + 1)]
        except (OSError, subprocess.CalledProcessError, AssertionError) as error:
            why = getattr(error, "stderr", None) or error
            raise MachinesMissing(f"this machine does not allow network and process namespaces: {why}") from error
        yield network, started


# The first process of a machine inherits its orphans.
_FIRST = "import signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); sys.stdin.read()"

_AS_ROOT = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]


def _enter(pid: int, *kinds: str) -> list[str]:
    user = ["--user", "--preserve-credentials"] if _AS_ROOT else []
    return ["nsenter", "--target", str(pid), *user, *(kinds or ("--net", "--pid", "--mount"))]


def _join_network(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET):
        raise OSError(number := ctypes.get_errno(), f"the network cannot be joined: {os.strerror(number)}")


def _run(command: Sequence[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout


def _only_child(pid: int) -> int:
    def child() -> str:
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().strip()

    return int(eventually(child))


def _let_go(holder: "subprocess.Popen[bytes]") -> None:
    holder.kill()
    holder.communicate()
