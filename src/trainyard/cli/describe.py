"""`trainyard describe`: one training job in full."""

import shutil
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from trainyard.cli.console import Command, home_option, json_option, print_json, size
from trainyard.cli.drawing import block
from trainyard.cli.jobs import calls, find_job, job_argument, plain
from trainyard.cli.rules import standing_lines
from trainyard.cli.shares import shares_text
from trainyard.cli.waterfall import waterfall_lines
from trainyard.failure_card import card_lines, last_lines
from trainyard.following import Description
from trainyard.outcomes import Details
from trainyard.showing import clock_text, inert, money
from trainyard.training_job import TrainingJob, hyperparameter

_WIDEST_BAR = 40
_BESIDE_BAR = 52  # characters of a line of the waterfall


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
    """Show one training job: how it fares, what it runs on, where its time went, and what came of it."""
    with calls(folder) as api:
        description = find_job(api, job)
        details = TrainingJob(api, description["TrainingJobName"]).details()
    if as_json:
        told = {name: value for name, value in details.items() if name != "Status"}  # which is TrainingJobStatus
        print_json(plain(description | told))
        return
    for line in described_lines(description, details, now=datetime.now(UTC)):
        click.echo(line)


def described_lines(description: Description, details: Details, *, now: datetime) -> Iterator[str]:
    """All there is to say of a job, line by line."""
    for title, value in _rows(description, details):
        yield f"{title:<16}{inert(value)}"
    width = min(_WIDEST_BAR, max(shutil.get_terminal_size().columns - _BESIDE_BAR, 10))
    yield from _section("failure", _failure(details))
    yield from _section("notes", (inert(note) for note in details["Notes"]))
    yield from _section("rules", standing_lines(details.get("Rules", ())))
    yield from _section("attempts", _attempts(details))
    yield from _section("waterfall", waterfall_lines(details["Waterfall"], now=now, width=width, filled=block()))
    yield from _section("statuses", map(_transition, description.get("SecondaryStatusTransitions", ())))


def _section(title: str, lines: Iterator[str] | list[str]) -> Iterator[str]:
    content = list(lines)
    if content:
        yield f"\n{title}"
        yield from (f"  {line}".rstrip() for line in content)


def _rows(description: Description, details: Details) -> Iterator[tuple[str, str]]:
    status, secondary = description["TrainingJobStatus"], description["SecondaryStatus"]
    yield "name", description["TrainingJobName"]
    yield "status", (status if status == secondary else f"{status} ({secondary})") + _place_in_queue(details)
    if not details.get("FailureCard"):
        yield from _titled("reason", details.get("FailureReason", "").splitlines())
    yield from _times(description)
    yield "cost", f"{money(details['Cost'])} at {money(details['PricePerHour'])} per hour"
    yield from _titled("instances", _instances(description["ResourceConfig"]))
    yield "engine", details["Engine"]
    yield from _titled("share", shares_text(details["Shares"]))
    yield from _program(description)
    yield "output", description["OutputDataConfig"]["S3OutputPath"]
    for artifact in details["Artifacts"]:
        yield artifact["Kind"], f"{artifact['S3Uri']} ({size(artifact['SizeInBytes'])})"
    for metric in description.get("FinalMetricDataList", ()):
        yield f"metric {metric['MetricName']}", f"{metric['Value']:g}"


def _instances(resources: Mapping[str, Any]) -> list[str]:
    groups = [
        f"{group['InstanceCount']} x {group['InstanceType']}, {group['InstanceGroupName']}"
        for group in resources.get("InstanceGroups", ())
    ]
    return groups or [f"{resources.get('InstanceCount')} x {resources.get('InstanceType')}"]


def _titled(title: str, lines: list[str]) -> Iterator[tuple[str, str]]:
    return ((title if not number else "", line) for number, line in enumerate(lines))


def _place_in_queue(details: Details) -> str:
    position = details.get("QueuePosition")
    return f", number {position} in the queue" if position else ""


