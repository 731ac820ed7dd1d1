"""The hardware: how it was used over time, core by core, and in figures."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from trainyard.formats.profiles.contract import HardwareMetric
from trainyard.insight.profiling.contract import HardwareSamples, JobProfile, Numbers
from trainyard.insight.profiling.report.charts.heatmaps import draw_heatmap
from trainyard.insight.profiling.report.charts.lines import Line, draw_lines
from trainyard.insight.profiling.report.charts.plot import Axis
from trainyard.insight.profiling.report.contract import ReportSource
from trainyard.insight.profiling.report.downsampling import MAX_POINTS, average_by_time
from trainyard.insight.profiling.report.figures import JobTimes, SeriesUsage, is_core, list_usage, measure_times
from trainyard.insight.profiling.report.labels import device_label, series_label
from trainyard.insight.profiling.report.markup import NOTHING, Html, element, join
from trainyard.insight.profiling.report.sections.section import Section, subsection
from trainyard.insight.profiling.report.tables import draw_table, number_columns, text_columns
from trainyard.insight.profiling.report.units import percent_text, unit_of, value_text

# Drawn in full; the table has all of them.
MAX_HOSTS_DRAWN = 4
MAX_ROWS = 400

# Charts by title: metrics with the labels of their lines, and whether each device has a line.
_CHARTS: Sequence[tuple[str, Mapping[HardwareMetric, str]]] = (
    ("CPU", {HardwareMetric.CPU_PERCENT: "machine", HardwareMetric.JOB_CPU_PERCENT: "job"}),
    ("GPU", {HardwareMetric.GPU_PERCENT: ""}),
    ("GPU memory", {HardwareMetric.GPU_MEMORY_PERCENT: ""}),
    ("Memory", {HardwareMetric.MEMORY_PERCENT: "machine", HardwareMetric.JOB_MEMORY_PERCENT: "job"}),
    ("I/O wait", {HardwareMetric.IO_WAIT_PERCENT: "of CPU time", HardwareMetric.PRESSURE_SOME_PERCENT: "waiting for"}),
    ("Disk", {HardwareMetric.DISK_READ_BYTES_S: "reads", HardwareMetric.DISK_WRITE_BYTES_S: "writes"}),
    (
        "Network",
        {HardwareMetric.NETWORK_RECEIVED_BYTES_S: "received", HardwareMetric.NETWORK_SENT_BYTES_S: "sent"},
    ),
    ("GPU power", {HardwareMetric.GPU_POWER_WATTS: ""}),
)
# Of charts with several metrics, the devices that are drawn.
_DRAWN_DEVICES = {"", "total", "io"}
_PERCENT_BY_PART = (
    HardwareMetric.JOB_CPU_PERCENT,
    HardwareMetric.CPU_PERCENT,
    HardwareMetric.IO_WAIT_PERCENT,
    HardwareMetric.GPU_PERCENT,
)


def write_system(source: ReportSource) -> Section | None:
    usage = list_usage(source.profile)
    cores = _cores(source.profile)
    if not usage and not cores:
        return None
    times = measure_times(source.profile, source.written_us)
    body = join([*_hosts(source, times), _by_part(source, times), _statistics(usage, cores)])
    return Section(
        "system", "System usage", body, "The machine as it was sampled. Drag over a chart to zoom all of them."
    )


def _hosts(source: ReportSource, times: JobTimes) -> Iterator[Html]:
    across = Axis(0, max(times.duration_s, 1e-3), "elapsed", "time")
    hardware = sorted((host, samples) for host, samples in source.profile.hardware.items() if len(samples))
    for host, samples in hardware[:MAX_HOSTS_DRAWN]:
        elapsed = (samples.times_us - times.started_us) / 1e6
        charts = [*_charts(samples, elapsed, across), _heatmap(samples, elapsed, across)]
        yield subsection(host or "Instance", element("div", *charts, class_="grid"))
    if len(hardware) > MAX_HOSTS_DRAWN:
        text = f"{len(hardware) - MAX_HOSTS_DRAWN} more instances are only in the table."
        yield element("p", text, class_="aside")


def _charts(samples: HardwareSamples, elapsed: Numbers, across: Axis) -> Iterator[Html]:
    for title, metrics in _CHARTS:
        lines, unit = [], ""
        for metric, label in metrics.items():
            for device, values in sorted(samples.of(metric).items()):
                if not np.isfinite(values).any() or (label and device not in _DRAWN_DEVICES):
                    continue
                buckets = average_by_time(elapsed, values, start=0, end=across.high, points=MAX_POINTS // 2)
                lines.append(Line(f"{label} I/O" if device == "io" else label or device_label(device), buckets))
                unit = unit_of(metric)
        if lines:
            yield draw_lines(title, lines, across=across, unit=unit)


def _heatmap(samples: HardwareSamples, elapsed: Numbers, across: Axis) -> Html | None:
    cores = {
        device: values
        for device, values in sorted(samples.of(HardwareMetric.CPU_PERCENT).items(), key=lambda item: _order(item[0]))
        if is_core(device)
    }
    gpus = dict(sorted(samples.of(HardwareMetric.GPU_PERCENT).items(), key=lambda item: _order(item[0])))
    return draw_heatmap(
        "Every core and GPU" if gpus else "Every core",
        {device_label(device): values for device, values in (cores | gpus).items()},
        elapsed,
        across=across,
        subtitle="The fuller the colour, the busier.",
    )


def _order(device: str) -> tuple[int, str]:
    digits = "".join(each for each in device if each.isdigit())
    return int(digits[:9] or 0), device


def _by_part(source: ReportSource, times: JobTimes) -> Html:
    """Draw what the hardware did before, in and after the training loop, so that a slow start can be explained."""
    if times.loop_started_us is None or times.loop_ended_us is None:
        return NOTHING
    parts = {
        "Initialization": (times.started_us, times.loop_started_us),
        "Training loop": (times.loop_started_us, times.loop_ended_us),
        "Finalization": (times.loop_ended_us, times.ended_us),
    }
    if times.is_running:
        del parts["Finalization"]
    rows = []
    for host, samples in sorted(source.profile.hardware.items()):
        for metric in _PERCENT_BY_PART:
            for device, values in sorted(samples.of(metric).items()):
                if not is_core(device):
                    means = [_mean(samples, values, window) for window in parts.values()]
                    rows.append((host, series_label(metric, device), *map(percent_text, means)))
    longest = max(parts, key=lambda part: parts[part][1] - parts[part][0])
    columns = [*text_columns("Instance", "Metric"), *number_columns(*parts)]
    table = draw_table("Mean use in each part of the job", columns, rows, limit=MAX_ROWS)
    text = element("p", f"The longest part of the job was its {longest.lower()}.", class_="aside")
    return subsection("Use by part of the job", text, table) if rows else NOTHING


def _mean(samples: HardwareSamples, values: Numbers, window: tuple[int, int]) -> float | None:
    inside = values[(samples.times_us >= window[0]) & (samples.times_us <= window[1])]
    inside = inside[np.isfinite(inside)]
    return float(inside.mean()) if len(inside) else None


def _cores(profile: JobProfile) -> Sequence[SeriesUsage]:
    """Return the use of single cores, unless there are too many to read."""
    count = sum(is_core(series.device) for samples in profile.hardware.values() for series in samples.series)
    return list_usage(profile, of_cores=True) if count <= MAX_ROWS else ()


def _statistics(usage: Sequence[SeriesUsage], cores: Sequence[SeriesUsage]) -> Html:
    tables = [_table("System usage statistics", usage)]
    if cores:
        summary = element("summary", f"The same for each of {len(cores)} series of cores")
        tables.append(element("details", summary, _table("Usage of cores", cores)))
    return subsection("Statistics", *tables)


def _table(caption: str, usage: Sequence[SeriesUsage]) -> Html:
    rows = [
        (
            each.host,
            series_label(each.metric, each.device),
            *(
                value_text(value, each.unit)
                for value in (each.mean, each.maximum, each.p99, each.p95, each.p90, each.p50, each.minimum)
            ),
        )
        for each in usage
    ]
    columns = [
        *text_columns("Instance", "Metric"),
        *number_columns("Mean", "Max", "p99", "p95", "p90", "p50", "Min"),
    ]
    return draw_table(caption, columns, rows, limit=MAX_ROWS, of_what="series")
