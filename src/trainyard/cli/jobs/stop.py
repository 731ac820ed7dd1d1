"""`trainyard stop` and `trainyard rm`: stop jobs, and remove ended ones."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import click

from trainyard._sdk.connection import Api
from trainyard._sdk.processing.job import ProcessingJobHandle
from trainyard._sdk.processing.outcomes import summary as processing_summary
from trainyard._sdk.training.job import TrainingJobHandle
from trainyard._sdk.training.outcomes import summary
from trainyard._sdk.training.stream import FINAL
from trainyard.cli.completion.values import complete_jobs
from trainyard.cli.jobs.data_removal import (
    StoredData,
    find_stored_data,
    print_stored_data,
    remove_stored_data,
    sum_text,
)
from trainyard.cli.jobs.kinds import TRAINING, kind_of, name_of, status_of, title_of
from trainyard.cli.jobs.lookup import describe_if_present, open_api
from trainyard.cli.jobs.selection import (
    AgeParameter,
    JobSelection,
    Summary,
    find_jobs,
    is_pattern,
    map_in_parallel,
    names_text,
    select_jobs,
)
from trainyard.cli.terminal.console import CommandWithExamples, confirm, result_option, say, yard_option, yes_option
from trainyard.cli.terminal.failure import Failure
from trainyard.cli.terminal.json_output import JsonFields, print_json
from trainyard.cli.terminal.progress import count_bar
from trainyard.cli.terminal.word_choice import WordChoice

F = TypeVar("F", bound=Callable[..., Any])

_RUNNING = ("InProgress", "Pending", "Starting", "Downloading", "Training", "Interrupted", "Uploading")
_ENDED = ("Completed", "Failed", "Stopped")
# Beyond this many, each job gets no line of its own.
_MAX_LINES = 20


def _selection_options(statuses: Sequence[str]) -> Callable[[F], F]:
    """Add the options that select jobs without naming each."""

    def add(function: F) -> F:
        for option in (
            yes_option,
            click.option(
                "--older-than",
                metavar="AGE",
                type=AgeParameter(),
                help="Only jobs created longer ago than this, such as 90m, 12h, 7d or 2w.",
            ),
            click.option(
                "--status",
                metavar="STATUS",
                type=WordChoice(statuses),
                help=f"Only jobs with this status: {', '.join(statuses)}.",
            ),
            click.argument("names", metavar="[JOB]...", nargs=-1, shell_complete=complete_jobs),
        ):
            function = option(function)
        return function

    return add


@click.command(
    cls=CommandWithExamples,
    examples=(
        "trainyard stop @last",
        "trainyard stop mnist-1 mnist-2 --wait",
        "trainyard stop 'mnist-*'                   all running jobs with such names; asks first",
        "trainyard stop --status Pending --yes      all that are waiting",
    ),
)
@_selection_options(_RUNNING)
@click.option("--wait", is_flag=True, help="Wait until the jobs have ended.")
@yard_option
@result_option("TrainingJobName", "TrainingJobStatus")
def stop(
    names: tuple[str, ...],
    status: str | None,
    older_than: timedelta | None,
    is_confirmed: bool,
    wait: bool,
    folder: Path | None,
    as_json: JsonFields | None,
) -> None:
    """Stop jobs. Their programs get SIGTERM and, after the grace period, SIGKILL. Saved results are kept.

    A JOB is a name, a prefix of it, @last, or a pattern such as 'mnist-*'. Patterns and options select only running
    jobs; the command shows how many, and asks.
    """
    wanted = _filter_of(names, status, older_than)
    with open_api(folder) as api:
        jobs = _select(api, names, wanted, statuses=("InProgress",), kind="running")
        running = [job for job in jobs if status_of(job) not in FINAL]
        for job in jobs if not as_json else ():
            if status_of(job) in FINAL:
                say(f"{title_of(job)} is already {status_of(job)}.")
        if wanted and running:
            confirm(f"Stop {names_text(running)}?", is_confirmed=is_confirmed)
        stopped = _in_parallel("Stopping jobs", lambda job: _stop(api, job, waits=wait), running)
        shows_each = len(stopped) <= _MAX_LINES and not as_json
        lines = [_stopped_text(api, job) for job in stopped] if shows_each else []
    ended = [job for job in jobs if status_of(job) in FINAL]
    _report(ended + stopped, as_json, lines=lines, summed_up=f"Stopping {len(stopped):,} jobs.")


@click.command(
    cls=CommandWithExamples,
    examples=(
        "trainyard rm @last",
        "trainyard rm mnist-1 mnist-2",
        "trainyard rm 'mnist-*' --status Failed       all failed jobs with such names; asks first",
        "trainyard rm --older-than 30d --yes          all ended jobs created more than 30 days ago",
        "trainyard rm mnist-1 --data                  with its model, output and code; shows them and asks",
    ),
)
@_selection_options(_ENDED)
@click.option("--data", "with_data", is_flag=True, help="Also remove the objects that the jobs stored on S3.")
@click.option(
    "--shared", "with_shared", is_flag=True, help="With --data: also checkpoints at locations that other jobs may use."
)
@yard_option
@result_option("TrainingJobName", "TrainingJobStatus")
def rm(
    names: tuple[str, ...],
    status: str | None,
    older_than: timedelta | None,
    is_confirmed: bool,
    with_data: bool,
    with_shared: bool,
    folder: Path | None,
    as_json: JsonFields | None,
) -> None:
    """Remove ended jobs with their logs and metrics. Without --data, what they stored on S3 is kept.

    A JOB is a name, a prefix of it, @last, or a pattern such as 'mnist-*'. Patterns and options select only ended jobs;
    the command shows how many, and asks.
    """
    wanted = _filter_of(names, status, older_than)
    if with_shared and not with_data:
        raise click.UsageError("--shared is for --data; add it, or leave --shared out.")
    with open_api(folder) as api:
        jobs = _select(api, names, wanted, statuses=_ENDED, kind="ended")
        for job in jobs:
            if status_of(job) not in FINAL:
                raise Failure(
                    f"{title_of(job)} is {status_of(job)}; only ended jobs can be removed.",
                    next_step=f"trainyard stop {name_of(job)} --wait",
                )
        stored = _find_data(api, jobs, includes_shared=with_shared) if with_data else []
        if stored:
            print_stored_data(stored)
        if (wanted or stored) and jobs:
            data = f", and {sum_text(stored)}" if stored else ""
            confirm(f"Remove {names_text(jobs)}{data}?", is_confirmed=is_confirmed)
        # The objects first, so that an error leaves the job, whose description says where they are.
        remove_stored_data(api, stored)
        removed = _in_parallel("Removing jobs", lambda job: _remove(api, job), jobs)
    files = " and its objects" if with_data else "; its files on S3 are kept"
    lines = [f'Removed {kind_of(job).noun} "{name_of(job)}"{files}.' for job in removed]
    shown = lines if len(lines) <= _MAX_LINES else []
    summed_up = f"Removed {len(removed):,} jobs{files.replace('its', 'their')}."
    _report(removed, as_json, lines=shown, summed_up=summed_up)


def _filter_of(names: Sequence[str], status: str | None, older_than: timedelta | None) -> JobSelection | None:
    """Return the filter of a command; None if it names each job."""
    patterns = [name for name in names if is_pattern(name)]
    if not names and status is None and older_than is None:
        raise click.UsageError("Name the jobs, or select them with --status or --older-than.")
    if not patterns and status is None and older_than is None:
        return None
    if len(patterns) < len(names):
        raise click.UsageError("Patterns, --status and --older-than select jobs; leave out the jobs named one by one.")
    created_before = datetime.now(UTC) - older_than if older_than else None
    return JobSelection(patterns, status, created_before)


def _select(
    api: Api, names: Sequence[str], wanted: JobSelection | None, *, statuses: Sequence[str], kind: str
) -> list[Summary]:
    if wanted is None:
        # Two names, such as a prefix and @last, can stand for the same job.
        return list({title_of(job): job for job in find_jobs(api, names)}.values())
    if wanted.status and wanted.status in statuses:
        statuses = (wanted.status,)
    found = list(select_jobs(api, wanted, statuses=statuses))
    if not found:
        say(f"No {kind} job matches.")
    return found


def _find_data(api: Api, jobs: Sequence[Summary], *, includes_shared: bool) -> list[StoredData]:
    """Return the objects that jobs stored. A selection has summaries only, which do not say where."""
    trained = [job for job in jobs if kind_of(job) is TRAINING]
    descriptions = map_in_parallel(lambda job: describe_if_present(api, name_of(job)), trained)
    return find_stored_data(api, [each for each in descriptions if each], includes_shared=includes_shared)


def _in_parallel(title: str, work: Callable[[Summary], Summary], jobs: Sequence[Summary]) -> list[Summary]:
    done = []
    with count_bar(title, len(jobs)) as advance:
        for job in map_in_parallel(work, jobs):
            done.append(job)
            advance()
    return done


def _handle(api: Api, job: Summary) -> TrainingJobHandle | ProcessingJobHandle:
    return (TrainingJobHandle if kind_of(job) is TRAINING else ProcessingJobHandle)(api, name_of(job))


def _stop(api: Api, job: Summary, *, waits: bool) -> Summary:
    """Stop a job and return its summary afterwards. A job that has ended in the meantime is not an error."""
    from trainyard.wire.client import CallFailed

    handle, kind = _handle(api, job), kind_of(job)
    try:
        handle.stop()
    except CallFailed as error:
        now = describe_if_present(api, handle.name, kind=kind)
        if error.code != "ValidationException" or now is None or status_of(now) not in FINAL:
            raise
        return now
    return dict(handle.wait_for_end()) if waits else {**job, kind.status_member: "Stopping"}


def _stopped_text(api: Api, job: Summary) -> str:
    if status_of(job) == "Stopping":
        return f"{title_of(job)} is stopping."
    ended = summary if kind_of(job) is TRAINING else processing_summary
    return ended(job, _handle(api, job).details())


def _remove(api: Api, job: Summary) -> Summary:
    """Remove a job. Another command may have removed it in the meantime."""
    from trainyard.wire.client import CallFailed

    kind = kind_of(job)
    try:
        api.call("sagemaker", f"Delete{kind.shape}", **{kind.name_member: name_of(job)})
    except CallFailed:
        if describe_if_present(api, name_of(job), kind=kind) is not None:
            raise
    return job


def _report(jobs: Sequence[Summary], as_json: JsonFields | None, *, lines: Sequence[str], summed_up: str) -> None:
    """Print what was done: as JSON, a line for each job or, for many jobs, one for all."""
    if as_json:
        members = [(kind_of(job).name_member, kind_of(job).status_member) for job in jobs]
        rows = [{name: job[name] for name in names} for job, names in zip(jobs, members, strict=True)]
        print_json({"Jobs": rows}, as_json, items="Jobs")
    elif len(jobs) > _MAX_LINES:
        say(summed_up)
    else:
        for line in lines:
            say(line)
