"""The local engine: each agent is a detached process of this machine, known by what lies in its instance's folder.

no lock held, no agent.json     not started; what an earlier engine prepared of it is started over
lock held, no agent.json        being born
agent.json                      started once and for all; alive as long as that very process is
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
from trainyard.engines.contract import AttemptRef, Capabilities, Capacity, InstanceRef, Read, refs_of
from trainyard.engines.local.births import Birth, spawn
from trainyard.engines.local.code import AgentCode, ensure_copy
from trainyard.engines.local.nursery import Nursery, NurseryLost
from trainyard.engines.local.ports import Ports
from trainyard.engines.local.processes import Deadline, kill, wait_for_end
from trainyard.engines.local.sweep import sweep_instance
from trainyard.foundation.errors import Conflict, NotFound, Unavailable
from trainyard.foundation.files import PRIVATE_FOLDER, alone_in, sync_folder
from trainyard.link.contract import Command, CommandKind, FrameKind, InstanceSpec
from trainyard.link.folders import InstanceFolder
from trainyard.link.holds import hold, is_held
from trainyard.link.mailbox import Mailbox
from trainyard.link.port_blocks import ports_of
from trainyard.link.presence import Presence, presence_of
from trainyard.link.specs import read_spec, write_spec
from trainyard.link.spool import last_frame, read_frames

log = logging.getLogger(__name__)

_PAUSE_S = 0.005
_TRIES = 10  # to get hold of a copy of the code
LEAVING_S = 5.0  # how long an agent that left its last frame may take to go by itself

# Of the machine's memory, this much is not given to jobs: the yard and the kernel need some.
_RESERVED_SHARE = 0.1
_RESERVED_MOST = 1024**3
_MEASURED_FOR_S = 1.0  # every create and every placement asks; the machine seldom changes


@dataclass(frozen=True, slots=True)
class _Birthplace:
    """What agents run from, and what forks them, if anything does."""

    code: AgentCode
    nursery: Nursery | None


class LocalEngine:
    """Runs instances under `jobs`, with agents from copies of their code under `agents`.

    `slots` is how many instances run at once, by default one for each core; `python` runs the agents. With `forks`
    they are forked from a process that has their code loaded; each is a Python of its own where that does not answer.
    With `orphans` it is no child of this process, for whoever ends this one may end its children too.
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
        self._ports = Ports()
        self._birthplace: _Birthplace | None = None
        self._keeping: weakref.finalize[[int], LocalEngine] | None = None  # lets go of the code of agents
        self._measured: tuple[float, Capacity] | None = None
        self._isolates = 0  # how many instances of a job are known to be isolated from all others

    def make_ready(self) -> None:
        try:
            nursery = self._agents_place().nursery
        except OSError as error:
            raise Unavailable(f"Agents have no code to run from: {error}.") from error
        if nursery is not None:
            nursery.start()

    def capacity(self) -> Capacity:
        measured, now = self._measured, time.monotonic()
        if measured is None or now - measured[0] > _MEASURED_FOR_S:
            self._measured = measured = now, self._capacity()
        return measured[1]

    def why_not_isolated(self, instances: int) -> str:
        if max(instances, 1) <= self._isolates:
            return ""
        answer = probe.ask_isolation(instances)
        if not answer.ok:  # asked again the next time: an administrator may change what the machine allows
            return f"this machine does not allow it ({answer.detail})"
        self._isolates = 1 if instances == 1 else sys.maxsize
        return ""

    def capabilities(self) -> Capabilities:
        return Capabilities(several_nodes="the engine has this machine alone")

    def start(self, specs: Sequence[InstanceSpec]) -> tuple[InstanceRef, ...]:
        refs = refs_of(specs)
        attempt = refs[0].attempt
        with self._locked(attempt):
            if self._ended(attempt).exists():
                raise Conflict("attempt", str(attempt), "was ended and cannot be started again")
            try:
                port = self._master_port(refs, specs)
                for ref, spec in zip(refs, specs, strict=True):
                    self._start(ref.folder(self._jobs), replace(spec, master_port=port))
            except OSError as error:
                self._end(attempt, Deadline(LEAVING_S))
                raise Unavailable(f"The instances of {attempt} cannot be started: {error}.") from error
        return refs

    def reports(self, instance: InstanceRef, offset: int) -> Read:
        return read_frames(instance.folder(self._jobs).spool, offset)

    def command(self, instance: InstanceRef, kind: CommandKind, payload: Mapping[str, Any] | None = None) -> Command:
        folder = instance.folder(self._jobs)
        if not folder.spec.exists():
            raise NotFound("instance", f"{instance.attempt}/{instance.name}")
        return Mailbox(folder.mailbox).put(kind, payload)

    def is_alive(self, instance: InstanceRef) -> bool:
        return _is_alive(instance.folder(self._jobs))

    def was_taken(self, instance: InstanceRef) -> bool:  # noqa: ARG002 - the machine is the yard's own
        return False

    def end(self, attempt: AttemptRef, *, patience: timedelta = timedelta(seconds=10)) -> None:
        with self._locked(attempt):
            self._end(attempt, Deadline(patience.total_seconds()))

    def close(self) -> None:
        with self._lock:
            self._birthplace = None  # and with it the nurse, which forked agents outlive
            if self._keeping is not None:
                self._keeping()

    def _capacity(self) -> Capacity:
        found = probe.capacity(self._jobs)
        reserved = min(_RESERVED_MOST, int(found.memory_bytes * _RESERVED_SHARE))
        slots = self._slots or max(1, int(found.cores))
        return Capacity.of_machine(slots, found.cores, found.memory_bytes - reserved, tuple(range(found.gpus)))

    def _master_port(self, refs: Sequence[InstanceRef], specs: Sequence[InstanceSpec]) -> int:
        """The one that the specs have, or that an earlier call gave to those it prepared, or one chosen now."""
        folders = [ref.folder(self._jobs) for ref in refs]
        known = [spec.master_port for spec in specs]
        known += [read_spec(each.root).master_port for each in folders if each.spec.exists()]
        return max(known) or self._ports.choose(refs[0].attempt, ports_of(len(specs)))

    def _agents_place(self) -> "_Birthplace":
        """Made once, which takes a copy of the code the first time that a version of it runs here."""
        with self._lock:
            if self._birthplace is None:
                code = self._kept_copy()
                self._birthplace = _Birthplace(code, Nursery(code, python=self._python) if self._forks else None)
            return self._birthplace

    def _kept_copy(self) -> AgentCode:
        """A copy that stays: another engine here, of code that was installed meanwhile, would otherwise remove it."""
        for _ in range(_TRIES):
            code = ensure_copy(self._agents)
            with contextlib.suppress(FileNotFoundError):  # removed in between
                kept = hold(code.in_use, shared=True)
                if kept is not None:
                    self._keeping = weakref.finalize(self, os.close, kept)
                    return code
        raise OSError(f"{self._agents} is being changed all the time")

    def _start(self, folder: InstanceFolder, spec: InstanceSpec) -> None:
        try:
            self._start_once(folder, spec, nursery=self._agents_place().nursery)
        except NurseryLost:  # now the lock tells whether the agent was born before that
            self._start_once(folder, spec, nursery=None)

    def _start_once(self, folder: InstanceFolder, spec: InstanceSpec, *, nursery: Nursery | None) -> None:
        if presence_of(folder.root) is not None:
            return
        folder.root.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        held = hold(folder.lock)
        if held is None:  # an earlier engine has just started it
            return
        with contextlib.closing(os.fdopen(held, "rb")):
            # Asked again under the lock: an agent that was being born until now has announced itself before it let go.
            if presence_of(folder.root) is None:
                write_spec(folder.root, spec)
                self._give_birth(folder, held, nursery=nursery)

    def _give_birth(self, folder: InstanceFolder, held: int, *, nursery: Nursery | None) -> None:
        code = self._agents_place().code
        using = hold(code.in_use, shared=True)
        if using is None:
            raise OSError(f"{code.folder} is being removed")
        with contextlib.closing(os.fdopen(using, "rb")), folder.agent_log.open("ab") as output:
            birth = Birth(folder.root, held, using, output.fileno())
            pid = nursery.bear(birth) if nursery is not None else None
            is_forked = pid is not None
            if pid is None:
                pid = spawn(birth, code, python=self._python, orphaned=self._orphans)
        log.info("agent started", extra={"instance": str(folder.root), "pid": pid, "forked": is_forked})

    def _end(self, attempt: AttemptRef, deadline: Deadline) -> None:
        try:
            self._mark_ended(attempt)
        except OSError:  # a full disk, on which there is room again when this attempt is cleared away
            self._clear_away(attempt, deadline)
            self._mark_ended(attempt)
        self._clear_away(attempt, deadline)
        self._ports.release(attempt)

    def _mark_ended(self, attempt: AttemptRef) -> None:
        self._ended(attempt).touch()
        sync_folder(attempt.folder(self._jobs))

    def _clear_away(self, attempt: AttemptRef, deadline: Deadline) -> None:
        folders = attempt.instances(self._jobs)
        for folder in folders:
            _make_leave(folder, deadline)
        for folder in folders:
            _prove_dead(folder, deadline)

    def _ended(self, attempt: AttemptRef) -> Path:
        return attempt.folder(self._jobs) / "ended"

    @contextlib.contextmanager
    def _locked(self, attempt: AttemptRef) -> Iterator[None]:
        """One call at a time starts or ends an attempt, also of engines in other processes."""
        folder = attempt.folder(self._jobs)
        folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        with alone_in(folder):
            yield


