"""An engine whose agents are simulated in the calling process, on real spools and mailboxes.

It keeps the whole contract of engines and starts no process, so that tests of how a yard handles reports are fast and
control what happens when.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import count
from pathlib import Path
from threading import RLock
from typing import Any

from trainyard.engines.contract import AttemptRef, Capabilities, Capacity, InstanceRef, SpoolRead, refs_of
from trainyard.foundation.clock import Clock, to_micros, utc_now
from trainyard.foundation.errors import Conflict, NotFound
from trainyard.link.contract import Command, CommandKind, Frame, FrameKind, InstanceSpec
from trainyard.link.folders import InstanceFolder
from trainyard.link.mailbox import Mailbox
from trainyard.link.specs import read_spec, write_spec
from trainyard.link.spool import SpoolWriter, last_frame, read_frames

SMALL = Capacity.of_machine(slots=2, cpus=2.0, memory_bytes=8 * 1024**3)


class SimulatedAgent:
    """One agent on its folder. It lives until it ends, dies or is killed."""

    def __init__(self, folder: InstanceFolder, clock: Clock, spec: InstanceSpec | None = None) -> None:
        self.folder = folder
        self._clock = clock
        self._spec = spec

    @property
    def spec(self) -> InstanceSpec:
        self._spec = self._spec or read_spec(self.folder.root)
        return self._spec

    @property
    def is_alive(self) -> bool:
        return self.folder.agent.exists()

    def report(self, kind: FrameKind, /, **payload: Any) -> Frame:
        """Append one frame, as a live agent does."""
        assert self.is_alive, f"{self.folder.root} has no live agent that could report"
        with SpoolWriter(self.folder.spool) as spool:
            return spool.append(kind, payload, at_us=to_micros(self._clock()))

    def end(
        self,
        outcome: str = "completed",
        *,
        reason: str = "",
        card: Mapping[str, Any] | None = None,
        message: str = "",
    ) -> None:
        """Leave the last frame and exit."""
        self.report(FrameKind.ENDED, outcome=outcome, reason=reason, card=dict(card or {}), message=message)
        self.die()

    def die(self) -> None:
        """Exit without a report, as a killed agent does."""
        self.folder.agent.unlink(missing_ok=True)


AgentRole = Callable[[SimulatedAgent], None]


def run(agent: SimulatedAgent) -> None:
    """Simulate the start of a job, which runs until a command comes or the test ends it."""
    agent.report(FrameKind.STATUS, status="Downloading", message="Downloading the input channels")
    status = "Training" if agent.spec.processing is None else "Processing"
    agent.report(FrameKind.STATUS, status=status, message="")


def complete(agent: SimulatedAgent) -> None:
    """Simulate a job that succeeds, with all its reports at once."""
    run(agent)
    agent.report(FrameKind.EXITED, code=0, signal=None, is_oom=False)
    agent.report(FrameKind.STATUS, status="Uploading", message="")
    spec = agent.spec
    if spec.uploads:
        uri = f"{spec.output_path.rstrip('/')}/{spec.job_name}/output/model.tar.gz"
        agent.report(FrameKind.ARTIFACT, kind="model", uri=uri, size=1024)
    agent.end()


def fail(agent: SimulatedAgent) -> None:
    """Simulate a job whose program exits with 1."""
    run(agent)
    agent.report(FrameKind.EXITED, code=1, signal=None, is_oom=False)
    agent.end("failed", reason="The program ended with exit code 1.", card={"class": "user error"})


def vanish(agent: SimulatedAgent) -> None:
    """Simulate an instance that is lost during training."""
    run(agent)
    agent.die()


class SimulatedEngine:
    """Runs `role` for every instance that starts. A STOP or KILL ends those that still run as stopped."""

    def __init__(
        self,
        jobs: Path,
        *,
        name: str = "simulated",
        is_here: bool = True,
        role: AgentRole = complete,
        capacity: Capacity = SMALL,
        clock: Clock = utc_now,
    ) -> None:
        self.name = name
        self.is_here = is_here
        self.role = role
        # What `capabilities` returns.
        self.able = Capabilities()
        # Why no job can be isolated.
        self.obstacle = ""
        # The instances whose nodes went away.
        self.lost_nodes: set[InstanceRef] = set()
        self._jobs = jobs
        # What `capacity` returns. Tests change it to let nodes come and go.
        self.offered = capacity
        self._clock = clock
        self._lock = RLock()
        self._free_ports = count(20_000, 1_000)

    def make_ready(self) -> None:
        """Do nothing: it is always ready."""

    def capacity(self) -> Capacity:
        return self.offered

    def why_not_isolated(self, instances: int) -> str:  # noqa: ARG002 - any number reaches as little as one
        return self.obstacle

    def capabilities(self) -> Capabilities:
        return self.able

    def agent(self, instance: InstanceRef) -> SimulatedAgent:
        """Return the agent of an instance that was started, for a test to control."""
        return SimulatedAgent(self._folder(instance), self._clock)

    def start(self, specs: Sequence[InstanceSpec]) -> tuple[InstanceRef, ...]:
        refs = refs_of(specs)
        with self._lock:
            if self._ended_marker(refs[0].attempt).exists():
                raise Conflict("attempt", str(refs[0].attempt), "was ended and cannot be started again")
            port = max(spec.master_port for spec in specs) or next(self._free_ports)
            for ref, spec in zip(refs, specs, strict=True):
                self._start(self.agent(ref), replace(spec, master_port=port))
        return refs

    def reports(self, instance: InstanceRef, offset: int) -> SpoolRead:
        return read_frames(self._folder(instance).spool, offset)

    def command(self, instance: InstanceRef, kind: CommandKind, payload: Mapping[str, Any] | None = None) -> Command:
        with self._lock:
            agent = self.agent(instance)
            if not agent.folder.spec.exists():
                raise NotFound("instance", instance.name)
            command = Mailbox(agent.folder.mailbox).put(kind, payload)
            if agent.is_alive and kind is not CommandKind.PROFILE:
                agent.end("stopped", reason=str((payload or {}).get("reason", "")))
            return command

    def is_alive(self, instance: InstanceRef) -> bool:
        return self.agent(instance).is_alive

    def has_lost_node(self, instance: InstanceRef) -> bool:
        return instance in self.lost_nodes

    def end(self, attempt: AttemptRef, *, patience: timedelta = timedelta(0)) -> None:  # noqa: ARG002 - nothing waits
        with self._lock:
            attempt.folder(self._jobs).mkdir(parents=True, exist_ok=True)
            self._ended_marker(attempt).touch()
            for folder in attempt.instances(self._jobs):
                SimulatedAgent(folder, self._clock).die()

    def close(self) -> None:
        """Do nothing: everything is on disk."""

    def _start(self, agent: SimulatedAgent, spec: InstanceSpec) -> None:
        if agent.is_alive or last_frame(agent.folder.spool) is not None:
            return
        agent.folder.root.mkdir(parents=True, exist_ok=True)
        write_spec(agent.folder.root, spec)
        agent.folder.agent.touch()
        self.role(SimulatedAgent(agent.folder, self._clock, spec))

    def _folder(self, instance: InstanceRef) -> InstanceFolder:
        return instance.folder(self._jobs)

    def _ended_marker(self, attempt: AttemptRef) -> Path:
        return attempt.folder(self._jobs) / "ended"
