"""The program: the lines of Python that it was seen on, its data loaders, and what holds its memory."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import PurePath

import numpy as np

from trainyard.formats.profiles.contract import StepPhase
from trainyard.insight.profiling.contract import LoaderFacts, Numbers, ProgramFacts, RankProfile
from trainyard.insight.profiling.report.charts.cells import bar_cell
from trainyard.insight.profiling.report.charts.histograms import draw_histogram
from trainyard.insight.profiling.report.contract import ReportSource
from trainyard.insight.profiling.report.labels import PHASE_COLOURS, PHASES
from trainyard.insight.profiling.report.markup import NOTHING, Html, element, join, name_of
from trainyard.insight.profiling.report.sections.section import Section, subsection
from trainyard.insight.profiling.report.tables import TableColumn, draw_table, number_columns, text_columns
from trainyard.insight.profiling.report.units import UNKNOWN, bytes_text, duration_text, number_text, share_text

MAX_LINES = 15
MAX_LOADERS = 24
# Of the ranks of a large job, those whose lines and memory are shown.
MAX_RANKS = 4


def write_loading(source: ReportSource) -> Section | None:
    """Return how data was loaded, or None if no data loader was seen."""
    loaders = [(rank, loader) for rank in source.profile.ranks for loader in rank.program.loaders]
    if not loaders:
        return None
    rows = [_loader(rank, loader) for rank, loader in loaders]
    columns = [
        *text_columns("Worker", "Loader"),
        *number_columns("Processes", "Cores", "Prefetch", "Batch"),
        *text_columns("Pinned memory", "Persistent"),
        *number_columns("Made in", "Waited for"),
    ]
    for row, (rank, _) in zip(rows, loaders, strict=True):
        facts = source.profile.instances.get(rank.host)
        row.insert(3, number_text(facts.cores) if facts is not None else UNKNOWN)
    table = draw_table("Data loaders", columns, rows, limit=MAX_LOADERS, of_what="loaders")
    charts = [
        draw_histogram(
            title, np.concatenate([np.zeros(0), *values]), unit="s", marks={"p25": 0.25, "p50": 0.5, "p95": 0.95}
        )
        for title, values in (
            ("How long a worker took to make a batch", [np.array(loader.fetch_s, np.float64) for _, loader in loaders]),
            ("How long the program waited for a batch", [np.array(loader.wait_s, np.float64) for _, loader in loaders]),
        )
    ]
    remarks = [element("li", text) for text in dict.fromkeys(_remark(rank, loader) for rank, loader in loaders) if text]
    found = element("ul", *remarks, class_="notes") if remarks else None
    body = join([table, found, element("div", *charts, class_="grid")])
    return Section("loading", "Data loading", body, "How batches were made, and how long the program waited for them.")


def _remark(rank: RankProfile, loader: LoaderFacts) -> str:
    """Return what the settings of a loader leave out; empty if nothing."""
    if not loader.workers:
        return f"{loader.name} has no worker processes: the program makes batches itself, and does not train meanwhile."
    missing = []
    if not loader.is_pinning and rank.program.device not in ("", "cpu"):
        missing.append("pin_memory is off, so copies to the device cannot overlap with computing")
    if loader.prefetch is None or loader.prefetch < 2:
        missing.append("no batch is made ahead of the next one")
    if not loader.is_persistent:
        missing.append("its processes are started anew in every epoch")
    return f"{loader.name}: {'; '.join(missing)}." if missing else ""


def _loader(rank: RankProfile, loader: LoaderFacts) -> list[str]:
    fetch, wait = np.array(loader.fetch_s, np.float64), np.array(loader.wait_s, np.float64)
    return [
        rank.name,
        name_of(loader.name),
        number_text(loader.workers),
        number_text(loader.prefetch) if loader.prefetch is not None else "off",
        number_text(loader.batch_size),
        "yes" if loader.is_pinning else "no",
        "yes" if loader.is_persistent else "no",
        _median(fetch),
        _median(wait),
    ]


def _median(values: Numbers) -> str:
    """Return the median, with p95 below it."""
    p50, p95 = _quantile(values, 50), _quantile(values, 95)
    if p50 is None:
        return UNKNOWN
    return join([duration_text(p50), element("div", f"p95 {duration_text(p95)}", class_="second")])


def _quantile(values: Numbers, percent: float) -> float | None:
    values = values[np.isfinite(values)]
    return float(np.percentile(values, percent)) if len(values) else None


def write_program(source: ReportSource) -> Section | None:
    """Return what is known about the program's lines and memory, or None if nothing is."""
    parts = []
    for rank in source.profile.ranks[:MAX_RANKS]:
        for part in (_hot_lines(rank.name, rank.program), _memory(rank.name, rank.program)):
            if part:
                parts.append(part)
    if not parts:
        return None
    return Section("program", "Program", join(parts), "What the training thread was doing when it was looked at.")


def _hot_lines(worker: str, program: ProgramFacts) -> Html:
    if not program.hot_lines:
        return NOTHING
    total = max(program.stack_samples, sum(line.samples for line in program.hot_lines), 1)
    lines = sorted(program.hot_lines, key=lambda line: -line.samples)
    rows = [
        (
            join([name_of(f"{PurePath(line.file).name}:{line.line}"), " ", name_of(line.function)]),
            _phase(line.phase),
            name_of(line.called) if line.called else UNKNOWN,
            share_text(line.samples / total),
            bar_cell(line.samples / total, colour=PHASE_COLOURS[PHASES[line.phase]]),
        )
        for line in lines
    ]
    columns = [
        *text_columns("Line", "Phase", "What it called"),
        TableColumn("Share", is_number=True),
        TableColumn("", is_wide=True),
    ]
    caption = f"Lines of the program in {total:,} samples of {worker}"
    table = draw_table(caption, columns, rows, limit=MAX_LINES, of_what="lines")
    return subsection(f"Hot lines of {worker}", _by_phase(program, total), table)


def _phase(phase: StepPhase) -> Html:
    label = PHASES[phase]
    return element("span", element("i", style=f"background:{PHASE_COLOURS[label]}"), label, class_="key")


def _by_phase(program: ProgramFacts, total: int) -> Html:
    by_phase: dict[StepPhase, int] = defaultdict(int)
    for line in program.hot_lines:
        by_phase[line.phase] += line.samples
    most = max(by_phase, key=lambda phase: by_phase[phase])
    return element("p", f"{share_text(by_phase[most] / total)} of the samples are in {PHASES[most]}.", class_="aside")


def _memory(worker: str, program: ProgramFacts) -> Html:
    holders: Sequence[tuple[str, int]] = sorted(
        ((each.name, each.bytes) for each in program.memory_holders), key=lambda each: -each[1]
    )
    total = sum(size for _, size in holders)
    if total <= 0:
        return NOTHING
    rows = [
        (name_of(name), bytes_text(size), share_text(size / total), bar_cell(size / total)) for name, size in holders
    ]
    columns = [TableColumn("Holder"), *number_columns("Size", "Share"), TableColumn("", is_wide=True)]
    caption = f"What held the memory of {worker} at its peak, {bytes_text(total)} in all"
    return subsection(f"Memory of {worker}", draw_table(caption, columns, rows, limit=MAX_LINES, of_what="holders"))
