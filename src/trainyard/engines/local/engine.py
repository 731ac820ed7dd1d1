"""The local engine: each agent is a detached process of this machine, and its instance's folder shows its state.

no lock held, no agent.json     not started; an engine starts over if an earlier one had begun
lock held, no agent.json        starting
agent.json                      started, and never again; alive as long as that very process is
"""

import contextlib
import logging
import os
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from trainyard.engines import probe
from trainyard.engines.contract import AttemptRef, Capabilities, Capacity, InstanceRef, SpoolRead, refs_of
from trainyard.engines.local.agent_launch import AgentLaunch, spawn_agent
from trainyard.engines.local.code import AgentCode, ensure_agent_code
from trainyard.engines.local.fork_server_client import ForkServerClient, ForkServerLost
from trainyard.engines.local.ports import PortAllocator
from trainyard.engines.local.processes import Deadline, kill, wait_for_end
from trainyard.engines.local.sweep import sweep_instance
from trainyard.foundation.errors import Conflict, NotFound, Unavailable
from trainyard.foundation.files import PRIVATE_FOLDER, lock_folder, sync_folder
from trainyard.link.agent_process import ProcessIdentity, find_agent_process
from trainyard.link.contract import Command, CommandKind, FrameKind, InstanceSpec
from trainyard.link.file_locks import hold, is_held
from trainyard.link.folders import InstanceFolder
from trainyard.link.mailbox import Mailbox
from trainyard.link.port_blocks import ports_needed
from trainyard.link.specs import read_spec, write_spec
from trainyard.link.spool import last_frame, read_frames

log = logging.getLogger(__name__)

_POLL_INTERVAL_S = 0.005
# How often to try to hold a copy of the code that another engine may be removing.
_HOLD_TRIES = 10
# How long an agent that left its last frame may take to exit by itself.
EXIT_GRACE_S = 5.0

# Memory that jobs do not get, because the yard and the kernel need some.
_RESERVED_MEMORY_FRACTION = 0.1
_MAX_RESERVED_BYTES = 1024**3
# Every create call and every placement asks for the capacity, which seldom changes.
_CAPACITY_TTL_S = 1.0


@dataclass(frozen=True, slots=True)
class _AgentSource:
    """The code that agents run from, and the fork server, if there is one."""

    code: AgentCode
    fork_server: ForkServerClient | None