def _times(description: Description) -> Iterator[tuple[str, str]]:
    titles = {"created": "CreationTime", "started": "TrainingStartTime", "ended": "TrainingEndTime"}
    for title, member in titles.items():
        if moment := description.get(member):
            yield title, f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"
    if (seconds := description.get("TrainingTimeInSeconds")) is not None:
        yield "training", f"{seconds} s, of which billable {description.get('BillableTimeInSeconds', seconds)} s"


def _program(description: Description) -> Iterator[tuple[str, str]]:
    yield "image", description["AlgorithmSpecification"].get("TrainingImage", "")
    values = description.get("HyperParameters", {})
    if "sagemaker_program" in values:
        yield "script", str(hyperparameter(values["sagemaker_program"]))
    own = [f"{name}={value}" for name, value in values.items() if not name.startswith("sagemaker_")]
    if own:
        yield "hyperparameters", " ".join(own)
    for channel in description.get("InputDataConfig", ()):
        yield "input", f"{channel['ChannelName']} from {_source(channel, description)}"
    if kept := description.get("CheckpointConfig"):
        yield "checkpoints", f"{kept.get('LocalPath', '/opt/ml/checkpoints')} in {kept['S3Uri']}"


def _source(channel: Mapping[str, Any], description: Description) -> str:
    """Where the data of a channel is, and how it comes where that is not as whole files."""
    if "FileSystemDataSource" in channel["DataSource"]:
        place = channel["DataSource"]["FileSystemDataSource"]
        return f"{place['FileSystemId']}{place['DirectoryPath']} ({place['FileSystemAccessMode']})"
    place = channel["DataSource"].get("S3DataSource", {})
    mode = channel.get("InputMode") or description["AlgorithmSpecification"].get("TrainingInputMode", "File")
    how = (mode, place.get("S3DataDistributionType", "FullyReplicated"), place.get("S3DataType", "S3Prefix"))
    said = ", ".join(word for word in how if word not in ("File", "FullyReplicated", "S3Prefix"))
    return f"{place.get('S3Uri', '')}{f' ({said})' if said else ''}"


def _failure(details: Details) -> Iterator[str]:
    card = details.get("FailureCard")
    if not card:
        return
    yield from card_lines(card)
    lines = last_lines(card)
    if lines:
        yield f"last lines of {card.get('Instance', 'the log')}:"
        yield from (f"  {line}" for line in lines)


def _attempts(details: Details) -> Iterator[str]:
    """Each attempt in a line, where there was more than one or will be."""
    attempts = details["Attempts"]
    for attempt in attempts if len(attempts) > 1 or any("InterruptionReason" in each for each in attempts) else ():
        started: datetime = attempt["StartTime"]
        lasted = clock_text((attempt["EndTime"] - started).total_seconds()) if attempt.get("EndTime") else ""
        fates = "; ".join(_fate(instance) for instance in attempt["Instances"])
        yield f"{attempt['Number']:<2}  {started.astimezone():%H:%M:%S}  {lasted:>9}  {fates}".rstrip()
        if why := attempt.get("InterruptionReason"):
            yield f"    interrupted: {inert(why)}{_resumed(attempt)}"


def _resumed(attempt: Mapping[str, Any]) -> str:
    seconds = attempt.get("ResumedAfterInSeconds")
    return "" if seconds is None else f" Resumed after {clock_text(round(seconds, 1))}."


def _fate(instance: Mapping[str, Any]) -> str:
    told = f"{instance['Name']} {instance.get('Outcome', 'runs')}"
    if instance.get("OutOfMemory"):
        return f"{told}, out of memory"
    if instance.get("ExitSignal"):
        return f"{told}, signal {instance['ExitSignal']}"
    return f"{told}, exit code {instance['ExitCode']}" if instance.get("ExitCode") else told


def _transition(transition: Mapping[str, Any]) -> str:
    started: datetime = transition["StartTime"]
    ended: datetime | None = transition.get("EndTime")
    lasted = clock_text(round((ended - started).total_seconds(), 1)) if ended else ""
    message = inert(transition.get("StatusMessage", ""))
    return f"{started.astimezone():%H:%M:%S}  {lasted:>9}  {transition['Status']:<12} {message}".rstrip()
