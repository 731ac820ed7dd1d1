"""The supervisor of one container: a process that runs it, reports how it ended, and removes it.

When its agent dies, in whatever way, its standard input closes; it then removes the container and exits. Standard
library only.

It starts the container at an `S` on its input; a `T` sends SIGTERM to the program, a `K` kills it. Each line of its
output has a word and a detail:

    running   the pid of the container's first process
    exited    a `ContainerExit` as JSON
    ended     nothing of the container is left
    lost      why it is not known how, or whether, the container ended
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
from trainyard.instance.containers.memory import OomWatch
from trainyard.link.containers import remove_containers, run_tool

RUNNING = "running"
EXITED = "exited"
ENDED = "ended"
LOST = "lost"

START, TERMINATE, KILL = b"S", b"T", b"K"

_STATE_FORMAT = "{{json .State}}"
# How both tools write the time of something that never happened.
_ZERO_TIME = "0001-01-01"
# Between two checks whether the program runs.
_POLL_S = 0.1
_REMOVE_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class ContainerExit:
    """How a container ended; `has_run` is False if its program could not even be started."""

    code: int
    is_oom: bool
    has_run: bool


def main() -> None:
    if os.read(sys.stdin.fileno(), 1) != START:
        # The agent died before it recorded this process in its ledger.
        return
    orders = json.loads(sys.argv[2])
    supervisor = ContainerSupervisor(
        orders["tool"], orders["name"], id_file=Path(orders["id_file"]), instance=Path(orders["instance"])
    )
    try:
        supervisor.run(orders["run"], output=orders["output"])
    except (Unavailable, OSError) as error:
        _report(LOST, str(error))


class ContainerSupervisor:
    """Runs one container in the foreground of a child process."""

    def __init__(self, tool: str, name: str, *, id_file: Path, instance: Path) -> None:
        self._tool = tool
        self._name = name
        self._id_file = id_file
        self._instance = instance
        self._memory = OomWatch(id_file)
        self._has_reported_start = False

    def run(self, command: list[str], *, output: int) -> None:
        self._memory.start()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        os.close(output)
        if self._watch(process):
            _report(EXITED, json.dumps(asdict(self._exit(process.wait()))))
        remove_containers(self._tool, self._instance, within_s=_REMOVE_TIMEOUT_S)
        _report(ENDED)

    def _watch(self, process: "subprocess.Popen[bytes]") -> bool:
        """Obey commands until the container ends; return False if the agent is gone.

        A container is not removed before it runs: a tool that is interrupted while it makes one may leave half of it.
        """
        ended, control, has_agent = os.pidfd_open(process.pid), sys.stdin.fileno(), True
        poll = select.poll()
        poll.register(control, select.POLLIN)
        poll.register(ended, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poll.poll(None if self._has_reported_start else _POLL_S * 1000)}
            if not self._has_reported_start:
                self._report_start()
            if has_agent and control in ready and not self._obey(os.read(control, 1)):
                has_agent = False
                poll.unregister(control)
            if ended in ready or (self._has_reported_start and not has_agent):
                return has_agent

    def _report_start(self) -> None:
        state = self._state() if self._id_file.exists() else None
        if state is not None and state.get("Pid"):
            self._has_reported_start = True
            _report(RUNNING, str(state["Pid"]))

    def _obey(self, command: bytes) -> bool:
        if not command:
            return False
        arguments = ["kill", "--signal", "TERM", self._name] if command == TERMINATE else ["kill", self._name]
        # It fails if the container has ended or not yet started; in that case the agent asks again.
        with contextlib.suppress(Unavailable):
            run_tool(self._tool, *arguments)
        return True

    def _exit(self, status: int) -> ContainerExit:
        """Return how the container ended according to the tool: the exit status may be about the tool itself."""
        state = self._state()
        if state is None or str(state.get("StartedAt", _ZERO_TIME)).startswith(_ZERO_TIME):
            return ContainerExit(status, is_oom=False, has_run=False)
        if state.get("Running"):
            # Somebody killed the process that ran the container.
            run_tool(self._tool, "kill", self._name)
            return ContainerExit(128 + signal.SIGKILL, is_oom=False, has_run=True)
        is_oom = bool(state.get("OOMKilled")) or self._memory.has_seen_oom
        return ContainerExit(int(state["ExitCode"]), is_oom=is_oom, has_run=True)

    def _state(self) -> dict[str, Any] | None:
        try:
            return dict(json.loads(run_tool(self._tool, "inspect", "--format", _STATE_FORMAT, self._name)))
        except (Unavailable, ValueError):
            return None


def _report(word: str, detail: str = "") -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(sys.stdout.fileno(), f"{word} {detail}".replace("\n", " ").encode() + b"\n")
