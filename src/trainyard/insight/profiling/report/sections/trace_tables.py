"""What traces say about operators, kernels, collectives, and their place under the roofline."""

from collections.abc import Sequence

from trainyard.insight.profiling.report.charts.cells import Part, bar_cell, parts_bar
from trainyard.insight.profiling.report.charts.rooflines import draw_roofline_chart
from trainyard.insight.profiling.report.markup import NOTHING, Html, element, join, name_of
from trainyard.insight.profiling.report.sections.section import subsection
from trainyard.insight.profiling.report.tables import TableColumn, draw_table, number_columns, text_columns
from trainyard.insight.profiling.report.units import (
    UNKNOWN,
    bytes_text,
    duration_text,
    number_text,
    percent_text,
    rate_text,
    share_text,
)
from trainyard.insight.profiling.traces.kernels import KernelCost
from trainyard.insight.profiling.traces.operators import OperatorCost
from trainyard.insight.profiling.traces.roofline import RooflinePoint
from trainyard.insight.profiling.traces.trace_profile import TraceProfile

MAX_ROWS = 20


def draw_operators(trace: TraceProfile) -> Html:
    if not trace.operators:
        return NOTHING
    by_name = _operators("Operators, by their own time", trace.operators, has_device=trace.has_device)
    parts: list[Html] = [by_name]
    if trace.operators_by_shape:
        grouped = _operators(
            "Operators and the shapes of their inputs", trace.operators_by_shape, has_device=trace.has_device
        )
        parts.append(element("details", element("summary", "By the shapes of inputs"), grouped))
    return subsection("Operators", *parts)


def _operators(caption: str, operators: Sequence[OperatorCost], *, has_device: bool) -> Html:
    def own_s(each: OperatorCost) -> float:
        return each.device_self_s if has_device else each.host_self_s

    total = sum(map(own_s, operators)) or 1.0
    columns = [
        TableColumn("Operator"),
        *number_columns("Calls", "Host self", "Host total"),
        *(number_columns("Device self", "Device total", "Tensor cores") if has_device else ()),
        TableColumn("Share", is_number=True),
        TableColumn("", is_wide=True),
    ]
    shown = sorted(operators, key=own_s, reverse=True)
    rows = [
        (
            _call(each.name, each.shape),
            number_text(each.calls),
            duration_text(each.host_self_s),
            duration_text(each.host_total_s),
            *(_on_device(each) if has_device else ()),
            share_text(own_s(each) / total),
            bar_cell(own_s(each) / total),
        )
        for each in shown[:MAX_ROWS]
    ]
    return join([draw_table(caption, columns, rows), _left_out(len(shown), "operators")])


def _on_device(each: OperatorCost) -> tuple[str, str, str]:
    used = share_text(each.tensor_core_self_share) if each.can_use_tensor_cores or each.tensor_core_self_s else UNKNOWN
    return duration_text(each.device_self_s), duration_text(each.device_total_s), used


def _call(name: str, shape: str) -> Html:
    return join([name_of(name), element("div", name_of(shape, limit=60), class_="aside") if shape else None])


def _left_out(count: int, of_what: str) -> Html | None:
    return (
        element("p", f"{count - MAX_ROWS:,} more {of_what} are left out.", class_="aside") if count > MAX_ROWS else None
    )


def draw_kernels(trace: TraceProfile) -> Html:
    if not trace.kernels:
        return NOTHING
    total = sum(each.total_s for each in trace.kernels) or 1.0
    on_tensor_cores = sum(each.total_s for each in trace.kernels if each.uses_tensor_cores) / total
    bar = parts_bar(
        [
            Part("tensor cores", on_tensor_cores, "var(--phase-forward)"),
            Part("no tensor cores", 1 - on_tensor_cores, "var(--phase-other)"),
        ]
    )
    columns = [
        TableColumn("Kernel"),
        *number_columns("Calls", "Total", "Mean", "Max", "Min", "Blocks per SM", "Occupancy"),
        TableColumn("Tensor cores"),
        TableColumn("Share", is_number=True),
        TableColumn("", is_wide=True),
    ]
    rows = [
        (*_kernel(each), share_text(each.total_s / total), bar_cell(each.total_s / total))
        for each in trace.kernels[:MAX_ROWS]
    ]
    table = draw_table("Kernels, by their time", columns, rows)
    grouped = element("details", element("summary", "By operator and launch"), _launches(trace.kernels_by_launch))
    return subsection("Kernels", bar, table, _left_out(len(trace.kernels), "kernels"), grouped)