class LocalEngine:
    """Runs instances under `jobs`, with agents from copies of their code under `agents`.

    `slots` is how many instances run at once, by default one per core; `python` runs the agents. With `forks`, a fork
    server that has their code loaded forks them; if it does not answer, an agent starts in a new Python. With
    `orphans`, agents are not children of this process, in case something ends it together with its children.
    """

    name = "local"
    is_here = True

    def __init__(
        self,
        jobs: Path,
        agents: Path,
        *,
        slots: int | None = None,
        python: str = sys.executable,
        forks: bool = True,
        orphans: bool = False,
    ) -> None:
        self._jobs = jobs
        self._agents = agents
        self._slots = slots
        self._python = python
        self._forks = forks
        self._orphans = orphans
        self._lock = threading.Lock()
        self._ports = PortAllocator()
        self._source: _AgentSource | None = None
        self._release_code: weakref.finalize[[int], LocalEngine] | None = None
        self._measured: tuple[float, Capacity] | None = None
        # The largest job, in instances, that is known to be isolatable.
        self._isolated_instances = 0

    def make_ready(self) -> None:
        try:
            fork_server = self._agent_source().fork_server
        except OSError as error:
            raise Unavailable(f"The copy of the agents' code cannot be made: {error}.") from error
        if fork_server is not None:
            fork_server.start()

    def capacity(self) -> Capacity:
        measured, now = self._measured, time.monotonic()
        if measured is None or now - measured[0] > _CAPACITY_TTL_S:
            self._measured = measured = now, self._capacity()
        return measured[1]

    def why_not_isolated(self, instances: int) -> str:
        if max(instances, 1) <= self._isolated_instances:
            return ""
        answer = probe.probe_isolation(instances)
        if not answer.ok:
            # Not remembered: an administrator may change what the machine allows.
            return f"this machine does not allow it ({answer.detail})"
        self._isolated_instances = 1 if instances == 1 else sys.maxsize
        return ""

    def capabilities(self) -> Capabilities:
        return Capabilities(several_nodes="the engine has only this machine")

    def start(self, specs: Sequence[InstanceSpec]) -> tuple[InstanceRef, ...]:
        refs = refs_of(specs)
        attempt = refs[0].attempt
        with self._lock_attempt(attempt):
            if self._ended_marker(attempt).exists():
                raise Conflict("attempt", str(attempt), "was ended and cannot be started again")
            try:
                port = self._master_port(refs, specs)
                for ref, spec in zip(refs, specs, strict=True):
                    self._start(ref.folder(self._jobs), replace(spec, master_port=port))
            except OSError as error:
                self._end(attempt, Deadline(EXIT_GRACE_S))
                raise Unavailable(f"The instances of {attempt} cannot be started: {error}.") from error
        return refs

    def reports(self, instance: InstanceRef, offset: int) -> SpoolRead:
        return read_frames(instance.folder(self._jobs).spool, offset)

    def command(self, instance: InstanceRef, kind: CommandKind, payload: Mapping[str, Any] | None = None) -> Command:
        folder = instance.folder(self._jobs)
        if not folder.spec.exists():
            raise NotFound("instance", f"{instance.attempt}/{instance.name}")
        return Mailbox(folder.mailbox).put(kind, payload)

    def is_alive(self, instance: InstanceRef) -> bool:
        return _is_alive(instance.folder(self._jobs))

    def has_lost_node(self, instance: InstanceRef) -> bool:  # noqa: ARG002 - the machine is the yard's own
        return False

    def end(self, attempt: AttemptRef, *, patience: timedelta = timedelta(seconds=10)) -> None:
        with self._lock_attempt(attempt):
            self._end(attempt, Deadline(patience.total_seconds()))

    def close(self) -> None:
        with self._lock:
            # This also ends the fork server. Agents that it forked keep running.
            self._source = None
            if self._release_code is not None:
                self._release_code()

    def _capacity(self) -> Capacity:
        found = probe.measure_capacity(self._jobs)
        reserved = min(_MAX_RESERVED_BYTES, int(found.memory_bytes * _RESERVED_MEMORY_FRACTION))
        slots = self._slots or max(1, int(found.cores))
        return Capacity.of_machine(slots, found.cores, found.memory_bytes - reserved, tuple(range(found.gpus)))

    def _master_port(self, refs: Sequence[InstanceRef], specs: Sequence[InstanceSpec]) -> int:
        """Return the port in the specs, or the one that an earlier call wrote for the attempt, or a new one."""
        folders = [ref.folder(self._jobs) for ref in refs]
        known = [spec.master_port for spec in specs]
        known += [read_spec(each.root).master_port for each in folders if each.spec.exists()]
        return max(known) or self._ports.allocate(refs[0].attempt, ports_needed(len(specs)))

    def _agent_source(self) -> "_AgentSource":
        """Return the code and the fork server. The first call with a new version copies the code."""
        with self._lock:
            if self._source is None:
                code = self._hold_agent_code()
                self._source = _AgentSource(code, ForkServerClient(code, python=self._python) if self._forks else None)
            return self._source

    def _hold_agent_code(self) -> AgentCode:
        """Hold a copy of the code, or another engine here, of a version installed later, would remove it."""
        for _ in range(_HOLD_TRIES):
            code = ensure_agent_code(self._agents)
            # Another engine may have removed it in between.
            with contextlib.suppress(FileNotFoundError):
                kept = hold(code.lock_file, shared=True)
                if kept is not None:
                    self._release_code = weakref.finalize(self, os.close, kept)
                    return code
        raise OSError(f"other processes keep changing {self._agents}")

    def _start(self, folder: InstanceFolder, spec: InstanceSpec) -> None:
        try:
            self._start_once(folder, spec, fork_server=self._agent_source().fork_server)
        except ForkServerLost:
            # Now the lock shows whether the agent was forked before that.
            self._start_once(folder, spec, fork_server=None)

    def _start_once(self, folder: InstanceFolder, spec: InstanceSpec, *, fork_server: ForkServerClient | None) -> None:
        if find_agent_process(folder.root) is not None:
            return
        folder.root.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        held = hold(folder.lock)
        if held is None:
            # An earlier engine has just started it.
            return
        with contextlib.closing(os.fdopen(held, "rb")):
            # Checked again under the lock: an agent that was starting announced itself before it released the lock.
            if find_agent_process(folder.root) is None:
                write_spec(folder.root, spec)
                self._launch_agent(folder, held, fork_server=fork_server)

    def _launch_agent(self, folder: InstanceFolder, held: int, *, fork_server: ForkServerClient | None) -> None:
        code = self._agent_source().code
        using = hold(code.lock_file, shared=True)
        if using is None:
            raise OSError(f"{code.folder} is being removed")
        with contextlib.closing(os.fdopen(using, "rb")), folder.agent_log.open("ab") as output:
            launch = AgentLaunch(folder.root, held, using, output.fileno())
            pid = fork_server.fork_agent(launch) if fork_server is not None else None
            is_forked = pid is not None
            if pid is None:
                pid = spawn_agent(launch, code, python=self._python, orphaned=self._orphans)
        log.info("agent started", extra={"instance": str(folder.root), "pid": pid, "forked": is_forked})

    def _end(self, attempt: AttemptRef, deadline: Deadline) -> None:
        try:
            self._mark_ended(attempt)
        except OSError:
            # On a full disk, clearing the attempt away makes room for the mark.
            self._sweep_attempt(attempt, deadline)
            self._mark_ended(attempt)
        self._sweep_attempt(attempt, deadline)
        self._ports.release(attempt)

    def _mark_ended(self, attempt: AttemptRef) -> None:
        self._ended_marker(attempt).touch()
        sync_folder(attempt.folder(self._jobs))

    def _sweep_attempt(self, attempt: AttemptRef, deadline: Deadline) -> None:
        folders = attempt.instances(self._jobs)
        for folder in folders:
            _end_agent(folder, deadline)
        for folder in folders:
            _confirm_dead(folder, deadline)

    def _ended_marker(self, attempt: AttemptRef) -> Path:
        return attempt.folder(self._jobs) / "ended"

    @contextlib.contextmanager
    def _lock_attempt(self, attempt: AttemptRef) -> Iterator[None]:
        """Let one call at a time start or end an attempt, even with engines in other processes."""
        folder = attempt.folder(self._jobs)
        folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        with lock_folder(folder):
            yield


