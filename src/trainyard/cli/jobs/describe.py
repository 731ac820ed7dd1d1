"""`trainyard describe`: all details of a job."""

import shlex
import shutil
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from trainyard._sdk.processing.job import ProcessingJobHandle
from trainyard._sdk.processing.outcomes import output_uris
from trainyard._sdk.training.console import duration_text, price_text, terminal_safe
from trainyard._sdk.training.job import TrainingJobHandle, hyperparameter
from trainyard._sdk.training.outcomes import Details, card_lines, card_log_lines, training_time_s
from trainyard._sdk.training.stream import Description
from trainyard.cli.debugger.rules import rule_lines
from trainyard.cli.jobs.kinds import KINDS, TRAINING, kind_of, name_of
from trainyard.cli.jobs.lookup import find_job, job_argument, open_api, to_json
from trainyard.cli.terminal.charts import block, waterfall_lines
from trainyard.cli.terminal.console import (
    CommandWithExamples,
    json_option,
    size_text,
    yard_option,
)
from trainyard.cli.terminal.json_output import JsonFields, print_json
from trainyard.cli.yard.yard_text import shares_text

# Fields of --json that only some jobs have.
_OPTIONAL_FIELDS = (
    *("FailureReason", "FailureCard", "TrainingStartTime", "TrainingEndTime", "TrainingTimeInSeconds"),
    *("BillableTimeInSeconds", "ModelArtifacts", "FinalMetricDataList", "HyperParameters", "InputDataConfig"),
    *("CheckpointConfig", "DebugHookConfig", "QueuePosition"),
)
_MAX_BAR_WIDTH = 40
# The width of a line of the waterfall without its bar.
_LABEL_WIDTH = 52


@click.command(
    cls=CommandWithExamples,
    examples=(
        "trainyard describe @last                              the latest job",
        "trainyard describe mnist-2026                         by a prefix of its name",
        "trainyard describe @last --json | jq .FailureReason",
    ),
)
@job_argument
@click.option(
    "--prices", is_flag=True, help="Show the cost at approximate prices of AWS, even if catalog.toml sets no prices."
)
@yard_option
@json_option
def describe(job: str, prices: bool, folder: Path | None, as_json: JsonFields | None) -> None:
    """Show a training or processing job: its status, resources, times, cost, results and failure."""
    with open_api(folder) as api:
        description = find_job(api, job, kinds=KINDS)
        handle = TrainingJobHandle if kind_of(description) is TRAINING else ProcessingJobHandle
        details = handle(api, name_of(description)).details()
    if as_json:
        # Status has the same value as TrainingJobStatus.
        own_details = {name: value for name, value in details.items() if name != "Status"}
        print_json(to_json(description | own_details), as_json, optional=_OPTIONAL_FIELDS)
        return
    shows_cost = prices or details.get("PriceIsSet", False)
    for line in job_lines(description, details, now=datetime.now(UTC), shows_cost=shows_cost):
        click.echo(line)


def job_lines(description: Description, details: Details, *, now: datetime, shows_cost: bool) -> Iterator[str]:
    """Yield the description of a job, line by line."""
    rows = _rows if kind_of(description) is TRAINING else _processing_rows
    for title, value in rows(description, details, shows_cost=shows_cost):
        yield f"{title:<16}{terminal_safe(value)}"
    width = min(_MAX_BAR_WIDTH, max(shutil.get_terminal_size().columns - _LABEL_WIDTH, 10))
    yield from _section("failure", _failure(details))
    yield from _section("notes", (terminal_safe(note) for note in details["Notes"]))
    yield from _section("rules", rule_lines(details.get("Rules", ())))
    yield from _section("attempts", _attempts(details))
    yield from _section("waterfall", waterfall_lines(details["Waterfall"], now=now, width=width, filled=block()))
    yield from _section("statuses", map(_transition, description.get("SecondaryStatusTransitions", ())))


def _section(title: str, lines: Iterator[str] | list[str]) -> Iterator[str]:
    content = list(lines)
    if content:
        yield f"\n{title}"
        yield from (f"  {line}".rstrip() for line in content)


def _rows(description: Description, details: Details, *, shows_cost: bool) -> Iterator[tuple[str, str]]:
    status, secondary = description["TrainingJobStatus"], description["SecondaryStatus"]
    yield "name", description["TrainingJobName"]
    yield "status", (status if status == secondary else f"{status} ({secondary})") + _queue_position(details)
    if not details.get("FailureCard"):
        yield from _with_title("reason", details.get("FailureReason", "").splitlines())
    yield from _times(description, details)
    if shows_cost:
        yield "cost", f"{price_text(details['Cost'])} at {price_text(details['PricePerHour'])} per hour"
    yield from _with_title("instances", _instances(description["ResourceConfig"]))
    yield "engine", details["Engine"]
    yield from _with_title("share", shares_text(details["Shares"]))
    yield from _program(description)
    yield "output", description["OutputDataConfig"]["S3OutputPath"]
    for artifact in details["Artifacts"]:
        yield artifact["Kind"], f"{artifact['S3Uri']} ({size_text(artifact['SizeInBytes'])})"
    for metric in description.get("FinalMetricDataList", ()):
        yield f"metric {metric['MetricName']}", f"{metric['Value']:g}"


