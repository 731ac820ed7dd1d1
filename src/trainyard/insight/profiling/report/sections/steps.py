"""The steps: what their time was spent on, how long they took, and which took much longer than usual."""

from collections.abc import Iterator, Sequence

import numpy as np

from trainyard.formats.profiles.contract import StepPhase
from trainyard.formats.tensors.contract import Mode
from trainyard.insight.profiling.contract import RankProfile
from trainyard.insight.profiling.report.charts.cells import Part, parts_bar
from trainyard.insight.profiling.report.charts.histograms import draw_histogram
from trainyard.insight.profiling.report.charts.lines import MAX_LINES, Line, draw_lines
from trainyard.insight.profiling.report.charts.plot import Axis, LegendEntry, draw_legend, series_colour
from trainyard.insight.profiling.report.charts.stacks import draw_stacks
from trainyard.insight.profiling.report.contract import ReportSource
from trainyard.insight.profiling.report.downsampling import MAX_POINTS, average_by_time
from trainyard.insight.profiling.report.figures import (
    OUTLIER_FACTOR,
    JobTimes,
    SlowStep,
    StepUsage,
    list_slow_steps,
    list_step_usage,
    measure_times,
    phases_per_step,
    rows_of,
)
from trainyard.insight.profiling.report.labels import PHASE_COLOURS, PHASES
from trainyard.insight.profiling.report.markup import NOTHING, Html, element, join
from trainyard.insight.profiling.report.sections.section import Section, subsection
from trainyard.insight.profiling.report.tables import TableColumn, draw_table, number_columns, text_columns
from trainyard.insight.profiling.report.units import TIMES, UNKNOWN, duration_text, number_text, share_text

# Of the newest steps, drawn one by one.
LAST = 30
# Of the chart of phases over the time of the job.
TIME_BLOCKS = 160
# Of the training loop in the time of the job, to be drawn on its axis.
LEAST_SHARE = 0.3
# With a bar or a chart of their own; the tables have more.
MAX_RANKS_DRAWN = 16
MAX_RANKS_LISTED = 64


def write_steps(source: ReportSource) -> Section | None:
    ranks = [rank for rank in source.profile.ranks if len(rank.steps)]
    if not ranks:
        return None
    usage = list_step_usage(ranks)
    body = join(
        [
            _mean_steps(usage),
            _phases(usage, measure_times(source.profile, source.written_us)),
            _over_time(source, ranks),
            _last_steps(ranks),
            _durations(ranks, usage),
            _slow_steps(list_slow_steps(ranks), source.profile.started_us),
        ]
    )
    lead = "Every moment of a step belongs to one phase, measured on the thread that trains."
    return Section("steps", "Where the time of steps goes", body, lead, short_title="Steps")


def _mean_steps(usage: Sequence[StepUsage]) -> Html:
    longest = max(each.mean_s for each in usage)
    rows = [
        element(
            "div",
            element("div", element("b", _name(each)), " ", duration_text(each.mean_s), class_="bar-label"),
            element(
                "div",
                parts_bar(_parts(each), width=each.mean_s / longest),
                style=f"width:{max(each.mean_s / longest, 0.02):.1%}",
            ),
            class_="bar-row",
        )
        for each in usage[:MAX_RANKS_DRAWN]
    ]
    return subsection("The mean step", draw_legend(_legend(usage)), *rows)


def _legend(usage: Sequence[StepUsage]) -> list[LegendEntry]:
    return [
        LegendEntry(label, PHASE_COLOURS[label])
        for phase, label in PHASES.items()
        if any(each.phases_s[phase] > 0 for each in usage)
    ]


def _name(usage: StepUsage) -> str:
    return usage.worker if usage.mode is Mode.TRAIN else f"{usage.worker}, {usage.mode}"


def _parts(usage: StepUsage) -> list[Part]:
    total = float(usage.phases_s.sum()) or 1.0
    return [Part(label, float(usage.phases_s[phase]) / total, PHASE_COLOURS[label]) for phase, label in PHASES.items()]


