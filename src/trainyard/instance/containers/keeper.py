"""The keeper of one container: a process of its own that runs it, tells how it ended, and takes it away.

It outlives its agent by as long as it takes to remove the container: when the agent goes, however that happens, the
input of the keeper ends. Standard library only.

It begins at an `S` on its input; a `T` sends SIGTERM to the program, a `K` kills it. On its output are lines of a word
and a detail.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainyard.foundation.errors import Unavailable
from trainyard.instance.containers.memory import OutOfMemoryWatch
from trainyard.link.containers import ask, remove_containers

RUNNING = "running"  # the pid of its first process
EXITED = "exited"  # an Exit as JSON
ENDED = "ended"  # nothing of it is left
LOST = "lost"  # why it cannot be told how it ended, or whether it has

START, TERMINATE, KILL = b"S", b"T", b"K"

_STATE = "{{json .State}}"
_NEVER = "0001-01-01"  # as both tools write the time at which nothing happened
_LOOK_S = 0.1  # between two looks whether the program runs
_REMOVED_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Exit:
    """How a container ended; `has_run` is False for one whose program could not even be started."""

    code: int
    is_oom: bool
    has_run: bool


def main() -> None:
    if os.read(sys.stdin.fileno(), 1) != START:  # its agent is gone before it wrote down that there is a keeper
        return
    orders = json.loads(sys.argv[2])
    keeper = Keeper(orders["tool"], orders["name"], id_file=Path(orders["id_file"]), instance=Path(orders["instance"]))
    try:
        keeper.keep(orders["run"], output=orders["output"])
    except (Unavailable, OSError) as error:
        _report(LOST, str(error))


class Keeper:
    """Runs one container in the foreground of a process of its own."""

    def __init__(self, tool: str, name: str, *, id_file: Path, instance: Path) -> None:
        self._tool = tool
        self._name = name
        self._id_file = id_file
        self._instance = instance
        self._memory = OutOfMemoryWatch(id_file)
        self._is_told = False  # that it runs

    def keep(self, run: list[str], *, output: int) -> None:
        self._memory.start()
        process = subprocess.Popen(
            run,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        os.close(output)
        if self._attend(process):
            _report(EXITED, json.dumps(asdict(self._exit(process.wait()))))
        remove_containers(self._tool, self._instance, within_s=_REMOVED_WITHIN_S)
        _report(ENDED)

    def _attend(self, process: "subprocess.Popen[bytes]") -> bool:
        """Follow orders until the run ends; False when the agent is gone.

        A container is not removed before it runs: a tool that is disturbed while it makes one may leave half of it.
        """
        ended, control, has_agent = os.pidfd_open(process.pid), sys.stdin.fileno(), True
        poll = select.poll()
        poll.register(control, select.POLLIN)
        poll.register(ended, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poll.poll(None if self._is_told else _LOOK_S * 1000)}
            if not self._is_told:
                self._tell_start()
            if has_agent and control in ready and not self._follow(os.read(control, 1)):
                has_agent = False
                poll.unregister(control)
            if ended in ready or (self._is_told and not has_agent):
                return has_agent

    def _tell_start(self) -> None:
        state = self._state() if self._id_file.exists() else None
        if state is not None and state.get("Pid"):
            self._is_told = True
            _report(RUNNING, str(state["Pid"]))

    def _follow(self, order: bytes) -> bool:
        if not order:
            return False
        words = ["kill", "--signal", "TERM", self._name] if order == TERMINATE else ["kill", self._name]
        with contextlib.suppress(Unavailable):  # it has ended, or has not begun: then the next order comes
            ask(self._tool, *words)
        return True

    def _exit(self, status: int) -> Exit:
        """As the tool remembers it: the status of its own process may be about the tool itself."""
        state = self._state()
        if state is None or str(state.get("StartedAt", _NEVER)).startswith(_NEVER):
            return Exit(status, is_oom=False, has_run=False)
        if state.get("Running"):  # somebody has killed the process that ran it
            ask(self._tool, "kill", self._name)
            return Exit(128 + signal.SIGKILL, is_oom=False, has_run=True)
        is_oom = bool(state.get("OOMKilled")) or self._memory.has_run_out
        return Exit(int(state["ExitCode"]), is_oom=is_oom, has_run=True)

    def _state(self) -> dict[str, Any] | None:
        try:
            return dict(json.loads(ask(self._tool, "inspect", "--format", _STATE, self._name)))
        except (Unavailable, ValueError):
            return None


def _report(word: str, detail: str = "") -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(sys.stdout.fileno(), f"{word} {detail}".replace("\n", " ").encode() + b"\n")
