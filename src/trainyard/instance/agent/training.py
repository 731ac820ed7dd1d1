"""The programs of an instance: first the installation of what its program needs, then the program."""

import sys
from collections.abc import Callable
from pathlib import Path

from trainyard.foundation.clock import boottime
from trainyard.foundation.rule_status import RuleStatus
from trainyard.instance.agent.attendance import Attendance
from trainyard.instance.agent.code import ProgramCommand, program_command
from trainyard.instance.agent.debugging import Debugging
from trainyard.instance.agent.environment import cpu_count
from trainyard.instance.agent.executables import find_executable
from trainyard.instance.agent.installation import Installation, Overlay
from trainyard.instance.agent.judging import DRAIN_S, STOPPED_DRAIN_S, Judges
from trainyard.instance.agent.launching import launcher_words, require_launchable, uses_mpirun
from trainyard.instance.agent.layout import Owner
from trainyard.instance.agent.network import InstanceNetwork
from trainyard.instance.agent.orders import Orders
from trainyard.instance.agent.output import Output
from trainyard.instance.agent.pipes import Pipes
from trainyard.instance.agent.placing import ChannelPlaces
from trainyard.instance.agent.program import Program, ProgramRunner
from trainyard.instance.agent.reports import Reports, now_us
from trainyard.instance.agent.supervision import RunEnd
from trainyard.instance.sandbox.contract import ML, Sandboxed
from trainyard.instance.warm.warmth import Warmth
from trainyard.link.contract import INTERRUPTED, LEASE, InstanceSpec
from trainyard.link.folders import InstanceFolder

_MPIRUN = "mpirun"


class Training:
    """Runs the program of an instance once. `command` is how messages name it, from then on."""

    def __init__(
        self,
        folder: InstanceFolder,
        spec: InstanceSpec,
        *,
        output: Output,
        orders: Orders,
        reports: Reports,
        owner: Owner,
        pipes: Pipes,
        network: InstanceNetwork,
        debugging: Debugging | None = None,
    ) -> None:
        self.command = ""
        self._folder = folder
        self._spec = spec
        self._orders = orders
        self._reports = reports
        self._debugging = debugging
        self._attendance = Attendance(
            folder, spec, output=output, orders=orders, reports=reports, pipes=pipes, debugging=debugging
        )
        places = ChannelPlaces(folder, spec.channels, owner=owner)
        supervision = self._attendance.supervision
        self._runner = ProgramRunner(folder, spec, supervision=supervision, places=places, network=network)
        self._judges = self._judges_of(debugging)
        self._installation = Installation(
            folder,
            spec,
            runner=self._runner,
            output=output,
            orders=orders,
            reports=reports,
            owner=owner,
            on_start=self._note_limits,
        )

    @property
    def code_folder(self) -> str:
        """Where the program sees its code."""
        return f"{self._runner.seen_as}/code"

    def run(self) -> RunEnd:
        """Install what the program needs, run it, and report how it ended.

        CannotRun when one of them cannot be started or the installation fails; Ordered when that is stopped.
        """
        code = self._folder.ml / "code"
        command = program_command(self._spec, code, is_package=bool(self._installation.wanted.package))
        self.command = command.shown
        overlay = self._installation.overlay()
        mpirun = self._mpirun(overlay)
        if mpirun is None:
            require_launchable(self._spec, code)
        base = self._spec.program.interpreter or sys.executable
        interpreter: Callable[[str], str] = overlay.interpreter if overlay else lambda _: base
        program = Program(
            lambda seen_as: command.argv(interpreter(seen_as)),
            interpreter,
            self._spec.max_runtime_s,
            read_only=overlay.binds if overlay else (),
            launcher=lambda seen_as: launcher_words(
                self._spec,
                self._folder,
                seen_as=seen_as,
                python=interpreter(seen_as),
                cpus=cpu_count(self._spec),
                mpirun=mpirun,
            ),
            warmth=self._warmth(command, overlay) if mpirun is None else None,
        )
        begun_us = now_us()
        try:
            end = self._runner.run(program, on_start=self._begin)
            self._attendance.finish(end, begun_us)
            self._conclude_rules(end)
        finally:
            if self._judges is not None:
                self._judges.close()
        return end

    def _mpirun(self, overlay: Overlay | None) -> str | None:
        """The mpirun that starts the program; None where the environment has none, or needs none."""
        if not uses_mpirun(self._spec):
            return None
        if overlay is not None and overlay.has_program(_MPIRUN):
            return str(Path(overlay.interpreter(ML)).with_name(_MPIRUN))
        return find_executable(_MPIRUN, Path(self._spec.program.interpreter or sys.executable).parent)

    def _judges_of(self, debugging: Debugging | None) -> Judges | None:
        debugger = self._spec.debugger
        if debugger is None or debugging is None:
            return None
        judges = Judges(self._folder, self._spec, debugger, runner=self._runner, debugging=debugging)
        debugging.accompany(judges.look)
        return judges

    def _warmth(self, command: ProgramCommand, overlay: Overlay | None) -> Warmth | None:
        """What this program has of warm workers; None when it is not one that they can run, or there shall be none."""
        if self._spec.warm is None or not command.is_script:
            return None
        warmth = Warmth(
            self._spec.warm,
            python=self._spec.program.interpreter or sys.executable,
            code=self._folder.ml / "code",
            script=command.words[0],
            variables={**self._spec.environment, **self._spec.launch.variables},
            packages=overlay.names if overlay else (),
        )
        if warmth.refusal is not None:
            self._reports.note(f"Programs are not started warm: {warmth.refusal}")
        return warmth

    def _note_limits(self, sandboxed: Sandboxed) -> None:
        self._attendance.note((*sandboxed.not_enforced, *self._runner.not_enforced))

    def _begin(self, sandboxed: Sandboxed) -> None:
        self._attendance.begin(sandboxed)
        self._note_limits(sandboxed)
        if self._judges is not None:
            self._judges.begin()

    def _conclude_rules(self, end: RunEnd) -> None:
        """Let what judges beside the program come to its end, and report how the rules stand then."""
        if self._debugging is None or self._judges is None:
            return
        if not end.is_killed and end.stop_reason not in (INTERRUPTED, LEASE):
            patience_s = STOPPED_DRAIN_S if end.stop_reason is not None else DRAIN_S
            self._judges.await_others(patience_s, is_over=self._is_killed)
            if self._spec.instance == self._spec.hosts[0]:
                self._debugging.mark_end()
            self._judges.finish(patience_s, is_over=self._is_killed)
        self._judges.close()
        self._debugging.hear_out(boottime())
        is_stopped = end.is_killed or (end.stop_reason is not None and self._debugging.stop_reason is None)
        self._debugging.conclude(RuleStatus.STOPPED if is_stopped else RuleStatus.NO_ISSUES_FOUND)

    def _is_killed(self) -> bool:
        return self._orders.is_killed_for(0.0)
