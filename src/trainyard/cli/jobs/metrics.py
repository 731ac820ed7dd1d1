"""`trainyard metrics`: the metrics of a training job."""

import csv
import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from trainyard._sdk.connection import Api
from trainyard._sdk.training.cloudwatch import read_log
from trainyard._sdk.training.console import duration_text
from trainyard._sdk.training.metrics import (
    JobMetrics,
    LogMetrics,
    MetricStatistics,
    RecordedMetrics,
    in_time_order,
    read_metrics,
)
from trainyard.cli.jobs.lookup import find_job, job_argument, open_api, to_json
from trainyard.cli.terminal.charts import block
from trainyard.cli.terminal.console import CommandWithExamples, json_option, say, yard_option
from trainyard.cli.terminal.curves import curve_lines
from trainyard.cli.terminal.drawing import inert, is_terminal
from trainyard.cli.terminal.failure import ExitCode, Failure
from trainyard.cli.terminal.json_output import JsonFields, select_fields
from trainyard.cli.terminal.tables import Column, print_table
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.jobs.training.plan import MetricDefinition

_CURVE_HEIGHT, _MAX_CURVE_WIDTH = 8, 100
_POINTS = "Points"


@click.command(
    cls=CommandWithExamples,
    examples=(
        "trainyard metrics @last                          a table and, in a terminal, curves",
        "trainyard metrics @last --plot loss.html         an HTML page",
        "trainyard metrics @last --csv > points.csv       all points",
        "trainyard metrics @last --json MetricName,Value  without the points",
        "trainyard metrics mnist --define 'loss=loss: ([0-9.]+)'     read a metric from the log",
    ),
)
@job_argument
@click.option(
    "-m", "--metric", "names", metavar="NAME", multiple=True, help="Only this metric. Can be given several times."
)
@click.option(
    "--define",
    "definitions",
    metavar="NAME=REGEX",
    multiple=True,
    help="Read a metric from the log of the job instead: the first group of the first match in a line, or the whole "
    "match if the expression has no group. Can be given several times.",
)
@click.option(
    "--plot",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write curves to a self-contained HTML page. Needs Bokeh: trainyard[plots].",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print all points as CSV.")
@yard_option
@json_option
def metrics(
    job: str,
    names: tuple[str, ...],
    definitions: tuple[str, ...],
    plot: Path | None,
    as_csv: bool,
    folder: Path | None,
    as_json: JsonFields | None,
) -> None:
    """Show the metrics of a training job: the number of values, the last, the lowest and the highest.

    In a terminal, curves follow: each value in the order in which it was recorded. --json and --csv print all points.
    """
    if as_json and as_csv:
        raise click.UsageError("--json and --csv are different forms of the same; leave one of them out.")
    defined = [_definition(text) for text in definitions]
    page = _load_page() if plot else None
    with open_api(folder) as api:
        description = find_job(api, job)
        found = _read_from_log(api, description, defined) if defined else RecordedMetrics(api, description)
        chosen = _choose(found.metrics, names, description["TrainingJobName"])
        if plot and page:
            plot.write_text(page(description["TrainingJobName"], found, chosen), encoding="utf-8")
            say(f"Wrote the curves to {plot}.")
        if as_json:
            _print_json(found, chosen, as_json)
        elif as_csv:
            _print_csv(found, chosen)
        elif not plot:
            _print_table(found.notes, chosen)
            if chosen and is_terminal(sys.stdout) and block() != "#":
                _print_curves(found, chosen)


def _definition(text: str) -> MetricDefinition:
    name, separator, regex = text.partition("=")
    if not separator or not name or not regex:
        raise click.UsageError(f'--define "{text}" is not NAME=REGEX.')
    return MetricDefinition(name, regex)


def _read_from_log(api: Api, description: Mapping[str, Any], definitions: list[MetricDefinition]) -> LogMetrics:
    try:
        return read_metrics(read_log(api, description["TrainingJobName"]), definitions)
    except InvalidRequest as error:
        raise click.UsageError(error.message) from error


