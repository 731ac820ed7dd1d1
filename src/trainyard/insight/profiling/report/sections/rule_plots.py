"""What each profiler rule shows of the profile when it has found something."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from trainyard.formats.profiles.contract import HardwareMetric, HardwareSeries
from trainyard.insight.profiling.contract import HardwareSamples, JobProfile, Numbers
from trainyard.insight.profiling.report.charts.cells import Box, Part, box_cell, parts_bar
from trainyard.insight.profiling.report.charts.histograms import draw_histogram
from trainyard.insight.profiling.report.charts.lines import Line, draw_lines
from trainyard.insight.profiling.report.charts.plot import Axis, LegendEntry, draw_legend
from trainyard.insight.profiling.report.contract import ReportedRule, ReportSource
from trainyard.insight.profiling.report.downsampling import MAX_POINTS, PointBuckets, average_by_time
from trainyard.insight.profiling.report.figures import is_core, measure_series, measure_times, phases_per_step
from trainyard.insight.profiling.report.labels import METRICS, PHASE_COLOURS, PHASES, device_label, series_label
from trainyard.insight.profiling.report.markup import NOTHING, Html, element, join
from trainyard.insight.profiling.report.tables import TableColumn, draw_table, number_columns, text_columns
from trainyard.insight.profiling.report.units import UNKNOWN, share_text, value_text

_BINS = 50
# Devices in a plot of a rule.
_MAX_DEVICES = 64


def draw_rule(rule: ReportedRule, source: ReportSource) -> Html:
    """Return the plots of a rule; nothing for rules that have none."""
    draw = _PLOTS.get(rule.rule)
    return draw(rule, source) if draw is not None else NOTHING


def _number(rule: ReportedRule, name: str) -> float | None:
    """Return a parameter of a rule that is a number."""
    value = rule.parameters.get(name)
    try:
        return float(str(value)) if value is not None else None
    except ValueError:
        return None


def _boxes(caption: str, profile: JobProfile, thresholds: Mapping[HardwareMetric, float | None]) -> Html:
    """Draw the distribution of each device, except single cores, with the rule's threshold."""
    rows = []
    for host, samples in sorted(profile.hardware.items()):
        for metric, threshold in thresholds.items():
            for device, values in sorted(samples.of(metric).items()):
                usage = measure_series(host, HardwareSeries(metric, device), values)
                if usage is None or is_core(device):
                    continue
                box = Box(usage.p5, usage.p25, usage.p50, usage.p75, usage.p95)
                high = 100.0 if usage.unit == "%" else usage.maximum
                rows.append(
                    (
                        f"{host} {series_label(metric, device)}".strip(),
                        *(value_text(value, usage.unit) for value in (usage.mean, usage.p5, usage.p50, usage.p95)),
                        box_cell(box, high=high, threshold=threshold),
                    )
                )
    columns = [
        TableColumn("Device"),
        *number_columns("Mean", "p5", "p50", "p95"),
        TableColumn("p5 to p95", is_wide=True),
    ]
    return draw_table(caption, columns, rows, limit=_MAX_DEVICES, of_what="devices")


def _draw_low_use(rule: ReportedRule, source: ReportSource) -> Html:
    return _boxes(
        "Utilization of each GPU; the line is the rule's threshold of p95",
        source.profile,
        {HardwareMetric.GPU_PERCENT: _number(rule, "threshold_p95")},
    )


def _draw_batch_size(rule: ReportedRule, source: ReportSource) -> Html:
    return _boxes(
        "Use of the hardware; the lines are the rule's thresholds of p95",
        source.profile,
        {
            HardwareMetric.CPU_PERCENT: _number(rule, "cpu_threshold_p95"),
            HardwareMetric.GPU_PERCENT: _number(rule, "gpu_threshold_p95"),
            HardwareMetric.GPU_MEMORY_PERCENT: _number(rule, "gpu_memory_threshold_p95"),
        },
    )


