"""Find the yard of a command, and jobs by name, by prefix or as @last."""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from trainyard._sdk.connection import (
    Access,
    Api,
    access_from_environment,
    endpoint_access,
    find_yard,
    start_yard,
)
from trainyard._sdk.job_names import base_of
from trainyard.cli.completion.values import complete_jobs
from trainyard.cli.jobs.kinds import TRAINING, JobKind
from trainyard.cli.terminal.console import command_line, environment, running_yard, say, select_home, selected_endpoint
from trainyard.cli.terminal.failure import ExitCode, Failure
from trainyard.cli.terminal.progress import spinner
from trainyard.foundation.errors import NotFound, NotPermitted

_LATEST = re.compile(r"@last(?:~(\d{1,2}))?")
_MAX_SHOWN = 5
# How many of the latest jobs are searched for a name like a mistyped one.
MAX_SIMILAR = 100

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
# What a FailureReason starts with if there was no room for the job.
_NO_CAPACITY = ("CapacityError", "ResourceLimitExceeded")

job_argument = click.argument("job", metavar="JOB", shell_complete=complete_jobs)


def find_access(folder: Path | None, *, starts: bool = False) -> Access:
    """Return the access to a yard: of --endpoint or --home, else of the environment, else of the default home folder.

    With `starts`, start a yard if none is running.
    """
    remote = find_remote_access(folder)
    if remote is not None:
        return remote
    if not starts:
        return running_yard(folder).access
    home = select_home(folder)
    home.check()
    try:
        return find_yard(home).access
    except NotFound:
        with spinner("Starting a yard"):
            connection = start_yard(home)
    say(f"Started a yard at {connection.runtime.http}; `{command_line('down', home)}` stops it.")
    return connection.access


def find_remote_access(folder: Path | None) -> Access | None:
    """Return the access that --endpoint or the environment gives; None for the yard of a home folder."""
    endpoint = selected_endpoint()
    if endpoint is None:
        return None if folder else access_from_environment(environment())
    if folder is not None:
        raise click.UsageError("--endpoint and --home name two yards; leave one of them out.")
    return endpoint_access(endpoint, environment())


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


def find_job(api: Api, given: str, *, kinds: Sequence[JobKind] = (TRAINING,)) -> dict[str, Any]:
    """Return the description of a job given by its name, by a prefix of it, or as @last or, before that, @last~1.

    Jobs of different kinds can have the same name; the first of `kinds` is meant.
    """
    if given.startswith("@"):
        return _describe(api, *_latest(api, given, kinds))
    for kind in kinds:
        if (found := describe_if_present(api, given, kind=kind)) is not None:
            return found
    return _describe(api, *_match_prefix(api, given, kinds))


def age_of(given: str) -> int:
    """Return how many jobs are newer than the one that @last or @last~N names."""
    match = _LATEST.fullmatch(given)
    if match is None:
        message = f'"{given}" means no job; @last is the latest one, @last~1 the one before it.'
        raise Failure(message, code=ExitCode.USAGE)
    return int(match[1] or 0)


def describe_if_present(api: Api, name: str, *, kind: JobKind = TRAINING) -> dict[str, Any] | None:
    """Return the description of a job with this name; None if there is none."""
    from trainyard.wire.client import CallFailed

    try:
        return _describe(api, kind, name)
    except CallFailed as error:
        # The code with which AWS reports that a job does not exist, and that a text can be no name.
        if error.code != "ValidationException":
            raise
    return None


def exit_code_of(description: Mapping[str, Any]) -> ExitCode:
    """Return the exit code for the end of a job."""
    if description["TrainingJobStatus"] == "Completed":
        return ExitCode.OK
    if description.get("SecondaryStatus") in ("MaxRuntimeExceeded", "MaxWaitTimeExceeded"):
        return ExitCode.TIME_LIMIT
    if description["TrainingJobStatus"] == "Stopped":
        return ExitCode.STOPPED
    return ExitCode.QUOTA if description.get("FailureReason", "").startswith(_NO_CAPACITY) else ExitCode.FAILED


