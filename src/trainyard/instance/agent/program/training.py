"""What the training program of an instance needs wherever it runs: supervision, metrics, pipes and reports."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from trainyard.foundation.clock import boottime
from trainyard.instance.agent.context import InstanceContext
from trainyard.instance.agent.data.pipes import PipeChannels
from trainyard.instance.agent.program.network import InstanceNetwork
from trainyard.instance.agent.reports import now_us
from trainyard.instance.agent.watch.debugger import Debugger
from trainyard.instance.agent.watch.hangs import HangDetector
from trainyard.instance.agent.watch.metric_files import MetricFiles
from trainyard.instance.agent.watch.metric_scan import FINAL_CPU_S, STOPPED_CPU_S, MetricScan
from trainyard.instance.agent.watch.metric_series import MetricSeries
from trainyard.instance.agent.watch.profiling import Profiling
from trainyard.instance.agent.watch.step_times import StepTimesCopy
from trainyard.instance.agent.watch.supervisor import ProgramSupervisor, RunEnd, Watch
from trainyard.instance.sandbox.contract import Sandboxed

# After a kill command the last metric values may still be found for this long.
_KILLED_SCAN_S = 1.0


class InstanceTraining(ABC):
    """Runs the training program of an instance once.

    `command` is how messages name the program; it is empty before `run`.
    """

    def __init__(
        self,
        context: InstanceContext,
        *,
        pipes: PipeChannels,
        network: InstanceNetwork,
        debugger: Debugger | None,
        watches: Sequence[Watch] = (),
    ) -> None:
        self.command = ""
        self._watches = watches
        self._context = context
        self._folder = context.folder
        self._spec = context.spec
        self._pipes = pipes
        self._network = network
        self._debugger = debugger
        self._hangs = HangDetector(context)
        self._profiling = Profiling(context)
        self._step_times = StepTimesCopy(context) if context.spec.profiler is not None else None
        self._noted: set[str] = set()
        self._started_us = 0
        # Of the metrics in the output and in the files of the program.
        self._series = MetricSeries(context.folder.metrics, reports=context.reports)
        self._metric_files = MetricFiles(context.folder.ml, self._series, reports=context.reports)

    @property
    @abstractmethod
    def code_folder(self) -> str:
        """Where the program sees its code."""

    @abstractmethod
    def run(self) -> RunEnd:
        """Run the program and report how it ended.

        Raises CannotRun when the program cannot be started, StopRequested when a command stops it before that.
        """

    def _new_supervisor(self, limit_s: float | None = None) -> ProgramSupervisor:
        watches: list[Watch] = [self._hangs, self._profiling, self._metric_files, *self._watches]
        if self._step_times is not None:
            watches.append(self._step_times)
        return ProgramSupervisor(
            self._context, limit_s=limit_s, pipes=self._pipes, watches=watches, debugger=self._debugger
        )

    def _note_once(self, sentences: Sequence[str]) -> None:
        for sentence in sentences:
            if sentence not in self._noted:
                self._noted.add(sentence)
                self._context.reports.note(sentence)

    def _begin(self, sandboxed: Sandboxed) -> None:
        """Start everything that accompanies the program, now that it runs."""
        reports, output = self._context.reports, self._context.output
        self._started_us = now_us()
        self._pipes.start()
        if sandboxed.is_warm:
            reports.note("The program was started warm: forked from an interpreter that was ready for it.")
        if self._spec.metrics:
            # Only now, because this starts a process: the program does not have to wait for it.
            output.scan = MetricScan(self._spec.metrics, self._series, reports=reports, uid=self._spec.uid)
        output.first_us = None
        self._hangs.start(sandboxed.pid, boottime())
        self._profiling.start(sandboxed.pid)

    def _finish(self, end: RunEnd, begun_us: int) -> None:
        """Report how the program ended and how long each phase since `begun_us` took."""
        reports, output = self._context.reports, self._context.output
        self._hangs.stop()
        self._profiling.stop()
        if self._step_times is not None:
            self._step_times.copy()
        self._metric_files.finish()
        if output.scan is None:
            self._series.finish()
        else:
            is_stopped = end.is_killed or end.stop_reason is not None
            output.scan.finish(
                STOPPED_CPU_S if is_stopped else FINAL_CPU_S,
                is_over=lambda: self._context.commands.is_killed_for(_KILLED_SCAN_S),
            )
            output.scan = None
        if output.lost_bytes:
            reports.note(f"{output.lost_bytes} bytes of the log are lost, because the disk was full.")
        reports.report_phase("sandbox", begun_us, self._started_us)
        if output.first_us is not None:
            reports.report_phase("import", self._started_us, output.first_us)
        reports.report_phase("train" if self._spec.processing is None else "process", self._started_us, now_us())
        reports.report_exit(end.ended)