def _phases(usage: Sequence[StepUsage], times: JobTimes) -> Html:
    """Draw what AWS calls the framework metrics summary, in one table: modes, phases, forward and backward."""
    total = sum(each.total_s for each in usage) or 1.0
    seen = [phase for phase in StepPhase if any(each.phases_s[phase] > 0 for each in usage)]
    titles = [PHASES[phase] for phase in seen]
    columns = [*text_columns("Worker", "Mode"), *number_columns("Steps", "Share of all", *titles)]
    rows = [
        (
            each.worker,
            str(each.mode),
            number_text(each.steps),
            share_text(each.total_s / total),
            *(_phase_text(each, phase) for phase in seen),
        )
        for each in usage
    ]
    table = draw_table(
        "Mean time of each phase, and its share", columns, rows, limit=MAX_RANKS_LISTED, of_what="workers"
    )
    return subsection("Framework metrics", table, _ratio(usage), _modes(usage, times))


def _phase_text(usage: StepUsage, phase: StepPhase) -> str:
    seconds, total = float(usage.phases_s[phase]), float(usage.phases_s.sum())
    if not seconds or not total:
        return UNKNOWN
    return join([duration_text(seconds), element("div", share_text(seconds / total), class_="second")])


def _ratio(usage: Sequence[StepUsage]) -> Html:
    forward = sum(float(each.phases_s[StepPhase.FORWARD]) * each.steps for each in usage if each.mode is Mode.TRAIN)
    backward = sum(float(each.phases_s[StepPhase.BACKWARD]) * each.steps for each in usage if each.mode is Mode.TRAIN)
    if not forward or not backward:
        return NOTHING
    text = f"Backward takes {backward / forward:.2f} times as long as forward; about 2 is usual."
    return element("p", text, class_="aside")


def _over_time(source: ReportSource, ranks: Sequence[RankProfile]) -> Html:
    """Draw phases and durations over the time of the job."""
    times = measure_times(source.profile, source.written_us)
    started, across = times.started_us, _time_axis(times)
    rank = ranks[0]
    middles = ((rank.steps.starts_us + rank.steps.ends_us) / 2 - started) / 1e6
    phases, counts = phases_per_step(rank.steps), rank.steps.counts.astype(np.float64)
    blocks = min(TIME_BLOCKS, max(4, len(rank.steps)))
    means = {}
    for phase, label in PHASES.items():
        share = phases[:, phase] / np.maximum(phases.sum(axis=1), 1e-12) * 100
        weights = counts * phases.sum(axis=1)
        found = average_by_time(middles, share, start=across.low, end=across.high, weights=weights, points=blocks)
        means[label] = found.means
    title = "Phases over the time of the job"
    shares = draw_stacks(title, means, PHASE_COLOURS, across=across, unit="%", full=100, subtitle=f"{rank.name}.")
    return subsection("Over time", shares, _duration_lines(ranks, across, started))


def _modes(usage: Sequence[StepUsage], times: JobTimes) -> Html:
    """Draw how the training loop of the first worker divides into modes, and into what lies between steps."""
    own = [each for each in usage if each.worker == usage[0].worker]
    spent = sum(each.total_s for each in own)
    whole = max(times.loop_s or 0.0, spent)
    if not whole:
        return NOTHING
    parts = [Part(str(each.mode), each.total_s / whole, series_colour(number)) for number, each in enumerate(own)]
    parts.append(Part("between steps", 1 - spent / whole, "var(--phase-other)"))
    heading = element("h4", f"The training loop of {usage[0].worker} by mode")
    entries = [LegendEntry(f"{each.label} {share_text(each.share)}", each.colour) for each in parts if each.share > 0]
    return join([heading, draw_legend(entries), parts_bar(parts)])


def _time_axis(times: JobTimes) -> Axis:
    """Return the axis of the hardware, or one of the training loop alone if that is a small part of the job."""
    if times.loop_s is None or times.initialization_s is None or times.loop_s > LEAST_SHARE * times.duration_s:
        return Axis(0, max(times.duration_s, 1e-3), "elapsed", "time")
    start = times.initialization_s
    return Axis(start, start + max(times.loop_s, 1e-3), "elapsed")


