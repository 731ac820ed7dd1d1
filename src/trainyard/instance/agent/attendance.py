"""What is done for every training program, wherever it runs: for its output and metrics, its pipes, hangs and times."""

from collections.abc import Sequence

from trainyard.foundation.clock import boottime
from trainyard.instance.agent.debugging import Debugging
from trainyard.instance.agent.disk import DiskWatch
from trainyard.instance.agent.hangs import HangWatch
from trainyard.instance.agent.orders import Orders
from trainyard.instance.agent.output import Output
from trainyard.instance.agent.pipes import Pipes
from trainyard.instance.agent.reports import Reports, now_us
from trainyard.instance.agent.scanning import FINAL_CPU_S, STOPPED_CPU_S, OutputScan
from trainyard.instance.agent.series import MetricSeries
from trainyard.instance.agent.supervision import RunEnd, Supervision
from trainyard.instance.sandbox.contract import Sandboxed
from trainyard.link.contract import InstanceSpec
from trainyard.link.folders import InstanceFolder

_KILLED_SCAN_S = 1.0  # after a kill, in which the last values may still be found


class Attendance:
    """Attends one program from its start to its end. `supervision` is what runs it."""

    def __init__(
        self,
        folder: InstanceFolder,
        spec: InstanceSpec,
        *,
        output: Output,
        orders: Orders,
        reports: Reports,
        pipes: Pipes,
        debugging: Debugging | None = None,
    ) -> None:
        self._folder = folder
        self._spec = spec
        self._output = output
        self._orders = orders
        self._reports = reports
        self._pipes = pipes
        self._hangs = HangWatch(folder, spec, output=output, reports=reports)
        written = (folder.ml, folder.scratch, folder.launch, folder.logs)
        disk = DiskWatch(written, reserve_bytes=spec.objects.reserve_bytes)
        self.supervision = Supervision(
            output, orders, grace_s=spec.grace_s, disk=disk, pipes=pipes, hangs=self._hangs, debugging=debugging
        )
        self._noted: set[str] = set()
        self._started_us = 0

    def note(self, sentences: Sequence[str]) -> None:
        """Report each once."""
        for sentence in sentences:
            if sentence not in self._noted:
                self._noted.add(sentence)
                self._reports.note(sentence)

    def begin(self, sandboxed: Sandboxed) -> None:
        """Do what is due when the program runs."""
        self._started_us = now_us()
        self._pipes.start()
        if sandboxed.is_warm:
            self._reports.note("The program was started warm: forked from an interpreter that was ready for it.")
        if self._spec.metrics:
            # Only now, because it starts a process: the program need not wait for that.
            series = MetricSeries(self._folder.metrics, reports=self._reports)
            self._output.scan = OutputScan(self._spec.metrics, series, reports=self._reports, uid=self._spec.uid)
        self._output.first_us = None
        self._hangs.begin(sandboxed.pid, boottime())

    def finish(self, end: RunEnd, begun_us: int) -> None:
        """Report how it ended, and what took how long from `begun_us` on."""
        self._hangs.end()
        if self._output.scan is not None:
            is_stopped = end.is_killed or end.stop_reason is not None
            self._output.scan.finish(
                STOPPED_CPU_S if is_stopped else FINAL_CPU_S, is_over=lambda: self._orders.is_killed_for(_KILLED_SCAN_S)
            )
            self._output.scan = None
        if self._output.lost_bytes:
            self._reports.note(f"{self._output.lost_bytes} bytes of the log are lost, because the disk took no more.")
        self._reports.passed("sandbox", begun_us, self._started_us)
        if self._output.first_us is not None:
            self._reports.passed("import", self._started_us, self._output.first_us)
        self._reports.passed("train", self._started_us, now_us())
        self._reports.exited(end.ended)
