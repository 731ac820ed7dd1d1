"""What traces say about memory: how much was held, by which operators, and whose it was at the peak."""

import numpy as np

from trainyard.insight.profiling.report.charts.cells import bar_cell
from trainyard.insight.profiling.report.charts.lines import Line, draw_lines
from trainyard.insight.profiling.report.charts.plot import Axis
from trainyard.insight.profiling.report.downsampling import follow_levels
from trainyard.insight.profiling.report.labels import device_label
from trainyard.insight.profiling.report.markup import NOTHING, Html, element, name_of
from trainyard.insight.profiling.report.sections.section import subsection
from trainyard.insight.profiling.report.tables import TableColumn, draw_table, number_columns
from trainyard.insight.profiling.report.units import bytes_text, duration_text, number_text, share_text
from trainyard.insight.profiling.traces.memory import OUTSIDE, DeviceMemory, MemoryCurve

MAX_ROWS = 12
_POINTS = 320


def draw_memory(memory: DeviceMemory) -> Html:
    if not len(memory.curve.times_us):
        return NOTHING
    peak = memory.curve.peak_bytes
    at = (memory.curve.peak_at_us - int(memory.curve.times_us[0])) / 1e6
    text = element("p", f"At most {bytes_text(peak)}, {duration_text(at)} after the start of the trace.")
    return subsection(
        f"Memory of {_device(memory.device)}",
        text,
        _curve(memory.curve),
        _peak_holders(memory, peak),
        _operators(memory),
    )


def _device(name: str) -> str:
    return device_label(name.lower()) if name.startswith("GPU") else name


def _curve(curve: MemoryCurve) -> Html:
    elapsed = (curve.times_us - curve.times_us[0]) / 1e6
    across = Axis(0, max(float(elapsed[-1]), 1e-6), "elapsed")
    named = {"allocated": curve.allocated_bytes, "reserved": curve.reserved_bytes}
    lines = [
        Line(name, follow_levels(elapsed, values.astype(np.float64), start=0, end=across.high, points=_POINTS))
        for name, values in named.items()
        if values.any()
    ]
    return draw_lines("Memory held", lines, across=across, unit="B")


def _peak_holders(memory: DeviceMemory, peak: int) -> Html:
    held = sorted(memory.held_at_peak.items(), key=lambda item: -item[1])
    rows = [
        (_name(name), bytes_text(size), share_text(size / peak), bar_cell(size / peak)) for name, size in held if peak
    ]
    columns = [TableColumn("Allocated by"), *number_columns("Size", "Share"), TableColumn("", is_wide=True)]
    return draw_table("What was held at the peak", columns, rows, limit=MAX_ROWS, of_what="operators")


def _operators(memory: DeviceMemory) -> Html:
    rows = [
        (
            _name(each.name),
            number_text(each.calls),
            number_text(each.allocations),
            *map(
                bytes_text,
                (each.self_allocated_bytes, each.self_increase_bytes, each.allocated_bytes, each.increase_bytes),
            ),
        )
        for each in memory.operators
    ]
    columns = [
        TableColumn("Operator"),
        *number_columns("Calls", "Allocations", "Self", "Self, kept", "Total", "Total, kept"),
    ]
    table = draw_table("What operators allocated", columns, rows, limit=MAX_ROWS, of_what="operators")
    return element("details", element("summary", "By operator"), table) if rows else NOTHING


def _name(name: str) -> Html:
    return element("span", "outside of operators") if name == OUTSIDE else name_of(name)
