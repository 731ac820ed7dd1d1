"""`trainyard metrics`: the metrics of a training job."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from trainyard._sdk.connection import Api
from trainyard._sdk.training.cloudwatch import metric_datapoints, read_log
from trainyard._sdk.training.metrics import LogMetrics, MetricStatistics, read_metrics
from trainyard.cli.jobs.lookup import find_job, job_argument, open_api, to_json
from trainyard.cli.terminal.console import CommandWithExamples, home_option, json_option, print_json, say
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.jobs.training.plan import MetricDefinition


@click.command(
    cls=CommandWithExamples,
    examples=(
        "trainyard metrics @last",
        "trainyard metrics @last --json",
        "trainyard metrics mnist --define 'loss=loss: ([0-9.]+)'     read a metric from the log",
    ),
)
@job_argument
@click.option(
    "--define",
    "definitions",
    metavar="NAME=REGEX",
    multiple=True,
    help="Read a metric from the log of the job instead: the first group of the first match in a line, or the whole "
    "match if the expression has no group. Can be given several times.",
)
@home_option
@json_option
def metrics(job: str, definitions: tuple[str, ...], folder: Path | None, as_json: bool) -> None:
    """Show the metrics of a training job: the number of values, the last, the lowest and the highest."""
    defined = [_definition(text) for text in definitions]
    with open_api(folder) as api:
        description = find_job(api, job)
        if defined:
            found = _read_from_log(api, description, defined)
        else:
            finals = description.get("FinalMetricDataList", ())
            found = LogMetrics([_recorded_metric(api, description, final) for final in finals], [])
    if as_json:
        print_json({"metrics": [_values(metric) for metric in found.metrics], "notes": list(found.notes)})
        return
    _print(found)


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


def _recorded_metric(api: Api, description: Mapping[str, Any], final: Mapping[str, Any]) -> MetricStatistics:
    """Return a metric of the job: its last value from the description, the rest from CloudWatch."""
    start = description["CreationTime"] - timedelta(minutes=1)
    end = (description.get("TrainingEndTime") or datetime.now(UTC)) + timedelta(minutes=1)
    points = metric_datapoints(
        api,
        description["TrainingJobName"],
        final["MetricName"],
        start=start,
        end=end,
        statistics=["Minimum", "Maximum", "SampleCount"],
    )
    return MetricStatistics(
        final["MetricName"],
        int(sum(point["SampleCount"] for point in points)),
        final["Value"],
        min((point["Minimum"] for point in points), default=final["Value"]),
        max((point["Maximum"] for point in points), default=final["Value"]),
        final["Timestamp"],
    )


def _values(metric: MetricStatistics) -> dict[str, Any]:
    return {
        "name": metric.name,
        "count": metric.count,
        "last": metric.last,
        "min": metric.low,
        "max": metric.high,
        "at": to_json(metric.at),
    }


def _print(found: LogMetrics) -> None:
    for note in found.notes:
        say(note)
    if not found.metrics:
        say("The job has no metrics.")
        return
    width = max(len("metric"), *(len(metric.name) for metric in found.metrics))
    click.echo(f"{'metric':<{width}}  {'values':>7}  {'last':>12}  {'lowest':>12}  {'highest':>12}")
    for metric in found.metrics:
        numbers = f"{metric.last:>12g}  {metric.low:>12g}  {metric.high:>12g}"
        click.echo(f"{metric.name:<{width}}  {metric.count:>7}  {numbers}")