def to_json(value: Any) -> Any:
    """Return a response of the API as values that JSON can represent."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, Mapping):
        return {key: to_json(each) for key, each in value.items() if key != "ResponseMetadata"}
    if isinstance(value, list):
        return [to_json(each) for each in value]
    return value


def _describe(api: Api, kind: JobKind, name: str) -> dict[str, Any]:
    return api.call("sagemaker", f"Describe{kind.shape}", **{kind.name_member: name})


def _latest(api: Api, given: str, kinds: Sequence[JobKind]) -> tuple[JobKind, str]:
    age = age_of(given)
    found = _latest_names(api, age + 1, kinds)
    if not found:
        what = " or ".join(kind.noun for kind in kinds)
        raise Failure(f"There is no {what} yet.", next_step="trainyard run SCRIPT", code=ExitCode.NOT_FOUND)
    if age >= len(found):
        message = f'There is no job "{given}": there are only {len(found)}.'
        raise Failure(message, next_step="trainyard ls", code=ExitCode.NOT_FOUND)
    return found[age]


def _latest_names(api: Api, limit: int, kinds: Sequence[JobKind]) -> list[tuple[JobKind, str]]:
    request = {"SortBy": "CreationTime", "SortOrder": "Descending", "MaxResults": limit}
    found = [
        (kind, summary)
        for kind in kinds
        for summary in api.call("sagemaker", f"List{kind.shape}s", **request)[kind.summaries_member]
    ]
    if len(kinds) > 1:
        found.sort(key=lambda each: each[1]["CreationTime"], reverse=True)
    return [(kind, summary[kind.name_member]) for kind, summary in found]


def _match_prefix(api: Api, prefix: str, kinds: Sequence[JobKind]) -> tuple[JobKind, str]:
    found = [(kind, name) for kind in kinds for name in _names(api, prefix, kind)]
    if len(found) == 1:
        return found[0]
    what = " or ".join(kind.noun for kind in kinds)
    if not found:
        latest = [name for _, name in _latest_names(api, MAX_SIMILAR, kinds)]
        similar = similar_name(prefix, latest, base_of=base_of)
        raise Failure(
            f'There is no {what} named "{prefix}", and none whose name starts with it.'
            + (f' Did you mean "{similar}"?' if similar else ""),
            next_step="trainyard ls",
            code=ExitCode.NOT_FOUND,
        )
    names = [name for _, name in found]
    shown = ", ".join(names[:_MAX_SHOWN]) + (" …" if len(names) > _MAX_SHOWN else "")
    nouns = {kind.noun for kind, _ in found}
    noun = nouns.pop() if len(nouns) == 1 else "job"
    raise Failure(f'Several {noun}s have names that start with "{prefix}".', why=shown, code=ExitCode.USAGE)


def similar_name(given: str, names: Sequence[str], *, base_of: Callable[[str], str]) -> str:
    """Return the first name that is like a mistyped one, with or without the time in it; empty if none is."""
    # Imported here: only a mistake needs it.
    from difflib import get_close_matches

    by_base = {base_of(name): name for name in reversed(names)}
    candidates = by_base | {name: name for name in names}
    found = get_close_matches(given, candidates, 1, cutoff=0.7)
    return candidates[found[0]] if found else ""


def _names(api: Api, prefix: str, kind: JobKind) -> list[str]:
    """Return names with a prefix, enough of them to show that it is not unique."""
    request: dict[str, Any] = {"NameContains": prefix, "SortBy": "Name", "SortOrder": "Ascending", "MaxResults": 100}
    names: list[str] = []
    while len(names) <= _MAX_SHOWN:
        page = api.call("sagemaker", f"List{kind.shape}s", **request)
        found = (summary[kind.name_member] for summary in page[kind.summaries_member])
        names += [name for name in found if name.startswith(prefix)]
        if not page.get("NextToken"):
            break
        request["NextToken"] = page["NextToken"]
    return names