def _draw_memory(_: ReportedRule, source: ReportSource) -> Html:
    chart = _over_time("GPU memory", source, (HardwareMetric.GPU_MEMORY_PERCENT,), "%")
    boxes = _boxes("Memory of each GPU", source.profile, {HardwareMetric.GPU_MEMORY_PERCENT: None})
    return join([chart, boxes])


def _over_time(title: str, source: ReportSource, metrics: Sequence[HardwareMetric], unit: str) -> Html:
    times = measure_times(source.profile, source.written_us)
    across = Axis(0, max(times.duration_s, 1e-3), "elapsed", "time")
    lines = []
    for host, samples in sorted(source.profile.hardware.items()):
        elapsed = (samples.times_us - times.started_us) / 1e6
        for metric in metrics:
            for device, values in sorted(samples.of(metric).items()):
                if not is_core(device):
                    buckets = average_by_time(elapsed, values, start=0, end=across.high, points=MAX_POINTS // 2)
                    lines.append(Line(f"{host} {series_label(metric, device)}".strip(), buckets))
    return draw_lines(title, lines, across=across, unit=unit)


def _draw_balance(rule: ReportedRule, source: ReportSource) -> Html:
    lines = []
    for host, samples in sorted(source.profile.hardware.items()):
        for device, values in sorted(samples.of(HardwareMetric.GPU_PERCENT).items()):
            known = values[np.isfinite(values)]
            if len(known):
                counts, _ = np.histogram(known, _BINS, (0.0, 100.0))
                shares = counts / len(known) * 100
                lines.append(
                    Line(f"{host} {device_label(device)}".strip(), PointBuckets(0, 100, shares, shares, shares))
                )
    across = Axis(0, 100, "%")
    chart = draw_lines("How often each GPU was how busy", lines, across=across, unit="%", with_band=False)
    has_ranks = sum(len(rank.steps) > 0 for rank in source.profile.ranks) > 1
    link = element("p", element("a", "The mean step of each worker", href="#steps")) if has_ranks else None
    return join([chart, _draw_low_use(rule, source), link])


def _draw_cpu_bottleneck(rule: ReportedRule, source: ReportSource) -> Html:
    metrics = {HardwareMetric.CPU_PERCENT: _number(rule, "cpu_threshold")}
    return _draw_coincidence(rule, source, metrics, "CPU busy, GPU idle")


def _draw_io_bottleneck(rule: ReportedRule, source: ReportSource) -> Html:
    metrics = {HardwareMetric.IO_WAIT_PERCENT: _number(rule, "io_threshold")}
    return _draw_coincidence(rule, source, metrics, "I/O wait, GPU idle")


def _draw_coincidence(
    rule: ReportedRule, source: ReportSource, metrics: Mapping[HardwareMetric, float | None], label: str
) -> Html:
    """Draw how often a GPU was idle while something else was busy, and in which phases of steps."""
    bars = []
    for host, samples in sorted(source.profile.hardware.items()):
        found = _coincidences(samples, metrics, _number(rule, "gpu_threshold"))
        if found is None:
            continue
        both, idle = found
        parts = [
            Part(label, float(both.mean()), "var(--warn)"),
            Part("GPU idle", float((idle & ~both).mean()), "var(--phase-other)"),
            Part("GPU busy", float((~idle).mean()), "var(--series-0)"),
        ]
        phases = _phases_at(source.profile, host, samples.times_us[both])
        bars += [element("h4", f"{host}: samples of the hardware".strip(": ")), _legend(parts), parts_bar(parts)]
        if phases:
            bars += [element("h4", f"Phases of steps at the time: {label}"), _legend(phases), parts_bar(phases)]
    if bars:
        return join(bars)
    # Without a GPU there is nothing that waits; the series itself says how busy it was.
    return _over_time(METRICS[next(iter(metrics))], source, tuple(metrics), "%")


def _legend(parts: Sequence[Part]) -> Html:
    entries = [LegendEntry(f"{each.label} {share_text(each.share)}", each.colour) for each in parts if each.share > 0]
    return draw_legend(entries)


def _coincidences(
    samples: HardwareSamples, metrics: Mapping[HardwareMetric, float | None], gpu_threshold: float | None
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]] | None:
    gpus = list(samples.of(HardwareMetric.GPU_PERCENT).values())
    others = [(values, limit) for metric, limit in metrics.items() for values in samples.of(metric).values()]
    if not gpus or not others or not len(samples):
        return None
    idle = np.any([values < (10.0 if gpu_threshold is None else gpu_threshold) for values in gpus], axis=0)
    busy = np.any([values > (50.0 if limit is None else limit) for values, limit in others], axis=0)
    return idle & busy, idle