def _processing_rows(description: Description, details: Details, *, shows_cost: bool) -> Iterator[tuple[str, str]]:
    status, secondary = description["ProcessingJobStatus"], details["SecondaryStatus"]
    program, cluster = description["AppSpecification"], description["ProcessingResources"]["ClusterConfig"]
    yield "name", description["ProcessingJobName"]
    yield "status", (status if status == secondary else f"{status} ({secondary})") + _queue_position(details)
    if not details.get("FailureCard"):
        yield from _with_title("reason", details.get("FailureReason", "").splitlines())
    yield from _with_title("message", description.get("ExitMessage", "").splitlines())
    for title, member in {"created": "Creation", "started": "ProcessingStart", "ended": "ProcessingEnd"}.items():
        if time := description.get(f"{member}Time"):
            yield title, f"{time.astimezone():%Y-%m-%d %H:%M:%S}"
    if shows_cost:
        yield "cost", f"{price_text(details['Cost'])} at {price_text(details['PricePerHour'])} per hour"
    yield "instances", f"{cluster['InstanceCount']} x {cluster['InstanceType']}"
    yield "engine", details["Engine"]
    yield from _with_title("share", shares_text(details["Shares"]))
    yield "image", program["ImageUri"]
    words = [*program.get("ContainerEntrypoint", ()), *program.get("ContainerArguments", ())]
    if words:
        yield "command", shlex.join(words)
    for each in description.get("ProcessingInputs", ()):
        source = each.get("S3Input", {})
        yield "input", f"{each['InputName']} from {source.get('S3Uri', '')} in {source.get('LocalPath', '')}"
    for name, uri in output_uris(description).items():
        yield "output", f"{name} in {uri}"


def _instances(resources: Mapping[str, Any]) -> list[str]:
    groups = [
        f"{group['InstanceCount']} x {group['InstanceType']}, {group['InstanceGroupName']}"
        for group in resources.get("InstanceGroups", ())
    ]
    return groups or [f"{resources.get('InstanceCount')} x {resources.get('InstanceType')}"]


def _with_title(title: str, lines: list[str]) -> Iterator[tuple[str, str]]:
    return ((title if not number else "", line) for number, line in enumerate(lines))


def _queue_position(details: Details) -> str:
    position = details.get("QueuePosition")
    return f", number {position} in the queue" if position else ""


def _times(description: Description, details: Details) -> Iterator[tuple[str, str]]:
    titles = {"created": "CreationTime", "started": "TrainingStartTime", "ended": "TrainingEndTime"}
    for title, member in titles.items():
        if time := description.get(member):
            yield title, f"{time.astimezone():%Y-%m-%d %H:%M:%S}"
    if (seconds := training_time_s(description, details)) is not None:
        billable = description.get("BillableTimeInSeconds", description["TrainingTimeInSeconds"])
        yield "training", f"{duration_text(seconds)}, {billable} s billable"


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
    if checkpoints := description.get("CheckpointConfig"):
        yield "checkpoints", f"{checkpoints.get('LocalPath', '/opt/ml/checkpoints')} in {checkpoints['S3Uri']}"


def _source(channel: Mapping[str, Any], description: Description) -> str:
    """Return the location of a channel, with its mode, distribution and type if they are not the defaults."""
    if "FileSystemDataSource" in channel["DataSource"]:
        source = channel["DataSource"]["FileSystemDataSource"]
        return f"{source['FileSystemId']}{source['DirectoryPath']} ({source['FileSystemAccessMode']})"
    source = channel["DataSource"].get("S3DataSource", {})
    mode = channel.get("InputMode") or description["AlgorithmSpecification"].get("TrainingInputMode", "File")
    options = (mode, source.get("S3DataDistributionType", "FullyReplicated"), source.get("S3DataType", "S3Prefix"))
    shown = ", ".join(word for word in options if word not in ("File", "FullyReplicated", "S3Prefix"))
    return f"{source.get('S3Uri', '')}{f' ({shown})' if shown else ''}"


def _failure(details: Details) -> Iterator[str]:
    card = details.get("FailureCard")
    if not card:
        return
    yield from card_lines(card)
    lines = card_log_lines(card)
    if lines:
        yield f"last lines of {card.get('Instance', 'the log')}:"
        yield from (f"  {line}" for line in lines)


def _attempts(details: Details) -> Iterator[str]:
    """Yield a line for each attempt if there are several or the first was interrupted."""
    attempts = details["Attempts"]
    for attempt in attempts if len(attempts) > 1 or any("InterruptionReason" in each for each in attempts) else ():
        started: datetime = attempt["StartTime"]
        duration = duration_text((attempt["EndTime"] - started).total_seconds()) if attempt.get("EndTime") else ""
        outcomes = "; ".join(_instance_outcome(instance) for instance in attempt["Instances"])
        yield f"{attempt['Number']:<2}  {started.astimezone():%H:%M:%S}  {duration:>9}  {outcomes}".rstrip()
        if why := attempt.get("InterruptionReason"):
            yield f"    interrupted: {terminal_safe(why)}{_resume_text(attempt)}"


def _resume_text(attempt: Mapping[str, Any]) -> str:
    seconds = attempt.get("ResumedAfterInSeconds")
    return "" if seconds is None else f" Resumed after {duration_text(seconds)}."


def _instance_outcome(instance: Mapping[str, Any]) -> str:
    text = f"{instance['Name']} {instance.get('Outcome', 'running')}"
    if instance.get("OutOfMemory"):
        return f"{text}, out of memory"
    if instance.get("ExitSignal"):
        return f"{text}, signal {instance['ExitSignal']}"
    return f"{text}, exit code {instance['ExitCode']}" if instance.get("ExitCode") else text


def _transition(transition: Mapping[str, Any]) -> str:
    started: datetime = transition["StartTime"]
    ended: datetime | None = transition.get("EndTime")
    duration = duration_text((ended - started).total_seconds()) if ended else ""
    message = terminal_safe(transition.get("StatusMessage", ""))
    return f"{started.astimezone():%H:%M:%S}  {duration:>9}  {transition['Status']:<12} {message}".rstrip()
