"""`trainyard metrics`: the numbers a training job reported."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from trainyard.cli.console import Command, home_option, json_option, print_json, say
from trainyard.cli.jobs import calls, find_job, job_argument, plain
from trainyard.connection import Api
from trainyard.following import JobLogs, LogLine

NAMESPACE = "/aws/sagemaker/TrainingJobs"
_MOST_POINTS = 1440  # in one answer of CloudWatch


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    count: int
    last: float
    low: float
    high: float
    at: datetime


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
    help="Read a metric from the job's log instead: the first group of each match. May be given several times.",
)
@home_option
@json_option
def metrics(job: str, definitions: tuple[str, ...], folder: Path | None, as_json: bool) -> None:
    """Show the metrics of a training job: how many values, the last, the lowest and the highest."""
    patterns = [_definition(text) for text in definitions]
    with calls(folder) as api:
        description = find_job(api, job)
        if patterns:
            found = extract(JobLogs(api, description["TrainingJobName"]).read(), patterns)
        else:
            found = [_reported(api, description, final) for final in description.get("FinalMetricDataList", ())]
    if as_json:
        print_json({"metrics": [_values(metric) for metric in found]})
        return
    _print(found)


def extract(lines: Iterable[LogLine], patterns: Sequence[tuple[str, re.Pattern[str]]]) -> list[Metric]:
    """The metrics that definitions find; a carriage return ends a line too, and what is no number is passed over."""
    found: dict[str, Metric] = {}
    for line in lines:
        for name, pattern in patterns:
            for value in _numbers(line.text, pattern):
                found[name] = _with(found.get(name), Metric(name, 1, value, value, value, _moment(line)))
    return list(found.values())


def _definition(text: str) -> tuple[str, re.Pattern[str]]:
    name, separator, regex = text.partition("=")
    if not separator or not name:
        raise click.UsageError(f'--define "{text}" is not NAME=REGEX.')
    try:
        pattern = re.compile(regex)
    except re.error as error:
        raise click.UsageError(f'The regex of "{name}" cannot be read: {error}.') from error
    if not pattern.groups:
        raise click.UsageError(f'The regex of "{name}" needs a group in parentheses around the number.')
    return name, pattern


def _numbers(text: str, pattern: re.Pattern[str]) -> Iterator[float]:
    for part in text.split("\r"):
        for match in pattern.finditer(part):
            try:
                yield float(match[1])
            except (TypeError, ValueError):
                continue


def _with(before: Metric | None, new: Metric) -> Metric:
    if before is None:
        return new
    low, high = min(before.low, new.low), max(before.high, new.high)
    return Metric(new.name, before.count + new.count, new.last, low, high, max(before.at, new.at))


def _moment(line: LogLine) -> datetime:
    return datetime.fromtimestamp(line.at_ms / 1000, UTC)


def _reported(api: Api, description: Mapping[str, Any], final: Mapping[str, Any]) -> Metric:
    """What the yard knows of a metric: its last value from the job, the rest from CloudWatch."""
    start = description["CreationTime"] - timedelta(minutes=1)
    end = (description.get("TrainingEndTime") or datetime.now(UTC)) + timedelta(minutes=1)
    period = timedelta(minutes=1) * math.ceil((end - start) / timedelta(minutes=1) / _MOST_POINTS)
    answer = api.call(
        "cloudwatch",
        "GetMetricStatistics",
        Namespace=NAMESPACE,
        MetricName=final["MetricName"],
        Dimensions=[{"Name": "TrainingJobName", "Value": description["TrainingJobName"]}],
        StartTime=start,
        EndTime=end,
        Period=int(period.total_seconds()),
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


def _print(found: Sequence[Metric]) -> None:
    if not found:
        say("No metric was found.")
        return
    width = max(len("metric"), *(len(metric.name) for metric in found))
    click.echo(f"{'metric':<{width}}  {'values':>7}  {'last':>12}  {'lowest':>12}  {'highest':>12}")
    for metric in found:
        numbers = f"{metric.last:>12g}  {metric.low:>12g}  {metric.high:>12g}"
        click.echo(f"{metric.name:<{width}}  {metric.count:>7}  {numbers}")
