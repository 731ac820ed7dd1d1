"""Starts the programs of an instance in sandboxes, and decides what they see there."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from trainyard.foundation.errors import InvalidRequest, Unavailable
from trainyard.foundation.home import process_start
from trainyard.instance.agent.context import InstanceContext
from trainyard.instance.agent.data.channel_paths import ChannelMounts
from trainyard.instance.agent.program.environment import ProgramPaths, program_environment
from trainyard.instance.agent.program.hosts import host_lines
from trainyard.instance.agent.program.launch import reports_bind, reports_folder
from trainyard.instance.agent.program.network import InstanceNetwork
from trainyard.instance.agent.program.writable_environment import WritableEnvironment
from trainyard.instance.agent.results.failure import CannotRun, FailureKind
from trainyard.instance.agent.watch.stacks import STACKS
from trainyard.instance.agent.watch.supervisor import ProgramSupervisor, RunEnd
from trainyard.instance.compat import compat_path, package_mount, package_path
from trainyard.instance.launch import stacks
from trainyard.instance.launch.import_watcher import HOOK, PACKAGE, RECORD_BYTES, WORKER, WORKERS
from trainyard.instance.sandbox.contract import ML, Bind, CopyOnWriteUnavailable, Isolation, Sandboxed, SandboxRequest
from trainyard.instance.sandbox.launcher import footprint, launch
from trainyard.instance.sandbox.view import visible_paths
from trainyard.instance.warm.worker_selection import WorkerSelection
from trainyard.link.contract import InstanceSpec, LimitSpec
from trainyard.link.folders import extra_folders
from trainyard.link.ledger import Ledger, LedgerKind


@dataclass(frozen=True, slots=True)
class SandboxProgram:
    """A program to run in a sandbox.

    The command line and the interpreter depend on the path where the program sees the ml folder, so they are functions
    of it. `variables` are defaults that the job's environment overrides. A program that `is_lone` cannot even reach the
    other instances of an isolated job. `launcher` returns the words that start it as several ranks. Without
    `worker_selection` it starts cold. With `environment` it may install packages.
    """

    argv: Callable[[str], Sequence[str]]
    interpreter: Callable[[str], str]
    limit_s: float | None = None
    read_only: Sequence[Bind] = ()
    writable: Sequence[Bind] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    is_lone: bool = False
    launcher: Callable[[str], Sequence[str]] = lambda _: ()
    worker_selection: WorkerSelection | None = None
    environment: WritableEnvironment | None = None


class ProgramRunner:
    """Runs the programs of one instance in the best sandbox this machine allows.

    Without namespaces that is a process group; `Sandboxed.not_enforced` lists what it does not enforce.
    """

    def __init__(
        self,
        context: InstanceContext,
        *,
        new_supervisor: Callable[[float | None], ProgramSupervisor],
        mounts: ChannelMounts,
        network: InstanceNetwork,
    ) -> None:
        self._folder = context.folder
        self._spec = context.spec
        self._new_supervisor = new_supervisor
        self._mounts = mounts
        self._network = network
        self._ledger = Ledger(context.folder.ledger)
        self._isolation = Isolation.NAMESPACES
        self._has_run = False
        self._count = 0

    @property
    def seen_as(self) -> str:
        """The path where programs see the ml folder."""
        return ML if self.is_sandboxed else str(self._folder.ml)

    @property
    def is_sandboxed(self) -> bool:
        """Whether programs see the ml folder as /opt/ml, and none of the machine's own folders."""
        return self._isolation is Isolation.NAMESPACES

    @property
    def not_enforced(self) -> Sequence[str]:
        """Sentences about what programs could do to their channels although they must not."""
        return self._mounts.not_enforced

    def run(self, program: SandboxProgram, *, on_start: Callable[[Sandboxed], None]) -> RunEnd:
        """Run a program to its end; CannotRun when it cannot be started. Calls `on_start` once it runs."""

        def record_start(sandboxed: Sandboxed) -> None:
            self._has_run = True
            self._ledger.add(LedgerKind.PROCESS, pid=sandboxed.pid, started=process_start(sandboxed.pid) or "")
            on_start(sandboxed)

        try:
            return self._run(program, record_start)
        except InvalidRequest as error:
            raise CannotRun(error.message, FailureKind.USER_ERROR) from error
        except Unavailable as error:
            self._fall_back(error)
        return self.run(program, on_start=on_start)

    def start_beside(self, program: SandboxProgram, *, output: int, limits: LimitSpec) -> Sandboxed:
        """Start a second program while the first one runs. It sees the same files except the channels.

        The caller must end it. Raises what `launch` raises.
        """
        full_request = self._request(program)
        environment = {name: value for name, value in full_request.environment.items() if name != HOOK}
        request = replace(
            full_request,
            environment={**environment, **program.variables},
            read_only=[package_mount(), *program.read_only],
            copy_on_write=(),
            writable=[Bind(source, target) for target, source in extra_folders(self._folder, self._spec).items()],
            limits=limits,
        )
        for group in footprint(request):
            self._ledger.add(LedgerKind.CGROUP, path=str(group))
        sandboxed = launch(request, output)
        self._ledger.add(LedgerKind.PROCESS, pid=sandboxed.pid, started=process_start(sandboxed.pid) or "")
        return sandboxed

    def _fall_back(self, error: Unavailable) -> None:
        """Give up the feature that the machine refuses; CannotRun when it allowed it before, or none is left."""
        if self._has_run or self._isolation is Isolation.PROCESS_GROUP:
            raise CannotRun(error.message, FailureKind.INTERNAL) from error
        if isinstance(error, CopyOnWriteUnavailable):
            self._mounts.place_files()
            return
        if self._spec.is_isolated:
            raise CannotRun(
                f"The job asks for EnableNetworkIsolation, which needs namespaces. {error.message}",
                FailureKind.INTERNAL,
            ) from error
        if self._spec.processing is not None:
            raise CannotRun(
                f"Processing jobs find their data under {ML}/processing, and this machine allows no namespaces that "
                f"could show it there. {error.message}",
                FailureKind.INTERNAL,
            ) from error
        if self._spec.extra_paths:
            raise CannotRun(
                f"This machine allows no namespaces, so no folder can be mounted as {self._spec.extra_paths[0]}; use "
                f"one under {ML}.",
                FailureKind.USER_ERROR,
            ) from error
        self._mounts.place_all()
        self._isolation = Isolation.PROCESS_GROUP

    def _run(self, program: SandboxProgram, on_start: Callable[[Sandboxed], None]) -> RunEnd:
        request = self._request(program)
        for group in footprint(request):
            self._ledger.add(LedgerKind.CGROUP, path=str(group))

        def prepare_worker(sandboxed: Sandboxed) -> None:
            on_start(sandboxed)
            if (
                program.worker_selection is not None
                and not sandboxed.is_warm
                and self._isolation is Isolation.NAMESPACES
            ):
                program.worker_selection.prepare_worker(request.environment)

        return self._new_supervisor(program.limit_s).run(
            lambda pipe: launch(request, pipe.writer),
            folders=lambda: [bind.source for bind in program.writable],
            on_start=prepare_worker,
        )

    def _request(self, program: SandboxProgram) -> SandboxRequest:
        spec, seen_as = self._spec, self.seen_as
        self._count += 1
        temporary = "/tmp" if seen_as == ML else str(self._folder.scratch / "tmp")
        base = Path(spec.program.interpreter or sys.executable)
        interpreter = Path(program.interpreter(seen_as))
        programs = [str(base.parent)] if interpreter != base else []
        paths = ProgramPaths(seen_as, temporary, interpreter, programs)
        writable = program.environment if self.is_sandboxed else None
        environment = {
            **program.variables,
            **(writable.variables if writable else {}),
            **program_environment(spec, paths),
        }
        if writable and writable.settings:
            _reach_this_machine_directly(environment)
        hidden = [Path(path) for path in spec.hidden]
        changes = self._folder.scratch / "environment" / str(self._count)
        copies = writable.copies(changes, hidden) if writable else []
        environment["PYTHONPATH"] += f":{compat_path(seen_as)}"
        environment[stacks.VARIABLE] = f"{reports_folder(self._folder, seen_as)}/{STACKS}"
        if spec.debugger is not None or spec.profiler is not None:
            environment |= {
                HOOK: seen_as,
                PACKAGE: package_path(seen_as),
                **_worker_variables(spec),
                **_record_memory_variables(spec),
            }
        request = SandboxRequest(
            name=f"{spec.job_id}-{spec.attempt}-{spec.instance}-{self._count}",
            argv=program.argv(seen_as),
            launcher=program.launcher(seen_as),
            environment=environment,
            ml_folder=self._folder.ml,
            scratch_folder=self._folder.scratch,
            working_folder=f"{seen_as}/code",
            interpreter=base,
            read_only=[
                package_mount(),
                *self._mounts.read_only,
                *program.read_only,
                *(writable.binds if writable else ()),
            ],
            writable=[
                *(Bind(source, target) for target, source in extra_folders(self._folder, spec).items()),
                reports_bind(self._folder),
                *self._mounts.writable,
                *program.writable,
            ],
            copy_on_write=[*self._mounts.copy_on_write, *copies],
            hidden=[*hidden, *(writable.unreadable_entries() if writable and os.geteuid() == 0 else ())],
            files=writable.files if writable else {},
            hostname=spec.instance,
            hosts=host_lines(spec),
            uid=spec.uid,
            gid=spec.uid,
            limits=spec.limits,
            isolation=self._isolation,
        )
        forker = (
            program.worker_selection.find_forker(lambda: visible_paths(request))
            if program.worker_selection is not None
            else None
        )
        return replace(request, forker=forker, network=self._network.for_program(forker, is_lone=program.is_lone))


