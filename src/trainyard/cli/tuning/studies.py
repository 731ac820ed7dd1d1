"""Find tuning jobs by name, by prefix or as @last, and print them."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

from trainyard._sdk.connection import Api
from trainyard._sdk.job_names import base_of_study
from trainyard._sdk.training.console import duration_text
from trainyard._sdk.training.stream import Description
from trainyard._sdk.tuning.job import TuningJobHandle, ended_count
from trainyard._sdk.tuning.text import aim_of, counts_text, number_text, value_of, value_text, values_text, why_text
from trainyard.cli.jobs.lookup import MAX_SIMILAR, age_of, similar_name
from trainyard.cli.terminal.blocks import Block, Table
from trainyard.cli.terminal.failure import ExitCode, Failure

_MAX_SHOWN = 5


def find_study(api: Api, given: str) -> TuningJobHandle:
    """Return a tuning job given by its name, by a prefix of it, or as @last or, before that, @last~1."""
    if given.startswith("@"):
        age = age_of(given)
        latest = next(islice(studies(api, limit=age + 1), age, None), None)
        if latest is None:
            message = "There are not so many tuning jobs yet." if age else "There is no tuning job yet."
            raise Failure(message, next_step="trainyard tune SCRIPT", code=ExitCode.NOT_FOUND)
        return TuningJobHandle(api, latest["HyperParameterTuningJobName"])
    names = [each["HyperParameterTuningJobName"] for each in studies(api, NameContains=given)]
    fitting = [name for name in names if name == given] or [name for name in names if name.startswith(given)]
    if len(fitting) == 1:
        return TuningJobHandle(api, fitting[0])
    if not fitting:
        latest_names = [each["HyperParameterTuningJobName"] for each in studies(api, limit=MAX_SIMILAR)]
        similar = similar_name(given, latest_names, base_of=base_of_study)
        raise Failure(
            f'There is no tuning job named "{given}", and none whose name starts with it.'
            + (f' Did you mean "{similar}"?' if similar else ""),
            next_step="trainyard tune ls",
            code=ExitCode.NOT_FOUND,
        )
    shown = ", ".join(fitting[:_MAX_SHOWN]) + (" …" if len(fitting) > _MAX_SHOWN else "")
    raise Failure(f'Several tuning jobs have names that start with "{given}".', why=shown, code=ExitCode.USAGE)


def studies(api: Api, *, limit: int | None = None, **filters: Any) -> Iterator[dict[str, Any]]:
    """Yield the summaries of tuning jobs, newest first."""
    request: dict[str, Any] = {"SortBy": "CreationTime", "SortOrder": "Descending", **filters}
    left = limit
    while left is None or left > 0:
        page = api.call("sagemaker", "ListHyperParameterTuningJobs", MaxResults=min(left or 100, 100), **request)
        found: list[dict[str, Any]] = page["HyperParameterTuningJobSummaries"]
        yield from found
        left = left - len(found) if left is not None else None
        if not page.get("NextToken"):
            return
        request["NextToken"] = page["NextToken"]


def study_blocks(description: Description, trials: Sequence[Description], *, now: datetime) -> Iterator[Block]:
    """Yield the status of a tuning job and its best trial, then all trials, newest first."""
    limit = description["HyperParameterTuningJobConfig"]["ResourceLimits"].get("MaxNumberOfTrainingJobs")
    end = description.get("HyperParameterTuningEndTime") or now
    duration = duration_text(int((end - description["CreationTime"]).total_seconds()))
    name, status = description["HyperParameterTuningJobName"], description["HyperParameterTuningJobStatus"]
    count = f"{ended_count(description)} of {limit}" if limit else str(ended_count(description))
    yield f"{name}  {status}  {duration}  {count} trials ended: {counts_text(description)}"
    best = description.get("BestTrainingJob")
    metric = aim_of(description).metric
    if best:
        yield f"best  {metric} {number_text(value_of(best))}  {values_text(best)}  {best['TrainingJobName']}"
    else:
        yield f"best  {metric} not reported yet"
    yield ""
    numbered = list(enumerate(trials, start=1))
    yield trial_table(numbered[::-1], metric=metric, best=best["TrainingJobName"] if best else "", now=now)


def trial_table(trials: Sequence[tuple[int, Description]], *, metric: str, best: str, now: datetime) -> Table:
    """Return a table of trials with a column for each hyperparameter; the best trial is marked."""
    names = sorted({name for _, trial in trials for name in trial.get("TunedHyperParameters", {})})
    columns = ("", "#", "status", metric, "time", *names, "")
    return Table(columns, [_row(number, trial, names, best=best, now=now) for number, trial in trials])


def _row(number: int, trial: Description, names: Sequence[str], *, best: str, now: datetime) -> list[str]:
    tuned: Mapping[str, str] = trial.get("TunedHyperParameters", {})
    start, end = trial.get("TrainingStartTime"), trial.get("TrainingEndTime") or now
    value = value_of(trial)
    is_over = trial["TrainingJobStatus"] not in ("InProgress", "Stopping")
    return [
        "*" if trial["TrainingJobName"] == best else "",
        str(number),
        trial["TrainingJobStatus"],
        number_text(value),
        duration_text((end - start).total_seconds()) if start else "",
        *(value_text(tuned[name]) if name in tuned else "" for name in names),
        why_text(trial) if is_over and value is None else "",
    ]