def _kernel(each: KernelCost) -> tuple[str, ...]:
    return (
        name_of(each.name, limit=60),
        number_text(each.calls),
        *(duration_text(value) for value in (each.total_s, each.mean_s, each.max_s, each.min_s)),
        number_text(each.blocks_per_sm or None),
        percent_text(each.occupancy_percent or None),
        "yes" if each.uses_tensor_cores else "no",
    )


def _launches(kernels: Sequence[KernelCost]) -> Html:
    columns = [
        *text_columns("Kernel", "Operator", "Grid", "Block"),
        *number_columns("Registers", "Shared memory", "Calls", "Total", "Occupancy"),
    ]
    rows = [
        (
            name_of(each.name, limit=48),
            name_of(each.operator, limit=48) if each.operator else UNKNOWN,
            each.grid or UNKNOWN,
            each.block or UNKNOWN,
            number_text(each.registers if each.registers >= 0 else None),
            bytes_text(each.shared_memory_bytes if each.shared_memory_bytes >= 0 else None),
            number_text(each.calls),
            duration_text(each.total_s),
            percent_text(each.occupancy_percent or None),
        )
        for each in kernels[:MAX_ROWS]
    ]
    return join([draw_table("Kernels by launch", columns, rows), _left_out(len(kernels), "launches")])


def draw_collectives(trace: TraceProfile) -> Html:
    if not trace.collectives:
        return NOTHING
    overlap = trace.overlap
    computing, hidden, exposed, other = (
        float(values.sum())
        for values in (
            overlap.computation_ns - overlap.overlap_ns,
            overlap.overlap_ns,
            overlap.exposed_ns,
            overlap.other_ns,
        )
    )
    total = computing + hidden + exposed + other or 1.0
    bar = parts_bar(
        [
            Part("computing", computing / total, "var(--phase-forward)"),
            Part("both at once", hidden / total, "var(--series-2)"),
            Part("communicating", exposed / total, "var(--phase-communication)"),
            Part("neither", other / total, "var(--phase-other)"),
        ]
    )
    rows = [
        (
            name_of(each.name),
            number_text(each.calls),
            bytes_text(each.total_bytes or None),
            duration_text(each.total_s),
            duration_text(each.mean_s),
            duration_text(each.max_s),
            f"{bytes_text(each.bytes_per_s)}/s" if each.total_bytes else UNKNOWN,
        )
        for each in trace.collectives[:MAX_ROWS]
    ]
    columns = [TableColumn("Collective"), *number_columns("Calls", "Size", "Total", "Mean", "Max", "Throughput")]
    text = f"{share_text(overlap.exposed_share)} of the time of steps is communication that no computing hides."
    table = draw_table("Collectives, by their time", columns, rows)
    return subsection("Collectives", element("p", text), bar, table)


def draw_roofline(points: Sequence[RooflinePoint]) -> Html:
    if not points:
        return NOTHING
    has_roof = any(each.reached_share is not None for each in points)
    columns = [
        TableColumn("Operator"),
        *number_columns("Calls", "Time", "FLOPs per byte", "FLOP/s"),
        *(
            (TableColumn("Held back by"), TableColumn("Of the roof", is_number=True), TableColumn("", is_wide=True))
            if has_roof
            else ()
        ),
    ]
    rows = [
        (
            _call(each.operator, each.shape),
            number_text(each.calls),
            duration_text(each.seconds),
            number_text(each.intensity),
            rate_text(each.flops_per_s),
            *(_under_roof(each) if has_roof else ()),
        )
        for each in points[:MAX_ROWS]
    ]
    table = draw_table("Operators whose work is known", columns, rows)
    text = "What an operator computes for each byte that it moves, and how much of what the device can do it reaches."
    return subsection(
        "Roofline",
        element("p", text, class_="aside"),
        draw_roofline_chart(points),
        table,
        _left_out(len(points), "operators"),
    )


def _under_roof(each: RooflinePoint) -> tuple[str, str, str]:
    if each.reached_share is None or each.side is None:
        return UNKNOWN, UNKNOWN, ""
    return each.side.value, share_text(each.reached_share), bar_cell(each.reached_share)