def _choose(found: Sequence[MetricStatistics], names: Sequence[str], job_name: str) -> Sequence[MetricStatistics]:
    """Return the metrics with these names, or all of them. An unknown name is a failure that shows the known ones."""
    known = {metric.name: metric for metric in found}
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None:
        raise Failure(
            f'Training job "{job_name}" has no metric "{unknown}".',
            why=f"Its metrics are {', '.join(known)}." if known else "It has recorded no metric.",
            code=ExitCode.NOT_FOUND,
        )
    return [known[name] for name in dict.fromkeys(names)] or found


def _load_page() -> Callable[[str, JobMetrics, Sequence[MetricStatistics]], str]:
    """Return the function that draws the HTML page. It fails before anything is read if Bokeh is missing."""
    try:
        from trainyard._sdk.training.metric_charts import metrics_page
    except ImportError as error:
        raise Failure(
            "--plot needs Bokeh, which is not installed.", next_step="pip install 'trainyard[plots]'"
        ) from error
    return metrics_page


def _values(metric: MetricStatistics) -> dict[str, Any]:
    return {
        "MetricName": metric.name,
        "SampleCount": metric.count,
        "Value": metric.last,
        "Minimum": metric.low,
        "Maximum": metric.high,
        "Timestamp": to_json(metric.at),
    }


def _print_json(found: JobMetrics, chosen: Sequence[MetricStatistics], fields: JsonFields) -> None:
    """Print one JSON object, with the points as they arrive, because there can be millions of them."""
    # Not by click, which flushes each piece.
    write = sys.stdout.write
    write('{"Metrics": [')
    for number, metric in enumerate(chosen):
        document = select_fields(_values(metric), fields, optional=[_POINTS])
        has_points = not fields.names or _POINTS in document
        document.pop(_POINTS, None)
        write((",\n" if number else "\n") + json.dumps(document)[:-1])
        if has_points:
            write(f'{", " if document else ""}"{_POINTS}": [')
            for position, point in enumerate(_points(found, metric.name)):
                write((",\n" if position else "\n") + json.dumps(point))
            write("]")
        write("}")
    write(f'],\n"Notes": {json.dumps(list(found.notes))}}}\n')


def _points(found: JobMetrics, name: str) -> Iterator[dict[str, Any]]:
    for batch in found.points(name):
        attempt = {"Attempt": batch.attempt} if batch.attempt else {}
        for at_us, value in zip(batch.at_us, batch.values, strict=True):
            yield {"Timestamp": _time_text(at_us), "Value": value, "Instance": batch.instance, **attempt}


def _print_csv(found: JobMetrics, chosen: Sequence[MetricStatistics]) -> None:
    for note in found.notes:
        say(note)
    rows = csv.writer(sys.stdout, lineterminator="\n")
    rows.writerow(["metric", "instance", "attempt", "timestamp", "value"])
    for metric in chosen:
        for batch in found.points(metric.name):
            rows.writerows(
                (metric.name, batch.instance, batch.attempt or "", _time_text(at_us), value)
                for at_us, value in zip(batch.at_us, batch.values, strict=True)
            )


def _time_text(at_us: int) -> str:
    return datetime.fromtimestamp(at_us / 1e6, UTC).isoformat()


def _print_table(notes: Sequence[str], chosen: Sequence[MetricStatistics]) -> None:
    for note in notes:
        say(note)
    if not chosen:
        say("The job has no metrics.")
        return
    numbers = [Column(title, align="right") for title in ("values", "last", "lowest", "highest")]
    rows = [[each.name, f"{each.count}", *(f"{value:g}" for value in _extent(each))] for each in chosen]
    print_table(["metric", *numbers], rows)


def _extent(metric: MetricStatistics) -> tuple[float, float, float]:
    return metric.last, metric.low, metric.high


def _print_curves(found: JobMetrics, chosen: Sequence[MetricStatistics]) -> None:
    """Draw each metric. A terminal has few columns, so the yard sends the extremes of as many parts only."""
    width = min(shutil.get_terminal_size().columns, _MAX_CURVE_WIDTH)
    for metric in chosen:
        points = in_time_order(found.points(metric.name, max_points=4 * width))
        if not points:
            continue
        values = [value for _, value in points]
        took = duration_text((points[-1][0] - points[0][0]) / 1e6)
        low, high = min(values), max(values)
        click.echo(f"\n{click.style(inert(metric.name), bold=True)}  {metric.count} values in {took}")
        for line in curve_lines(values, width=width, height=_CURVE_HEIGHT, low=low, high=high):
            click.echo(line)
