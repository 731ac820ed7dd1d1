"""The parts that sample the hardware of one instance, and where its samples go."""

import os
from pathlib import Path

from trainyard.formats.profiles.hardware_writer import HardwareWriter
from trainyard.foundation.locations import Location, parse_s3_uri
from trainyard.instance.agent.context import InstanceContext
from trainyard.instance.agent.data.object_store import open_store
from trainyard.instance.agent.data.sync.upload import UploadIdentity
from trainyard.instance.agent.watch.hardware.aws_export import AwsSamplesExport, ExportTarget
from trainyard.instance.agent.watch.hardware.gpus import GpuSource
from trainyard.instance.agent.watch.hardware.host_metrics import HostMetricPoints
from trainyard.instance.agent.watch.hardware.job import JobCapacity, JobSource
from trainyard.instance.agent.watch.hardware.machine import machine_sources
from trainyard.instance.agent.watch.hardware.sampler import HardwareSampler
from trainyard.instance.agent.watch.hardware.sampling import SampleLoop
from trainyard.link.contract import ProfilerSpec
from trainyard.link.lease import may_write

# The machine whose /proc and /sys are read.
_ROOT = Path("/")
# How many samples have to be missing, of all and at least, before users are told.
_NOTED_SHARE, _NOTED_COUNT = 0.1, 30


class InstanceSamples:
    """Takes the samples of one program. `pid` is the process above all others of it."""

    def __init__(self, context: InstanceContext, profiler: ProfilerSpec, pid: int) -> None:
        self._context = context
        interval_s = profiler.interval_ms / 1000
        folder, spec = context.folder, context.spec
        cores = os.sched_getaffinity(0)
        capacity = JobCapacity.of(_ROOT, pid, cores=len(cores))
        sources = [*machine_sources(_ROOT, cores, folder.root), JobSource(_ROOT, pid, capacity, cores=len(cores))]
        self._gpus = GpuSource(spec.limits.gpus, interval_s=interval_s) if spec.limits.gpus else None
        self._writer = HardwareWriter(folder.hardware)
        self._export = AwsSamplesExport(_target(context, profiler), is_enabled=profiler.is_exported)
        points = HostMetricPoints(folder.hardware, context.reports, cores=capacity.cores)
        self._loop = SampleLoop(
            HardwareSampler([*sources, self._gpus] if self._gpus is not None else sources),
            [self._writer, points, self._export],
            interval_s=interval_s,
            on_interval=self._gpus.want if self._gpus is not None else lambda _: None,
        )

    def run(self) -> None:
        """Take samples until `end`."""
        self._loop.run()

    def change(self, interval_ms: int, *, is_exported: bool, uri: str) -> None:
        """Change the interval, and whether and where samples are stored on S3. Any thread may call this, and `end`."""
        self._export.location = _folder_at(uri, self._context.spec.account)
        self._export.is_enabled = is_exported
        self._loop.change_interval(interval_ms / 1000)

    def end(self) -> None:
        """End soon, after a last sample."""
        self._loop.end()

    def note_losses(self) -> None:
        """Tell the user if much is missing."""
        context, loop, lost = self._context, self._loop, self._writer.lost
        if loop.missed >= max(_NOTED_COUNT, _NOTED_SHARE * loop.taken):
            context.reports.note(
                f"{loop.missed} of {loop.taken + loop.missed} samples of the hardware of {context.spec.instance} are "
                "missing, because the machine was too busy to take them."
            )
        if lost:
            context.reports.note(
                f"{lost} samples of the hardware of {context.spec.instance} are lost, because the disk was full."
            )
        if self._export.dropped:
            context.reports.note(
                f"{self._export.dropped} minutes of the hardware samples of {context.spec.instance} are not on S3, "
                "because they could not be stored."
            )


def _target(context: InstanceContext, profiler: ProfilerSpec) -> ExportTarget:
    folder, spec = context.folder, context.spec
    identity = UploadIdentity(spec.job_name, spec.instance, len(spec.hosts) == 1, spec.output_key)
    return ExportTarget(
        _folder_at(profiler.output.uri, spec.account),
        spec.instance,
        identity.attributes,
        open_store=lambda: open_store(spec.objects),
        may_write=lambda: may_write(folder, spec),
    )


def _folder_at(uri: str, account: str) -> Location:
    where = parse_s3_uri(uri, account)
    key = where.key.rstrip("/")
    return Location(where.bucket, f"{key}/" if key else "")
