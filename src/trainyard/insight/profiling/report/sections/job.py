"""The job: when it ran, on what, with which program, and how its time divides."""

from collections import Counter
from collections.abc import Sequence

from trainyard.insight.profiling.contract import JobProfile, RankProfile
from trainyard.insight.profiling.report.charts.cells import Part, parts_bar
from trainyard.insight.profiling.report.contract import ReportSource
from trainyard.insight.profiling.report.figures import JobTimes, measure_times
from trainyard.insight.profiling.report.markup import NOTHING, Html, element, join, name_of
from trainyard.insight.profiling.report.sections.section import Section, subsection
from trainyard.insight.profiling.report.tables import TableColumn, draw_facts, draw_table, number_columns, text_columns
from trainyard.insight.profiling.report.units import (
    TIMES,
    UNKNOWN,
    bytes_text,
    duration_text,
    moment_text,
    money_text,
    number_text,
    share_text,
)


def write_job(source: ReportSource) -> Section:
    times = measure_times(source.profile, source.written_us)
    body = join([_facts(source, times), _time(times), _instances(source.profile), _programs(source.profile.ranks)])
    return Section("job", "Training job summary", body, short_title="Job summary")


def _facts(source: ReportSource, times: JobTimes) -> Html:
    profile = source.profile
    pairs: list[tuple[str, str]] = [
        ("Job", profile.job),
        ("Region", source.region),
        ("Started", moment_text(profile.started_us)),
        ("Ended", "still running" if profile.ended_us is None else moment_text(profile.ended_us)),
        ("Duration", duration_text(times.duration_s)),
        ("Training loop started", _moment(times.loop_started_us)),
        ("Training loop ended", "" if times.is_running else _moment(times.loop_ended_us)),
        ("Training loop took", "" if times.loop_s is None else duration_text(times.loop_s)),
        ("ARN", element("code", source.job_arn) if source.job_arn else ""),
    ]
    return draw_facts(pairs)


def _moment(micros: int | None) -> str:
    return "" if micros is None else moment_text(micros)


def _time(times: JobTimes) -> Html:
    if times.loop_s is None:
        return element("p", "No step was recorded, so the time of the job cannot be divided.", class_="empty")
    named = [
        ("Initialization", times.initialization_s, "var(--series-4)"),
        ("Training loop", times.loop_s, "var(--series-0)"),
        ("Finalization", times.finalization_s, "var(--series-2)"),
    ]
    parts = [Part(name, times.share_of(seconds) or 0.0, colour) for name, seconds, colour in named]
    rows = [
        (name, duration_text(seconds), share_text(times.share_of(seconds)))
        for name, seconds, _ in named
        if seconds is not None
    ]
    table = draw_table("Parts of the job's time", [TableColumn("Part"), *number_columns("Time", "Share")], rows)
    return subsection("Where the time of the job went", parts_bar(parts), table)


def _instances(profile: JobProfile) -> Html:
    rows = [
        (
            host,
            facts.instance_type or UNKNOWN,
            number_text(facts.cores),
            bytes_text(facts.memory_bytes),
            _gpus(facts.gpus),
            money_text(facts.price_per_hour, facts.currency),
        )
        for host, facts in sorted(profile.instances.items())
    ]
    columns = [*text_columns("Instance", "Type"), *number_columns("Cores", "Memory"), TableColumn("GPUs")]
    table = draw_table("What the instances offer", [*columns, TableColumn("Price per hour", is_number=True)], rows)
    return subsection("Instances", table) if rows else NOTHING


def _gpus(names: Sequence[str]) -> str:
    counts = Counter(names)
    return join([join([f"{counts[name]} {TIMES} ", name_of(name)]) for name in counts], ", ") or UNKNOWN


def _programs(ranks: Sequence[RankProfile]) -> Html:
    rows = [_program(rank) for rank in ranks]
    columns = [
        *text_columns("Worker", "Framework", "Device", "Precision", "Settings"),
        *number_columns("Parameters", "Samples per step", "Threads"),
    ]
    return subsection("Program", draw_table("What each worker runs", columns, rows, limit=16)) if rows else NOTHING


def _program(rank: RankProfile) -> Sequence[str]:
    program = rank.program
    settings = [
        text
        for is_set, text in (
            (program.is_compiled, "compiled"),
            (program.is_channels_last, "channels last"),
            (program.has_convolutions, "convolutions"),
        )
        if is_set
    ]
    return (
        rank.name,
        f"{program.framework} {program.framework_version}".strip() or UNKNOWN,
        program.device or UNKNOWN,
        program.precision or UNKNOWN,
        ", ".join(settings) or UNKNOWN,
        number_text(program.parameters),
        number_text(program.samples_per_step),
        number_text(program.threads),
    )
