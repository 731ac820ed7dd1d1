"""The sandboxes of an instance: what its programs see, and how they are started."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from trainyard.foundation.errors import InvalidRequest, Unavailable
from trainyard.foundation.home import process_start
from trainyard.instance.agent.environment import Surroundings, program_environment
from trainyard.instance.agent.failure import CannotRun, FailureKind
from trainyard.instance.agent.hosts import host_lines
from trainyard.instance.agent.launching import reports_bind, reports_folder
from trainyard.instance.agent.network import InstanceNetwork
from trainyard.instance.agent.placing import ChannelPlaces
from trainyard.instance.agent.stacks import STACKS
from trainyard.instance.agent.supervision import RunEnd, Supervision
from trainyard.instance.compat import seen_package, shown_package, stand_ins
from trainyard.instance.launch import stacks
from trainyard.instance.launch.attaching import HOOK, PACKAGE, RECORD_BYTES, WORKER, WORKERS
from trainyard.instance.sandbox.contract import ML, Bind, CannotLayer, Isolation, Sandboxed, SandboxRequest
from trainyard.instance.sandbox.launcher import footprint, launch
from trainyard.instance.sandbox.view import shown_places
from trainyard.instance.warm.warmth import Warmth
from trainyard.link.contract import InstanceSpec, LimitSpec
from trainyard.link.folders import InstanceFolder
from trainyard.link.ledger import Ledger, LedgerKind
from trainyard.link.places import extra_folders


@dataclass(frozen=True, slots=True)
class Program:
    """A program as a function of where it sees /opt/ml: its command line, and the Python whose environment it is in."""

    argv: Callable[[str], Sequence[str]]
    interpreter: Callable[[str], str]
    limit_s: float | None = None
    read_only: Sequence[Bind] = ()
    writable: Sequence[Bind] = ()
    variables: Mapping[str, str] = field(default_factory=dict)  # where the job says nothing else
    is_lone: bool = False  # where the job is isolated, reaches not even its other instances
    launcher: Callable[[str], Sequence[str]] = lambda _: ()  # words by which it becomes several ranks
    warmth: Warmth | None = None  # None starts it cold


class ProgramRunner:
    """Runs the programs of one instance in the best sandbox this machine allows.

    Where no namespaces are allowed that is a process group; what it does not enforce, `Sandboxed.not_enforced` says.
    """

    def __init__(
        self,
        folder: InstanceFolder,
        spec: InstanceSpec,
        *,
        supervision: Supervision,
        places: ChannelPlaces,
        network: InstanceNetwork,
    ) -> None:
        self._folder = folder
        self._spec = spec
        self._supervision = supervision
        self._places = places
        self._network = network
        self._ledger = Ledger(folder.ledger)
        self._isolation = Isolation.NAMESPACES
        self._has_run = False
        self._count = 0

    @property
    def seen_as(self) -> str:
        """The path by which programs know the ml folder."""
        return ML if self.is_sandboxed else str(self._folder.ml)

    @property
    def is_sandboxed(self) -> bool:
        """Whether programs see the ml folder as /opt/ml, and nothing of the machine's folders."""
        return self._isolation is Isolation.NAMESPACES

    @property
    def not_enforced(self) -> Sequence[str]:
        """What the programs could do to their channels although they must not, in sentences."""
        return self._places.not_enforced

    def run(self, program: Program, *, on_start: Callable[[Sandboxed], None]) -> RunEnd:
        """Run a program to its end; `on_start` is called when it runs. CannotRun when it cannot even be started."""

        def started(sandboxed: Sandboxed) -> None:
            self._has_run = True
            self._ledger.add(LedgerKind.PROCESS, pid=sandboxed.pid, started=process_start(sandboxed.pid) or "")
            on_start(sandboxed)

        try:
            return self._run(program, started)
        except InvalidRequest as error:
            raise CannotRun(error.message, FailureKind.USER_ERROR) from error
        except Unavailable as error:
            self._fall_back(error)
        return self.run(program, on_start=on_start)

    def start_beside(self, program: Program, *, output: int, limits: LimitSpec) -> Sandboxed:
        """Start another program while the first one runs, which sees the same but for the channels.

        The caller ends it. Raises what `launch` raises.
        """
        request = self._request(program)
        environment = {name: value for name, value in request.environment.items() if name != HOOK}
        beside = replace(
            request,
            environment={**environment, **program.variables},
            read_only=[shown_package(), *program.read_only],
            copy_on_write=(),
            writable=[Bind(place, path) for path, place in extra_folders(self._folder, self._spec).items()],
            limits=limits,
        )
        for group in footprint(beside):
            self._ledger.add(LedgerKind.CGROUP, path=str(group))
        started = launch(beside, output)
        self._ledger.add(LedgerKind.PROCESS, pid=started.pid, started=process_start(started.pid) or "")
        return started

    def _fall_back(self, error: Unavailable) -> None:
        """Do without what the machine refuses; CannotRun when it never refused that before, or refuses all."""
        if self._has_run or self._isolation is Isolation.PROCESS_GROUP:
            raise CannotRun(error.message, FailureKind.INTERNAL) from error
        if isinstance(error, CannotLayer):
            self._places.place_files()
            return
        if self._spec.is_isolated:
            raise CannotRun(
                f"The job asks for EnableNetworkIsolation, which cannot be had without namespaces. {error.message}",
                FailureKind.INTERNAL,
            ) from error
        if self._spec.extra_paths:
            raise CannotRun(
                f"This machine allows no namespaces, without which no program can be shown a folder as "
                f"{self._spec.extra_paths[0]}; use one under {ML}.",
                FailureKind.USER_ERROR,
            ) from error
        self._places.place_all()
        self._isolation = Isolation.PROCESS_GROUP

    def _run(self, program: Program, on_start: Callable[[Sandboxed], None]) -> RunEnd:
        request = self._request(program)
        for group in footprint(request):
            self._ledger.add(LedgerKind.CGROUP, path=str(group))

        def started(sandboxed: Sandboxed) -> None:
            on_start(sandboxed)
            if program.warmth is not None and not sandboxed.is_warm and self._isolation is Isolation.NAMESPACES:
                program.warmth.make_ready(request.environment)

        return self._supervision.run(
            lambda pipe: launch(request, pipe.writer),
            limit_s=program.limit_s,
            folders=lambda: [bind.source for bind in program.writable],
            on_start=started,
        )

    def _request(self, program: Program) -> SandboxRequest:
        spec, seen_as = self._spec, self.seen_as
        self._count += 1
        temporary = "/tmp" if seen_as == ML else str(self._folder.scratch / "tmp")
        surroundings = Surroundings(seen_as, temporary, Path(program.interpreter(seen_as)))
        environment = {**program.variables, **program_environment(spec, surroundings)}
        environment["PYTHONPATH"] += f":{stand_ins(seen_as)}"
        environment[stacks.VARIABLE] = f"{reports_folder(self._folder, seen_as)}/{STACKS}"
        if spec.debugger is not None:
            environment |= {HOOK: seen_as, PACKAGE: seen_package(seen_as), **_worker(spec), **_memory(spec)}
        request = SandboxRequest(
            name=f"{spec.job_id}-{spec.attempt}-{spec.instance}-{self._count}",
            argv=program.argv(seen_as),
            launcher=program.launcher(seen_as),
            environment=environment,
            ml_folder=self._folder.ml,
            scratch_folder=self._folder.scratch,
            working_folder=f"{seen_as}/code",
            interpreter=Path(self._spec.program.interpreter or sys.executable),
            read_only=[shown_package(), *self._places.read_only, *program.read_only],
            writable=[
                *(Bind(place, path) for path, place in extra_folders(self._folder, spec).items()),
                reports_bind(self._folder),
                *self._places.writable,
                *program.writable,
            ],
            copy_on_write=self._places.copy_on_write,
            hidden=[Path(path) for path in spec.hidden],
            hostname=spec.instance,
            hosts=host_lines(spec),
            uid=spec.uid,
            gid=spec.uid,
            limits=spec.limits,
            isolation=self._isolation,
        )
        forker = program.warmth.forker(lambda: shown_places(request)) if program.warmth is not None else None
        return replace(request, forker=forker, network=self._network.for_program(forker, is_lone=program.is_lone))


def _worker(spec: InstanceSpec) -> dict[str, str]:
    """Which worker of the job the program is, where no launcher gives it a rank."""
    alone = [host for host in spec.hosts if host not in spec.launch.processes]
    if spec.instance not in alone:
        return {}
    ranks = sum(spec.launch.processes.values())
    return {WORKER: str(ranks + alone.index(spec.instance)), WORKERS: str(ranks + len(alone))}


def _memory(spec: InstanceSpec) -> dict[str, str]:
    """What each process may take of the memory to keep its last steps: together a tenth of what the job has."""
    share = (spec.limits.memory_bytes or _available_bytes()) // 10
    return {RECORD_BYTES: str(share // max(1, spec.launch.processes.get(spec.instance, 1)))}


def _available_bytes() -> int:
    with Path("/proc/meminfo").open(encoding="ascii") as file:
        kib = next((line.split()[1] for line in file if line.startswith("MemAvailable:")), "0")
    return int(kib) * 1024
