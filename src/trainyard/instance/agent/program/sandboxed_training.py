"""Runs the programs of an instance in a sandbox: first the installer, then the training program."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from trainyard.foundation.clock import boottime
from trainyard.foundation.jobs.status import RuleStatus
from trainyard.instance.agent.context import InstanceContext
from trainyard.instance.agent.data.channel_paths import ChannelMounts
from trainyard.instance.agent.data.pipes import PipeChannels
from trainyard.instance.agent.program.code import ProgramCommand, program_command
from trainyard.instance.agent.program.environment import cpu_count, find_executable
from trainyard.instance.agent.program.installation import Installation, Overlay, find_uv
from trainyard.instance.agent.program.launch import launcher_words, require_launchable, uses_mpirun
from trainyard.instance.agent.program.network import InstanceNetwork
from trainyard.instance.agent.program.package_indexes import PackageIndexes
from trainyard.instance.agent.program.sandbox import ProgramRunner, SandboxProgram
from trainyard.instance.agent.program.training import InstanceTraining
from trainyard.instance.agent.program.writable_environment import WritableEnvironment
from trainyard.instance.agent.reports import now_us
from trainyard.instance.agent.watch.debugger import Debugger
from trainyard.instance.agent.watch.rule_processes import DRAIN_S, STOPPED_DRAIN_S, RuleProcesses
from trainyard.instance.agent.watch.supervisor import RunEnd, Watch
from trainyard.instance.sandbox.contract import ML, Sandboxed
from trainyard.instance.warm.worker_selection import WorkerSelection
from trainyard.link.contract import INTERRUPTED, LEASE

_MPIRUN = "mpirun"


class SandboxedTraining(InstanceTraining):
    """Runs the training program in a sandbox, in the environment that the job's image maps to."""

    def __init__(
        self,
        context: InstanceContext,
        *,
        pipes: PipeChannels,
        network: InstanceNetwork,
        debugger: Debugger | None,
        watches: Sequence[Watch] = (),
    ) -> None:
        super().__init__(context, pipes=pipes, network=network, debugger=debugger, watches=watches)
        mounts = ChannelMounts(context.folder, context.spec.channels, owner=context.owner)
        self._runner = ProgramRunner(context, new_supervisor=self._new_supervisor, mounts=mounts, network=network)
        self._rule_processes = self._make_rule_processes()
        self._installation = Installation(context, runner=self._runner, on_start=self._note_limits)
        self._overlay: Overlay | None = None
        self._has_reported_packages = False

    @property
    def code_folder(self) -> str:
        return f"{self._runner.seen_as}/code"

    def run(self) -> RunEnd:
        """Install what the program needs, run it, and report how it ended.

        Raises CannotRun when either cannot be started or the installation fails, StopRequested when a command stops
        the installation.
        """
        code = self._folder.ml / "code"
        command = program_command(self._spec, code, is_package=bool(self._installation.packages.package))
        self.command = command.shown
        overlay = self._overlay = self._installation.overlay()
        mpirun = self._mpirun(overlay)
        if mpirun is None:
            require_launchable(self._spec, code)
        begun_us = now_us()
        try:
            with PackageIndexes(self._spec, self._context.yard_environment).settings() as settings:
                program = self._program(command, overlay, mpirun=mpirun, settings=settings)
                end = self._runner.run(program, on_start=self._begin)
            self._finish(end, begun_us)
            self._conclude_rules(end)
        finally:
            if self._rule_processes is not None:
                self._rule_processes.close()
        return end

    def _program(
        self, command: ProgramCommand, overlay: Overlay | None, *, mpirun: str | None, settings: Mapping[str, str]
    ) -> SandboxProgram:
        base = self._spec.program.interpreter or sys.executable
        interpreter: Callable[[str], str] = overlay.interpreter if overlay else lambda _: base
        return SandboxProgram(
            lambda seen_as: command.argv(interpreter(seen_as)),
            interpreter,
            self._spec.max_runtime_s,
            environment=WritableEnvironment(
                interpreter(ML),
                Path(base),
                mounts=overlay.binds if overlay else (),
                uv=find_uv(),
                settings=settings,
            ),
            launcher=lambda seen_as: launcher_words(
                self._spec,
                self._folder,
                seen_as=seen_as,
                python=interpreter(seen_as),
                cpus=cpu_count(self._spec),
                mpirun=mpirun,
            ),
            worker_selection=self._select_worker(command, overlay) if mpirun is None else None,
        )

    def _mpirun(self, overlay: Overlay | None) -> str | None:
        """The mpirun that starts the program; None when the environment has none or the job needs none."""
        if not uses_mpirun(self._spec):
            return None
        if overlay is not None and overlay.has_program(_MPIRUN):
            return str(Path(overlay.interpreter(ML)).with_name(_MPIRUN))
        return find_executable(_MPIRUN, Path(self._spec.program.interpreter or sys.executable).parent)

    def _make_rule_processes(self) -> RuleProcesses | None:
        if self._debugger is None:
            return None
        processes = RuleProcesses(self._context, runner=self._runner, debugger=self._debugger)
        self._debugger.on_poll(processes.poll)
        return processes

    def _select_worker(self, command: ProgramCommand, overlay: Overlay | None) -> WorkerSelection | None:
        """How a warm worker can start this program; None when none can or none is configured."""
        if self._spec.warm is None or not command.is_script:
            return None
        selection = WorkerSelection(
            self._spec.warm,
            python=self._spec.program.interpreter or sys.executable,
            code=self._folder.ml / "code",
            script=command.words[0],
            variables={**self._spec.environment, **self._spec.launch.variables},
            packages=overlay.names if overlay else (),
        )
        if selection.refusal is not None:
            self._context.reports.note(f"Programs are not started warm: {selection.refusal}")
        return selection

    def _note_limits(self, sandboxed: Sandboxed) -> None:
        self._note_once((*sandboxed.not_enforced, *self._runner.not_enforced))

    def _begin(self, sandboxed: Sandboxed) -> None:
        super()._begin(sandboxed)
        self._note_limits(sandboxed)
        if self._rule_processes is not None:
            self._rule_processes.start()
        self._report_packages()

    def _report_packages(self) -> None:
        """Report what is installed. The program runs already, so it does not wait for this."""
        if self._context.is_first and not self._has_reported_packages:
            self._has_reported_packages = True
            self._context.reports.report_environment(self._installation.installed_packages(self._overlay))

    def _conclude_rules(self, end: RunEnd) -> None:
        """Let the rule processes finish, then report the final state of all rules."""
        if self._debugger is None or self._rule_processes is None:
            return
        if not end.is_killed and end.stop_reason not in (INTERRUPTED, LEASE):
            timeout_s = STOPPED_DRAIN_S if end.stop_reason is not None else DRAIN_S
            self._rule_processes.wait_for_siblings(timeout_s, is_over=self._is_killed)
            if self._context.is_first:
                self._debugger.mark_end()
            self._rule_processes.finish(timeout_s, is_over=self._is_killed)
        self._rule_processes.close()
        self._debugger.drain_events(boottime())
        is_stopped = end.is_killed or (end.stop_reason is not None and self._debugger.stop_reason is None)
        self._debugger.conclude(RuleStatus.STOPPED if is_stopped else RuleStatus.NO_ISSUES_FOUND)

    def _is_killed(self) -> bool:
        return self._context.commands.is_killed_for(0.0)
