"""`trainyard metrics`: the numbers a training job reported."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from trainyard.cli.console import Command, home_option, json_option, print_json, say
from trainyard.cli.jobs import calls, find_job, job_argument, plain
from trainyard.connection import Api
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.jobs import MetricDefinition
from trainyard.job_logs import written_lines
from trainyard.log_metrics import Metric, Reading, read_metrics
from trainyard.metric_periods import period_of

NAMESPACE = "/aws/sagemaker/TrainingJobs"


@click.command(
    cls=Command,
    short_help="Show the metrics of a training job.",
    examples=(
        "trainyard metrics @last",
        "trainyard metrics @last --json",
        "trainyard metrics mnist --define 'loss=loss: ([0-9.]+)'     read anew from what the job wrote",
    ),
)
@job_argument
@click.option(
    "--define",
    "definitions",
    metavar="NAME=REGEX",
    multiple=True,
    help="Read a metric from the job's log instead: the first group of the first match in a line, or the whole match "
    "where the expression has no group. May be given several times.",
)
@home_option
@json_option
def metrics(job: str, definitions: tuple[str, ...], folder: Path | None, as_json: bool) -> None:
    """Show the metrics of a training job: how many values, the last, the lowest and the highest."""
    defined = [_definition(text) for text in definitions]
    with calls(folder) as api:
        description = find_job(api, job)
        if defined:
            reading = _read_anew(api, description, defined)
        else:
            finals = description.get("FinalMetricDataList", ())
            reading = Reading([_reported(api, description, final) for final in finals], [])
    if as_json:
        print_json({"metrics": [_values(metric) for metric in reading.metrics], "notes": list(reading.notes)})
        return
    _print(reading)


def _definition(text: str) -> MetricDefinition:
    name, separator, regex = text.partition("=")
    if not separator or not name or not regex:
        raise click.UsageError(f'--define "{text}" is not NAME=REGEX.')
    return MetricDefinition(name, regex)


def _read_anew(api: Api, description: Mapping[str, Any], definitions: list[MetricDefinition]) -> Reading:
    try:
        return read_metrics(written_lines(api, description["TrainingJobName"]), definitions)
    except InvalidRequest as error:
        raise click.UsageError(error.message) from error


def _reported(api: Api, description: Mapping[str, Any], final: Mapping[str, Any]) -> Metric:
    """What the yard knows of a metric: its last value from the job, the rest from CloudWatch."""
    start = description["CreationTime"] - timedelta(minutes=1)
    end = (description.get("TrainingEndTime") or datetime.now(UTC)) + timedelta(minutes=1)
    answer = api.call(
        "cloudwatch",
        "GetMetricStatistics",
        Namespace=NAMESPACE,
        MetricName=final["MetricName"],
        Dimensions=[{"Name": "TrainingJobName", "Value": description["TrainingJobName"]}],
        StartTime=start,
        EndTime=end,
        Period=int(period_of(start, end).total_seconds()),
        Statistics=["Minimum", "Maximum", "SampleCount"],
    )
    points = answer.get("Datapoints", ())
    return Metric(
        final["MetricName"],
        int(sum(point["SampleCount"] for point in points)),
        final["Value"],
        min((point["Minimum"] for point in points), default=final["Value"]),
        max((point["Maximum"] for point in points), default=final["Value"]),
        final["Timestamp"],
    )


def _values(metric: Metric) -> dict[str, Any]:
    return {
        "name": metric.name,
        "count": metric.count,
        "last": metric.last,
        "min": metric.low,
        "max": metric.high,
        "at": plain(metric.at),
    }


def _print(reading: Reading) -> None:
    for note in reading.notes:
        say(note)
    if not reading.metrics:
        say("No metric was found.")
        return
    width = max(len("metric"), *(len(metric.name) for metric in reading.metrics))
    click.echo(f"{'metric':<{width}}  {'values':>7}  {'last':>12}  {'lowest':>12}  {'highest':>12}")
    for metric in reading.metrics:
        numbers = f"{metric.last:>12g}  {metric.low:>12g}  {metric.high:>12g}"
        click.echo(f"{metric.name:<{width}}  {metric.count:>7}  {numbers}")