def _is_alive(folder: InstanceFolder) -> bool:
    presence = presence_of(folder.root)
    if presence is None and is_held(folder.lock):
        return True
    # Asked again, because it may have announced itself and let go of the lock in between.
    presence = presence or presence_of(folder.root)
    return presence is not None and presence.is_alive


def _make_leave(folder: InstanceFolder, deadline: Deadline) -> None:
    """Kill the agent, unless its last word is spoken and it goes by itself."""
    last = last_frame(folder.spool)
    has_ended = last is not None and last.kind is FrameKind.ENDED
    presence = _born(folder, deadline)
    if presence is None or (has_ended and wait_for_end(presence, Deadline(min(LEAVING_S, deadline.left_s)))):
        return
    kill(presence)


def _born(folder: InstanceFolder, deadline: Deadline) -> Presence | None:
    """Which process the agent is or was; one that is being born is waited for."""
    while is_held(folder.lock) and presence_of(folder.root) is None:
        if not deadline.left_s:
            raise Unavailable(f"An agent for {folder.root} is starting and has not said which process it is.")
        time.sleep(_PAUSE_S)
    return presence_of(folder.root)


def _prove_dead(folder: InstanceFolder, deadline: Deadline) -> None:
    """Wait for the agent, end what it made, and see that nobody has inherited its lock."""
    presence = presence_of(folder.root)
    if presence is not None and not wait_for_end(presence, deadline):
        raise Unavailable(f"Agent {presence.pid} of {folder.root} does not end.")
    sweep_instance(folder, deadline)
    while is_held(folder.lock):
        if not deadline.left_s:
            raise Unavailable(f"A process that the agent of {folder.root} started still runs.")
        time.sleep(_PAUSE_S)