def _duration_lines(ranks: Sequence[RankProfile], across: Axis, started_us: int) -> Html:
    lines = []
    for rank in ranks[:MAX_LINES]:
        steps = rank.steps
        training = rows_of(steps, Mode.TRAIN)
        own = training if len(training) else np.arange(len(steps))
        middles = ((steps.starts_us + steps.ends_us) / 2 - started_us) / 1e6
        buckets = average_by_time(
            middles[own],
            steps.durations_s[own],
            start=across.low,
            end=across.high,
            weights=steps.counts[own].astype(np.float64),
            points=MAX_POINTS // 2,
        )
        lines.append(Line(rank.name, buckets))
    subtitle = "The band reaches from the quickest to the slowest step." if len(lines) <= 2 else ""
    if len(ranks) > len(lines):
        subtitle = f"Of the first {len(lines)} of {len(ranks)} workers."
    return draw_lines("Duration of steps", lines, across=across, unit="s", subtitle=subtitle, is_cut=True)


def _last_steps(ranks: Sequence[RankProfile]) -> Html:
    charts = []
    for rank in ranks[:2]:
        rows = slice(max(0, len(rank.steps) - LAST), None)
        phases = phases_per_step(rank.steps)[rows]
        numbers = rank.steps.numbers[rows]
        across = Axis(0, len(phases))
        parts = {label: phases[:, phase] for phase, label in PHASES.items()}
        first, last = int(numbers[0]), int(numbers[-1])
        subtitle = f"{rank.name}, steps {first:,} to {last:,}."
        charts.append(
            draw_stacks(
                f"The last {len(phases)} steps",
                parts,
                PHASE_COLOURS,
                across=across,
                unit="s",
                subtitle=subtitle,
                is_cut=True,
                names=[f"{number:,}" for number in numbers.tolist()],
            )
        )
    return join(charts)


def _durations(ranks: Sequence[RankProfile], usage: Sequence[StepUsage]) -> Html:
    columns = [
        *text_columns("Worker", "Mode"),
        *number_columns("Steps", "Mean", "Max", "p99", "p95", "p50", "Min", "Outliers"),
    ]
    rows = [
        (
            each.worker,
            str(each.mode),
            number_text(each.steps),
            *(
                duration_text(value)
                for value in (each.mean_s, each.maximum_s, each.p99_s, each.p95_s, each.p50_s, each.minimum_s)
            ),
            number_text(each.outliers),
        )
        for each in usage
    ]
    caption = f"Durations of steps; an outlier takes more than {OUTLIER_FACTOR:g} times the median"
    table = draw_table(caption, columns, rows, limit=MAX_RANKS_LISTED, of_what="workers")
    return subsection("Step durations", table, *_histograms(ranks))


def _histograms(ranks: Sequence[RankProfile]) -> Iterator[Html]:
    for mode in (Mode.TRAIN, Mode.EVAL):
        durations, counts = [], []
        for rank in ranks:
            own = rows_of(rank.steps, mode)
            durations.append(rank.steps.durations_s[own])
            counts.append(rank.steps.counts[own].astype(np.float64))
        chart = draw_histogram(
            f"Distribution of step durations, {mode}",
            np.concatenate(durations),
            unit="s",
            weights=np.concatenate(counts),
            marks={"p50": 0.5, "p95": 0.95, "p99": 0.99},
        )
        if chart is not None:
            yield chart


def _slow_steps(slow: Sequence[SlowStep], started_us: int) -> Html:
    rows = [
        (
            f"{step.number:,}",
            step.worker,
            str(step.mode),
            duration_text((step.started_us - started_us) / 1e6),
            duration_text(step.duration_s),
            f"{step.duration_s / step.median_s:.1f}{TIMES}" if step.median_s else UNKNOWN,
            PHASES[step.phase],
        )
        for step in slow
    ]
    columns = [
        TableColumn("Step"),
        *text_columns("Worker", "Mode"),
        *number_columns("After the start", "Duration", "Times the median"),
        TableColumn("What took longer"),
    ]
    return subsection("The slowest steps", draw_table("Outliers", columns, rows)) if rows else NOTHING