def _phases_at(profile: JobProfile, host: str, times_us: NDArray[np.int64]) -> list[Part]:
    """Return the share of each phase in the steps that ran at these times."""
    spent: Numbers = np.zeros(len(PHASES))
    for rank in profile.ranks:
        if rank.host != host or not len(rank.steps):
            continue
        row = np.searchsorted(rank.steps.starts_us, times_us, side="right") - 1
        inside = (row >= 0) & (times_us <= rank.steps.ends_us[np.maximum(row, 0)])
        spent = spent + phases_per_step(rank.steps)[row[inside]].sum(axis=0)
    total = float(spent.sum())
    if not total:
        return []
    return [Part(label, float(spent[phase]) / total, PHASE_COLOURS[label]) for phase, label in PHASES.items()]


def _draw_loaders(_: ReportedRule, source: ReportSource) -> Html:
    rows = [
        (rank.name, loader.name, f"{loader.workers}", _cores(source.profile, rank.host))
        for rank in source.profile.ranks
        for loader in rank.program.loaders
    ]
    columns = [*text_columns("Worker", "Loader"), *number_columns("Loader's processes", "Cores")]
    table = draw_table("Data workers beside cores", columns, rows, limit=_MAX_DEVICES, of_what="loaders")
    # The section that the link leads to is there if there are loaders.
    link = element("p", element("a", "How long batches took", href="#loading")) if rows else None
    return join([table, link])


def _cores(profile: JobProfile, host: str) -> str:
    facts = profile.instances.get(host)
    return value_text(facts.cores, "") if facts is not None else UNKNOWN


def _draw_outliers(_: ReportedRule, source: ReportSource) -> Html:
    durations = [rank.steps.durations_s for rank in source.profile.ranks if len(rank.steps)]
    if not durations:
        return NOTHING
    marks = {"p50": 0.5, "p99": 0.99}
    chart = draw_histogram("Durations of steps", np.concatenate(durations), unit="s", marks=marks)
    return join([chart, element("p", element("a", "The slowest steps", href="#steps"))])


def _draw_initialization(_: ReportedRule, source: ReportSource) -> Html:
    times = measure_times(source.profile, source.written_us)
    share = times.share_of(times.initialization_s)
    parts = [
        Part("Initialization", 1.0 if share is None else share, "var(--series-4)"),
        Part("Later", 0.0 if share is None else 1 - share, "var(--series-0)"),
    ]
    return parts_bar(parts)


_PLOTS: Mapping[str, Callable[[ReportedRule, ReportSource], Html]] = {
    "BatchSize": _draw_batch_size,
    "CPUBottleneck": _draw_cpu_bottleneck,
    "Dataloader": _draw_loaders,
    "GPUMemoryIncrease": _draw_memory,
    "IOBottleneck": _draw_io_bottleneck,
    "LoadBalancing": _draw_balance,
    "LowGPUUtilization": _draw_low_use,
    "MaxInitializationTime": _draw_initialization,
    "StepOutlier": _draw_outliers,
}
