"""The notebook: the sections of the page, from figures that it brings along, and from the job itself if it is reached.

What it brings is JSON in a string literal of ASCII, and tables escape what they show, so that a name in the profile is
only ever a name.
"""

import json
from collections.abc import Mapping, Sequence

from trainyard.insight.profiling.report.json_values import encode_json

# How many characters of a string literal fit on a line.
_LINE = 110

_TABLES = '''
from html import escape


class Table:
    """Rows as a table of the notebook, or as text."""

    def __init__(self, rows, *columns):
        self.rows = list(rows)
        self.columns = columns or tuple(dict.fromkeys(name for row in self.rows for name in row))

    def cells(self):
        return [[text(row.get(column)) for column in self.columns] for row in self.rows]

    def _repr_html_(self):
        head = "".join(f"<th>{escape(column)}</th>" for column in self.columns)
        lines = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in self.cells())
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        return f"<table><tr>{head}</tr>{body}</table>" if self.rows else "<p>Nothing was recorded.</p>"

    def __repr__(self):
        rows = [list(self.columns), *self.cells()]
        widths = [max(len(row[place]) for row in rows) for place in range(len(self.columns))]
        lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)
        return "\\n".join(lines) if self.rows else "Nothing was recorded."


def text(value):
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    return ", ".join(map(text, value)) if isinstance(value, list) else str(value)


def facts(values):
    """A table of names and values, without members that are lists or objects."""
    pairs = values.items()
    return Table({"name": name, "value": value} for name, value in pairs if not isinstance(value, (dict, list)))
'''

_CONNECT = """
# The job in the yard. Without it, the rest of the notebook shows the figures above.
import os
from pathlib import Path

VARIABLES = ("TRAINYARD_PROFILE", "TRAINYARD_ENDPOINT", "TRAINYARD_HOME", "AWS_ENDPOINT_URL")
FOLDERS = ("~/.trainyard", "~/.config/trainyard")
training_job = system_metrics = framework_metrics = None
try:
    # A session starts a yard if none runs, which a notebook should do only on a machine that has one.
    is_named = any(name in os.environ for name in VARIABLES)
    if not is_named and not any(Path(folder).expanduser().exists() for folder in FOLDERS):
        raise LookupError("this machine knows no yard")
    from trainyard.profiler import Heatmap, StepHistogram, StepTimelineChart, TimelineCharts, TrainingJob

    training_job = TrainingJob(REPORT["job"]["name"], REPORT["job"]["region"] or None)
    system_metrics = training_job.get_systems_metrics_reader()
    framework_metrics = training_job.get_framework_metrics_reader()
    system_metrics.refresh_event_file_list()
    framework_metrics.refresh_event_file_list()
except Exception as error:
    training_job = None
    print(f"The job is not reached, so only the figures of the report are shown: {error}")
"""

_VERDICT = """
verdict = REPORT["verdict"]
print(verdict["summary"])
bottleneck = verdict["bottleneck"]
if bottleneck is not None:
    print()
    print(bottleneck["title"])
    for line in bottleneck["evidence"]:
        print("-", line)
"""

_TIMELINE = """
if training_job is not None:
    TimelineCharts(system_metrics, framework_metrics, select_dimensions=["CPU", "GPU"], select_events=["total"])
"""

_HEATMAP = """
if training_job is not None:
    Heatmap(system_metrics, select_dimensions=["CPU", "GPU"], select_events=[".*"])
"""

_HISTOGRAM = """
if training_job is not None:
    StepHistogram(framework_metrics).plot()
"""

_STEP_TIMELINE = """
if training_job is not None:
    StepTimelineChart(framework_metrics)
"""

_PHASES = """
Table({"worker": row["worker"], "mode": row["mode"], **row["phases_s"]} for row in REPORT["steps"])
"""

_DURATIONS = """
durations = ("worker", "mode", "steps", "mean_s", "max_s", "p99_s", "p95_s", "p50_s", "min_s", "outliers")
Table(REPORT["steps"], *durations)
"""

_RULES = """
rules = sorted(REPORT["rules"], key=lambda rule: -rule["triggered"])
Table(rules, "name", "status", "triggered", "violations", "datapoints", "recommendation", "undecided")
"""

