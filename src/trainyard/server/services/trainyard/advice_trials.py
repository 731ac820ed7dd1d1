"""What the trials of a job's advice have measured: whether changes made its steps faster, and by how much."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from trainyard.formats.profiles.contract import CHANGES_VARIABLE, TRIAL_TAG, ProgramChange
from trainyard.foundation.jobs.status import Status
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.insight.profiling.trial_runs import (
    NO_STEPS,
    TimedSteps,
    TrialRun,
    TrialSteps,
    VerifiedChange,
    compare_trials,
    read_first_rank,
)
from trainyard.server.jobs.training import KIND, job_of
from trainyard.server.records.contract import Query, Resource, TagFilter
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.trainyard.profiles import read_training_steps
from trainyard.server.services.visibility import load_visible

# A verification of three changes in eight rounds has 32.
_MAX_TRIALS = 200
# The end of a trial's name: one word for all trials of a verification, and the number of the trial.
_TRIAL = re.compile(r"-trial-([0-9a-f]{6})-(\d{1,6})$")

_Key = tuple[tuple[str, str], ...]


def list_advice_trials(call: Call, shape: Shape) -> Shape:
    """Return what trials of the changes that were advised for a job have measured, by change."""
    resource = load_visible(call, KIND, shape["TrainingJobName"])
    job = job_of(resource)
    found: dict[_Key, Shape] = {}
    for trials in _verifications(call, job):
        unchanged, changed = _runs(call, trials)
        for key, runs in changed.items():
            pairs = min(len(unchanged), len(runs))
            # A later verification replaces an earlier one.
            if pairs and key not in found:
                changes = {ProgramChange(name): value for name, value in key}
                found[key] = _result(compare_trials(unchanged[:pairs], runs[:pairs], changes), runs[:pairs])
    return {"Results": list(found.values())}


OPERATIONS: Operations = {"ListAdviceTrials": list_advice_trials}


def _verifications(call: Call, job: TrainingJob) -> Iterator[Sequence[Resource]]:
    """Yield the trials of each verification, the newest verification first, and each in the order of its trials."""
    query = Query(
        KIND, account=job.account, tags=(TagFilter(TRIAL_TAG, (job.name,)),), descending=True, limit=_MAX_TRIALS
    )
    trials = [each for each in call.yard.records.find(query).resources if _TRIAL.search(each.key.name)]
    by_token = sorted(enumerate(trials), key=lambda item: (_first_place(trials, item[1]), _number(item[1])))
    for _, group in groupby(by_token, key=lambda item: _token(item[1])):
        yield [trial for _, trial in group]


def _first_place(trials: Sequence[Resource], trial: Resource) -> int:
    return next(place for place, each in enumerate(trials) if _token(each) == _token(trial))


def _token(trial: Resource) -> str:
    found = _TRIAL.search(trial.key.name)
    assert found is not None, "other jobs are left out"
    return found[1]


def _number(trial: Resource) -> int:
    return int(trial.key.name.rpartition("-")[2])


def _runs(call: Call, trials: Sequence[Resource]) -> tuple[list[TrialRun], dict[_Key, list[TrialRun]]]:
    """Return the runs without a change that can be compared, and those with changes, by their changes."""
    unchanged: list[TrialRun] = []
    changed: dict[_Key, list[TrialRun]] = defaultdict(list)
    for trial in trials:
        job = job_of(trial)
        changes = _wanted_changes(job)
        if not job.is_final or changes is None:
            continue
        run = _run(call, trial, job)
        if changes:
            changed[changes].append(run)
        elif not run.failure:
            unchanged.append(run)
    return unchanged, changed


def _run(call: Call, trial: Resource, job: TrainingJob) -> TrialRun:
    if job.status is not Status.COMPLETED:
        return TrialRun(job.name, TrialSteps(), f"the trial {job.name} is {job.status}")
    rows: dict[str, list[TimedSteps]] = {}
    facts: dict[str, Mapping[str, Any]] = {}
    for worker in read_training_steps(call, trial, job):
        rows[worker.name] = [TimedSteps(row.steps, row.ended_us) for row in worker.rows]
        facts[worker.name] = worker.facts
    steps = read_first_rank(rows, facts)
    return TrialRun(job.name, steps, "" if steps.step_s is not None else NO_STEPS)


def _wanted_changes(job: TrainingJob) -> _Key | None:
    """Return the changes that a trial was to make; none if it is unchanged, and None if nobody can tell."""
    try:
        wanted = json.loads(job.plan.environment.get(CHANGES_VARIABLE, "{}"))
        return tuple(sorted((ProgramChange(name).value, str(value)) for name, value in wanted.items()))
    except (ValueError, AttributeError, RecursionError):
        return None


def _result(found: VerifiedChange, runs: Sequence[TrialRun]) -> Shape:
    speedup = found.speedup
    has_interval = speedup is not None and speedup.pairs > 1
    return {
        "Changes": {change.value: value for change, value in found.changes.items()},
        "Speedup": speedup.factor if speedup else None,
        "Low": speedup.low if speedup and has_interval else None,
        "High": speedup.high if speedup and has_interval else None,
        "Pairs": speedup.pairs if speedup else 0,
        "IsPerSample": found.is_per_sample,
        "Problem": found.problem or None,
        "Trials": [run.name for run in runs],
    }
