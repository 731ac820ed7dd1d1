"""`trainyard describe`: one training job in full."""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from trainyard.cli.console import Command, home_option, json_option, print_json
from trainyard.cli.jobs import calls, find_job, job_argument, plain
from trainyard.showing import inert


@click.command(
    cls=Command,
    short_help="Show one training job in full.",
    examples=(
        "trainyard describe @last                              the latest job",
        "trainyard describe mnist-2026                         by the beginning of its name",
        "trainyard describe @last --json | jq .FailureReason",
    ),
)
@job_argument
@home_option
@json_option
def describe(job: str, folder: Path | None, as_json: bool) -> None:
    """Show one training job: how it fares, what it runs, and what came of it."""
    with calls(folder) as api:
        description = find_job(api, job)
    if as_json:
        print_json(plain(description))
        return
    for title, value in _rows(description):
        click.echo(f"{title:<16}{inert(value)}")
    click.echo("\nstatuses")
    for transition in description.get("SecondaryStatusTransitions", ()):
        click.echo(_transition(transition))


def _rows(description: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    status, secondary = description["TrainingJobStatus"], description["SecondaryStatus"]
    yield "name", description["TrainingJobName"]
    yield "status", status if status == secondary else f"{status} ({secondary})"
    if reason := description.get("FailureReason"):
        first, *rest = reason.splitlines()
        yield "reason", first
        yield from (("", line) for line in rest)
    yield from _times(description)
    yield from _program(description)
    yield "output", description["OutputDataConfig"]["S3OutputPath"]
    if model := description.get("ModelArtifacts", {}).get("S3ModelArtifacts"):
        yield "model", model
    for metric in description.get("FinalMetricDataList", ()):
        yield f"metric {metric['MetricName']}", f"{metric['Value']:g}"


def _times(description: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    titles = {"created": "CreationTime", "started": "TrainingStartTime", "ended": "TrainingEndTime"}
    for title, member in titles.items():
        if moment := description.get(member):
            yield title, f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"
    if (seconds := description.get("TrainingTimeInSeconds")) is not None:
        yield "training", f"{seconds} s, of which billable {description.get('BillableTimeInSeconds', seconds)} s"


def _program(description: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    resources = description["ResourceConfig"]
    yield "instances", f"{resources.get('InstanceCount')} x {resources.get('InstanceType')}"
    yield "image", description["AlgorithmSpecification"].get("TrainingImage", "")
    values = description.get("HyperParameters", {})
    if "sagemaker_program" in values:
        yield "script", json.loads(values["sagemaker_program"])
    own = [f"{name}={value}" for name, value in values.items() if not name.startswith("sagemaker_")]
    if own:
        yield "hyperparameters", " ".join(own)
    for channel in description.get("InputDataConfig", ()):
        source = channel["DataSource"].get("S3DataSource", {}).get("S3Uri", "")
        yield "input", f"{channel['ChannelName']} from {source}"


def _transition(transition: Mapping[str, Any]) -> str:
    started: datetime = transition["StartTime"]
    ended: datetime | None = transition.get("EndTime")
    lasted = f"{(ended - started).total_seconds():.1f} s" if ended else ""
    message = inert(transition.get("StatusMessage", ""))
    return f"  {started.astimezone():%H:%M:%S}  {lasted:>9}  {transition['Status']:<12} {message}".rstrip()
