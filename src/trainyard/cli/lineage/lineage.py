"""`trainyard lineage`: the way from a model or a job back to its data, code and packages."""

import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from trainyard._sdk.connection import Api
from trainyard._sdk.lineage.tree import LineageTree, artifact_of, await_recorded, job_node, read_tree
from trainyard._sdk.training.stream import FINAL
from trainyard.cli.completion.values import complete_jobs
from trainyard.cli.jobs.lookup import find_job, open_api
from trainyard.cli.terminal.console import CommandWithExamples, json_option, yard_option
from trainyard.cli.terminal.drawing import inert
from trainyard.cli.terminal.failure import ExitCode, Failure
from trainyard.cli.terminal.json_output import JsonFields, print_json
from trainyard.foundation.errors import NotFound
from trainyard.wire.client import CallFailed

_VERSION = re.compile(r"(?P<group>[A-Za-z0-9-]+)/(?P<version>[0-9]+)")


@click.command(
    cls=CommandWithExamples,
    examples=(
        "trainyard lineage @last                          what the latest job read, ran and wrote",
        "trainyard lineage churn/3                        the third version of a registered model",
        "trainyard lineage s3://bucket/job/output/model.tar.gz",
    ),
)
@click.argument("model_or_job", metavar="MODEL_OR_JOB", shell_complete=complete_jobs)
@yard_option
@json_option
def lineage(model_or_job: str, folder: Path | None, as_json: JsonFields | None) -> None:
    """Show what a model or a job came from: data, code, commit, packages and image.

    MODEL_OR_JOB is a training job, a registered model such as churn/3, the ARN of a model package or of an entity of
    the lineage, or the S3 location of a model.
    """
    with open_api(folder) as api:
        tree = read_tree(api, _find(api, model_or_job))
    if as_json:
        print_json(_document(tree), as_json, items="Entities")
        return
    for line in tree_lines(tree):
        click.echo(line)


def tree_lines(tree: LineageTree) -> Iterator[str]:
    """Yield the tree with a line for each entity. What was shown before is not unfolded again."""
    stem = _stem()
    for depth, entry, is_repeated in tree.walk():
        indent = "   " * (depth - 1) + stem if depth else ""
        facts = ("shown above",) if is_repeated else entry.facts
        told = f"  {', '.join(facts)}" if facts else ""
        yield inert(f"{indent}{entry.kind:<12} {entry.title}{told}")


def _stem() -> str:
    try:
        "└─ ".encode(sys.stdout.encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return "`- "
    return "└─ "


def _find(api: Api, given: str) -> str:
    """Return the ARN of the entity that a user means."""
    if re.match(r"arn:aws:sagemaker:[^:]*:[0-9]{12}:(artifact|context|action|experiment-trial-component)/", given):
        return given
    try:
        return _find_source(api, given)
    except NotFound as error:
        raise Failure(
            f'Nothing is recorded of "{given}".',
            why="Jobs are recorded when they end, and models when they are registered.",
            code=ExitCode.NOT_FOUND,
        ) from error


def _find_source(api: Api, given: str) -> str:
    if given.startswith(("s3://", "arn:")):
        return artifact_of(api, given)
    if _VERSION.fullmatch(given):
        package = _describe_package(api, given)
        arn, changed_at = package["ModelPackageArn"], package["CreationTime"]
        return await_recorded(lambda: artifact_of(api, arn), since=changed_at, now=datetime.now(UTC))
    job = find_job(api, given)
    name, changed_at = job["TrainingJobName"], job["LastModifiedTime"]
    if job["TrainingJobStatus"] not in FINAL:
        raise Failure(f'Training job "{name}" is {job["TrainingJobStatus"]}; its lineage is recorded when it ends.')
    return await_recorded(lambda: job_node(api, name), since=changed_at, now=datetime.now(UTC))


def _describe_package(api: Api, title: str) -> dict[str, Any]:
    try:
        return api.call("sagemaker", "DescribeModelPackage", ModelPackageName=title)
    except CallFailed as error:
        raise Failure(error.message, next_step="trainyard models ls", code=ExitCode.NOT_FOUND) from error


def _document(tree: LineageTree) -> dict[str, Any]:
    entities = [
        {"Arn": each.arn, "Kind": each.kind, "Name": each.title, "Facts": list(each.facts)}
        for each in tree.entries.values()
    ]
    edges = [
        {"SourceArn": source, "DestinationArn": end} for end, sources in tree.sources.items() for source in sources
    ]
    return {"Start": tree.root, "Entities": entities, "Associations": edges}