_FINDINGS = """
Table({"rule": rule["name"], "finding": finding} for rule in rules for finding in rule["findings"])
"""

_PROGRAMS = """
members = ("worker", "framework", "framework_version", "device", "precision", "parameters", "samples_per_step")
Table(REPORT["programs"], *members)
"""

_LOADERS = """
Table({"worker": each["worker"], **loader} for each in REPORT["programs"] for loader in each["loaders"])
"""

_HOT_LINES = """
lines = ({"worker": each["worker"], **line} for each in REPORT["programs"] for line in each["hot_lines"])
Table(sorted(lines, key=lambda line: -line["samples"])[:30])
"""

_ROLES = """
Table(
    {"trace": place, "steps": trace["steps"], **{role: f"{part['share']:.1%}" for role, part in trace["roles"].items()}}
    for place, trace in REPORT["traces"].items()
)
"""

_OPERATORS = """
Table({"trace": place, **row} for place, trace in REPORT["traces"].items() for row in trace["operators"])
"""

_KERNELS = """
Table({"trace": place, **row} for place, trace in REPORT["traces"].items() for row in trace["kernels"])
"""


def write_notebook(figures: Mapping[str, object]) -> str:
    """Return the notebook as JSON of nbformat 4; `figures` are those of `summarize`."""
    cells = [
        _words(
            "# Profiler report\n\n"
            "The sections of `profiler-report.html`, to go on from. Tables show the figures that this notebook brings "
            "along. Charts are drawn as well if the yard of the job is reached and `trainyard[plots]` is installed."
        ),
        _code(_report_literal(figures), is_hidden=True),
        _code(_TABLES, is_hidden=True),
        _words("## Verdict"),
        _code(_VERDICT),
        _code('Table(verdict["advice"], "title", "reason", "max_speedup", "saved_per_hour")'),
        _code('Table(verdict["others"], "kind", "title", "share", "max_speedup")'),
        _code('facts(verdict["costs"])'),
        _words("## Training job summary"),
        _code('facts(REPORT["job"])'),
        _code(_PROGRAMS),
        _words("## The job in the yard"),
        _code(_CONNECT),
        _words("## Where the time of steps goes\n\nThe mean seconds of each phase in a step."),
        _code(_PHASES),
        _code(_STEP_TIMELINE),
        _words("## Step durations"),
        _code(_DURATIONS),
        _code('Table(REPORT["slow_steps"])'),
        _code(_HISTOGRAM),
        _words("## Rules"),
        _code(_RULES),
        _code(_FINDINGS),
        _words("## Data loading"),
        _code(_LOADERS),
        _words("## Program"),
        _code(_HOT_LINES),
        _words("## System usage"),
        _code('Table(REPORT["system"])'),
        _code(_TIMELINE),
        _code(_HEATMAP),
        _words("## Traces"),
        _code(_ROLES),
        _code(_OPERATORS),
        _code(_KERNELS),
        _words("## What is missing"),
        _code('Table({"note": note} for note in [*REPORT["notes"], *verdict["notes"]])'),
    ]
    numbered = [{"id": f"cell-{number}", **cell} for number, cell in enumerate(cells)]
    about = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return json.dumps({"cells": numbered, "metadata": about, "nbformat": 4, "nbformat_minor": 5}, indent=1)


def _report_literal(report: Mapping[str, object]) -> str:
    """Return code that assigns the report; its JSON stands in pieces, so that lines stay short."""
    text = encode_json(report)
    pieces = [text[start : start + _LINE] for start in range(0, len(text), _LINE)]
    lines = "\n".join(f"    {piece!r}" for piece in pieces)
    return f"import json\n\nREPORT = json.loads(\n{lines}\n)"


def _words(text: str) -> dict[str, object]:
    return {"cell_type": "markdown", "metadata": {}, "source": _lines(text)}


def _code(text: str, *, is_hidden: bool = False) -> dict[str, object]:
    metadata = {"jupyter": {"source_hidden": True}} if is_hidden else {}
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": metadata,
        "outputs": [],
        "source": _lines(text.strip("\n")),
    }


def _lines(text: str) -> Sequence[str]:
    return text.splitlines(keepends=True)