def _reach_this_machine_directly(environment: dict[str, str]) -> None:
    """Let installers reach the agent's proxy for indexes where the job's environment names another proxy."""
    if any(name.lower() in ("http_proxy", "all_proxy") for name in environment):
        for name in ("no_proxy", "NO_PROXY"):
            environment[name] = ",".join(filter(None, (environment.get(name, ""), "127.0.0.1")))


def _worker_variables(spec: InstanceSpec) -> dict[str, str]:
    """Variables that number the program among the job's workers, when no launcher gives it a rank."""
    alone = [host for host in spec.hosts if host not in spec.launch.processes]
    if spec.instance not in alone:
        return {}
    ranks = sum(spec.launch.processes.values())
    return {WORKER: str(ranks + alone.index(spec.instance)), WORKERS: str(ranks + len(alone))}


def _record_memory_variables(spec: InstanceSpec) -> dict[str, str]:
    """The memory in which each process may record its last steps: a tenth of the job's memory for all together."""
    share = (spec.limits.memory_bytes or _available_bytes()) // 10
    return {RECORD_BYTES: str(share // max(1, spec.launch.processes.get(spec.instance, 1)))}


def _available_bytes() -> int:
    with Path("/proc/meminfo").open(encoding="ascii") as file:
        kib = next((line.split()[1] for line in file if line.startswith("MemAvailable:")), "0")
    return int(kib) * 1024
