"""The traces of the program: what the time of their steps was spent on, and how well GPUs were used in it."""

from collections.abc import Sequence

import numpy as np

from trainyard.insight.profiling.report.charts.cells import Part, bar_cell, parts_bar
from trainyard.insight.profiling.report.charts.plot import Axis
from trainyard.insight.profiling.report.charts.stacks import draw_stacks
from trainyard.insight.profiling.report.contract import ReportSource
from trainyard.insight.profiling.report.labels import ROLE_COLOURS, ROLES
from trainyard.insight.profiling.report.markup import NOTHING, Html, element, join, name_of
from trainyard.insight.profiling.report.sections.section import Section, subsection
from trainyard.insight.profiling.report.sections.trace_memory import draw_memory
from trainyard.insight.profiling.report.sections.trace_tables import (
    draw_collectives,
    draw_kernels,
    draw_operators,
    draw_roofline,
)
from trainyard.insight.profiling.report.tables import TableColumn, draw_table, number_columns, text_columns
from trainyard.insight.profiling.report.units import UNKNOWN, duration_text, share_text
from trainyard.insight.profiling.traces.gpus import GpuUse
from trainyard.insight.profiling.traces.operators import OperatorCost
from trainyard.insight.profiling.traces.trace_profile import TraceProfile

# Shown in full; the others have a row in the list of traces.
MAX_TRACES = 4
# Bars of a chart of steps.
MAX_STEPS = 120


def write_traces(source: ReportSource) -> Section | None:
    if not source.traces:
        return None
    shown = list(source.traces.items())[:MAX_TRACES]
    details = [
        element(
            "details",
            element("summary", "Trace ", name_of(place)),
            _trace(trace),
            class_="trace",
            open="" if number == 0 else None,
        )
        for number, (place, trace) in enumerate(shown)
    ]
    left_out = len(source.traces) - len(shown)
    note = element("p", f"{left_out} more traces are only in the list.", class_="aside") if left_out else None
    body = join([_list_traces(source), *details, note])
    lead = "What torch.profiler recorded. A moment counts for the first of its roles, so shares add up to the whole."
    return Section("traces", "Traces", body, lead, str(len(source.traces)))


def _list_traces(source: ReportSource) -> Html:
    rows = []
    for place, trace in source.traces.items():
        windows = trace.windows
        steps = len(windows) if windows.are_steps else 0
        mean = float(windows.durations_ns.mean()) / 1e9 if len(windows) else None
        shares = trace.roles.shares
        parts = [Part(label, shares[role], ROLE_COLOURS[label]) for role, label in ROLES.items()]
        rows.append(
            (
                name_of(place),
                f"{steps}",
                duration_text(mean),
                parts_bar(parts, has_labels=False) if len(windows) else UNKNOWN,
            )
        )
    columns = [TableColumn("Trace"), *number_columns("Steps", "Mean step"), TableColumn("Roles", is_wide=True)]
    return draw_table("Traces that were read", columns, rows, limit=64, of_what="traces")


def _trace(trace: TraceProfile) -> Html:
    parts = [
        _roles(trace),
        _devices(trace.operators),
        _gpus(trace.gpus),
        draw_operators(trace),
        draw_kernels(trace),
        *(draw_memory(each) for each in trace.memory),
        draw_collectives(trace),
        draw_roofline(trace.roofline),
    ]
    return join(parts)


def _roles(trace: TraceProfile) -> Html:
    windows = trace.windows
    if not len(windows):
        return element("p", "The trace has no events of a program.", class_="empty")
    shares, means = trace.roles.shares, trace.roles.mean_s
    parts = [Part(label, shares[role], ROLE_COLOURS[label]) for role, label in ROLES.items()]
    rows = [
        (
            label,
            duration_text(means[role]),
            share_text(shares[role]),
            bar_cell(shares[role], colour=ROLE_COLOURS[label]),
        )
        for role, label in ROLES.items()
        if shares[role] > 0
    ]
    columns = [TableColumn("Role"), *number_columns("In a mean step", "Share"), TableColumn("", is_wide=True)]
    table = draw_table("Step time by role", columns, rows)
    return subsection("Step time by role", parts_bar(parts), _role_steps(trace), table)


def _role_steps(trace: TraceProfile) -> Html:
    windows = trace.windows
    if not windows.are_steps or len(windows) < 2:
        return NOTHING
    times = trace.roles.times_ns[:MAX_STEPS] / 1e9
    parts = {label: times[:, role].astype(np.float64) for role, label in ROLES.items()}
    return draw_stacks(
        "Steps of the trace",
        parts,
        ROLE_COLOURS,
        across=Axis(0, len(times)),
        unit="s",
        names=[f"{number:,}" for number in windows.numbers[:MAX_STEPS].tolist()],
    )


def _devices(operators: Sequence[OperatorCost]) -> Html:
    """Draw how the time of operators divides between the host and devices."""
    host, device = sum(each.host_self_s for each in operators), sum(each.device_self_s for each in operators)
    if not host or not device:
        return NOTHING
    total = host + device
    parts = [
        Part("CPU operators", host / total, "var(--phase-optimizer)"),
        Part("GPU operators", device / total, "var(--phase-forward)"),
    ]
    return subsection("CPU and GPU operators", parts_bar(parts))


def _gpus(gpus: Sequence[GpuUse]) -> Html:
    rows = [
        (
            f"GPU {gpu.device}",
            gpu.name or UNKNOWN,
            share_text(gpu.utilization),
            bar_cell(gpu.utilization),
            share_text(gpu.sm_efficiency),
            share_text(gpu.occupancy),
            share_text(gpu.tensor_core_share),
        )
        for gpu in gpus
    ]
    columns = [
        *text_columns("GPU", "Name"),
        TableColumn("Utilization", is_number=True),
        TableColumn("", is_wide=True),
        *number_columns("SM efficiency", "Occupancy", "Tensor cores"),
    ]
    return subsection("GPU use", draw_table("From the first step to the last", columns, rows)) if rows else NOTHING
