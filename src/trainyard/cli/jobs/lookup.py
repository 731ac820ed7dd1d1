"""Find the yard of a command, and training jobs by name, by prefix or as @last."""

import contextlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from trainyard._sdk.connection import Access, Api, access_from_environment, find_yard, start_yard
from trainyard.cli.terminal.console import command_line, environment, running_yard, say, select_home
from trainyard.cli.terminal.failure import ExitCode, Failure
from trainyard.foundation.errors import NotFound, NotPermitted

LAST = "@last"
_MAX_SHOWN = 5

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
    """Return the access to a yard: that of --home, else of AWS_ENDPOINT_URL, else of the default home folder.

    With `starts`, start a yard if none is running.
    """
    known = None if folder else access_from_environment(environment())
    if known is not None:
        return known
    if not starts:
        return running_yard(folder).access
    home = select_home(folder)
    home.check()
    try:
        return find_yard(home).access
    except NotFound:
        connection = start_yard(home)
    say(f"Started a yard at {connection.runtime.http}; `{command_line('down', home)}` stops it.")
    return connection.access


@contextlib.contextmanager
def open_api(folder: Path | None) -> Iterator[Api]:
    """Open a client of the yard. Its errors end the command with the matching exit code."""
    client = find_access(folder).client()
    try:
        with translate_failures():
            yield client
    finally:
        client.close()


@contextlib.contextmanager
def translate_failures() -> Iterator[None]:
    """Turn errors of API calls into failures with the matching exit code."""
    from trainyard.wire.client import CallFailed

    try:
        yield
    except CallFailed as error:
        raise Failure(error.message, code=_CODES.get(error.code, ExitCode.FAILED)) from error
    except NotPermitted as error:
        raise Failure(error.message, code=ExitCode.AUTH) from error


def find_job(api: Api, given: str) -> dict[str, Any]:
    """Return the description of a job given by its name, by a prefix of it, or as @last."""
    from trainyard.wire.client import CallFailed

    if given == LAST:
        return _describe(api, _latest(api))
    try:
        return _describe(api, given)
    except CallFailed as error:
        # The code with which AWS reports that a job does not exist.
        if error.code != "ValidationException":
            raise
    return _describe(api, _match_prefix(api, given))


def exit_code_of(description: Mapping[str, Any]) -> ExitCode:
    """Return the exit code for the end of a job."""
    if description["TrainingJobStatus"] == "Completed":
        return ExitCode.OK
    if description.get("SecondaryStatus") in ("MaxRuntimeExceeded", "MaxWaitTimeExceeded"):
        return ExitCode.TIME_LIMIT
    return ExitCode.STOPPED if description["TrainingJobStatus"] == "Stopped" else ExitCode.FAILED


def to_json(value: Any) -> Any:
    """Return a response of the API as values that JSON can represent."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, Mapping):
        return {key: to_json(each) for key, each in value.items() if key != "ResponseMetadata"}
    if isinstance(value, list):
        return [to_json(each) for each in value]
    return value


def _describe(api: Api, name: str) -> dict[str, Any]:
    return api.call("sagemaker", "DescribeTrainingJob", TrainingJobName=name)


def _latest(api: Api) -> str:
    request = {"SortBy": "CreationTime", "SortOrder": "Descending", "MaxResults": 1}
    found = api.call("sagemaker", "ListTrainingJobs", **request)["TrainingJobSummaries"]
    if not found:
        raise Failure("There is no training job yet.", next_step="trainyard run SCRIPT", code=ExitCode.NOT_FOUND)
    name: str = found[0]["TrainingJobName"]
    return name


def _match_prefix(api: Api, prefix: str) -> str:
    names = _names(api, prefix)
    if len(names) == 1:
        return names[0]
    if not names:
        raise Failure(
            f'There is no training job named "{prefix}", and none whose name starts with it.',
            next_step="trainyard ls",
            code=ExitCode.NOT_FOUND,
        )
    shown = ", ".join(names[:_MAX_SHOWN]) + (" …" if len(names) > _MAX_SHOWN else "")
    raise Failure(f'Several training jobs have names that start with "{prefix}".', why=shown, code=ExitCode.USAGE)


def _names(api: Api, prefix: str) -> list[str]:
    """Return names with a prefix, enough of them to show that it is not unique."""
    request: dict[str, Any] = {"NameContains": prefix, "SortBy": "Name", "SortOrder": "Ascending", "MaxResults": 100}
    names: list[str] = []
    while len(names) <= _MAX_SHOWN:
        page = api.call("sagemaker", "ListTrainingJobs", **request)
        found = (summary["TrainingJobName"] for summary in page["TrainingJobSummaries"])
        names += [name for name in found if name.startswith(prefix)]
        if not page.get("NextToken"):
            break
        request["NextToken"] = page["NextToken"]
    return names
