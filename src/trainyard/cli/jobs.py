"""What the commands on training jobs share: the yard they speak to, and jobs by name, by prefix and as @last."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from trainyard.cli.console import chosen_home, command_line, running_yard, say
from trainyard.cli.failure import ExitCode, Failure
from trainyard.connection import Access, Api, access_of, find_yard, start_yard
from trainyard.foundation.errors import NotFound, NotPermitted

LAST = "@last"
_MOST_SHOWN = 5

_CODES = {
    "ResourceNotFound": ExitCode.NOT_FOUND,
    "ResourceNotFoundException": ExitCode.NOT_FOUND,
    "NoSuchBucket": ExitCode.NOT_FOUND,
    "NoSuchKey": ExitCode.NOT_FOUND,
    "ResourceLimitExceeded": ExitCode.QUOTA,
    "AccessDenied": ExitCode.AUTH,
    "AccessDeniedException": ExitCode.AUTH,
    "ExpiredTokenException": ExitCode.AUTH,
    "IncompleteSignatureException": ExitCode.AUTH,
    "InvalidSignatureException": ExitCode.AUTH,
    "UnrecognizedClientException": ExitCode.AUTH,
}

job_argument = click.argument("job", metavar="JOB")


def find_access(folder: Path | None, *, starts: bool = False) -> Access:
    """The yard of the home folder given, else that of AWS_ENDPOINT_URL, else the usual one, which may be started."""
    known = None if folder else access_of(os.environ)
    if known is not None:
        return known
    if not starts:
        return running_yard(folder).access
    home = chosen_home(folder)
    home.check()
    try:
        return find_yard(home).access
    except NotFound:
        connection = start_yard(home)
    say(f"Started a yard at {connection.runtime.http}; `{command_line('down', home)}` stops it.")
    return connection.access


@contextlib.contextmanager
def calls(folder: Path | None) -> Iterator[Api]:
    """The services of the yard, whose errors end the command with the exit code they deserve."""
    client = find_access(folder).client()
    try:
        with failures():
            yield client
    finally:
        client.close()


@contextlib.contextmanager
def failures() -> Iterator[None]:
    """Lets what a yard refuses end the command with the exit code it deserves."""
    from trainyard.wire.client import CallFailed

    try:
        yield
    except CallFailed as error:
        raise Failure(error.message, code=_CODES.get(error.code, ExitCode.FAILED)) from error
    except NotPermitted as error:
        raise Failure(error.message, code=ExitCode.AUTH) from error


def find_job(api: Api, given: str) -> dict[str, Any]:
    """The description of the job that a user means by its name, by the beginning of it, or by @last."""
    from trainyard.wire.client import CallFailed

    if given == LAST:
        return _described(api, _latest(api))
    try:
        return _described(api, given)
    except CallFailed as error:
        if error.code != "ValidationException":  # as which AWS words that there is no such job
            raise
    return _described(api, _only_one(api, given))


def exit_code_of(description: Mapping[str, Any]) -> ExitCode:
    """How a job ended, as an exit code."""
    if description["TrainingJobStatus"] == "Completed":
        return ExitCode.OK
    if description.get("SecondaryStatus") in ("MaxRuntimeExceeded", "MaxWaitTimeExceeded"):
        return ExitCode.TIME_LIMIT
    return ExitCode.STOPPED if description["TrainingJobStatus"] == "Stopped" else ExitCode.FAILED


def plain(value: Any) -> Any:
    """An answer of the API as JSON can write it."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items() if key != "ResponseMetadata"}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value


def _described(api: Api, name: str) -> dict[str, Any]:
    return api.call("sagemaker", "DescribeTrainingJob", TrainingJobName=name)


def _latest(api: Api) -> str:
    asked = {"SortBy": "CreationTime", "SortOrder": "Descending", "MaxResults": 1}
    found = api.call("sagemaker", "ListTrainingJobs", **asked)["TrainingJobSummaries"]
    if not found:
        raise Failure("There is no training job yet.", next_step="trainyard run SCRIPT", code=ExitCode.NOT_FOUND)
    name: str = found[0]["TrainingJobName"]
    return name


def _only_one(api: Api, prefix: str) -> str:
    names = _names(api, prefix)
    if len(names) == 1:
        return names[0]
    if not names:
        raise Failure(
            f'There is no training job named "{prefix}", nor one whose name begins so.',
            next_step="trainyard ls",
            code=ExitCode.NOT_FOUND,
        )
    shown = ", ".join(names[:_MOST_SHOWN]) + (" …" if len(names) > _MOST_SHOWN else "")
    raise Failure(f'"{prefix}" is the beginning of several names.', why=shown, code=ExitCode.USAGE)


def _names(api: Api, prefix: str) -> list[str]:
    """The names that begin so; enough of them to tell whether it is only one."""
    asked: dict[str, Any] = {"NameContains": prefix, "SortBy": "Name", "SortOrder": "Ascending", "MaxResults": 100}
    names: list[str] = []
    while len(names) <= _MOST_SHOWN:
        page = api.call("sagemaker", "ListTrainingJobs", **asked)
        found = (summary["TrainingJobName"] for summary in page["TrainingJobSummaries"])
        names += [name for name in found if name.startswith(prefix)]
        if not page.get("NextToken"):
            break
        asked["NextToken"] = page["NextToken"]
    return names