def _is_alive(folder: InstanceFolder) -> bool:
    presence = find_agent_process(folder.root)
    if presence is None and is_held(folder.lock):
        return True
    # Read again, because it may have announced itself and released the lock in between.
    presence = presence or find_agent_process(folder.root)
    return presence is not None and presence.is_alive


def _end_agent(folder: InstanceFolder, deadline: Deadline) -> None:
    """Kill the agent, unless it left its last frame and exits by itself."""
    last = last_frame(folder.spool)
    has_ended = last is not None and last.kind is FrameKind.ENDED
    presence = _wait_for_presence(folder, deadline)
    if presence is None or (has_ended and wait_for_end(presence, Deadline(min(EXIT_GRACE_S, deadline.left_s)))):
        return
    kill(presence)


def _wait_for_presence(folder: InstanceFolder, deadline: Deadline) -> ProcessIdentity | None:
    """Return which process the agent is or was. Waits for an agent that is starting."""
    while is_held(folder.lock) and find_agent_process(folder.root) is None:
        if not deadline.left_s:
            raise Unavailable(f"An agent for {folder.root} is starting and has not announced its process id.")
        time.sleep(_POLL_INTERVAL_S)
    return find_agent_process(folder.root)


def _confirm_dead(folder: InstanceFolder, deadline: Deadline) -> None:
    """Wait for the agent to end, clear away what it made, and check that no process has inherited its lock."""
    presence = find_agent_process(folder.root)
    if presence is not None and not wait_for_end(presence, deadline):
        raise Unavailable(f"Agent {presence.pid} of {folder.root} does not end.")
    sweep_instance(folder, deadline)
    while is_held(folder.lock):
        if not deadline.left_s:
            raise Unavailable(f"A process that the agent of {folder.root} started still runs.")
        time.sleep(_POLL_INTERVAL_S)
