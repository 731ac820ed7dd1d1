"""Tries advice: repeats the first steps of a job, in turn with and without each change, and measures the gain."""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainyard._sdk.advice_trials.trial_jobs import trial_name, trial_request
from trainyard._sdk.advice_trials.trial_runs import run_trial
from trainyard._sdk.connection import Api
from trainyard._sdk.training.job import TrainingJobHandle
from trainyard._sdk.training.stream import Description
from trainyard.foundation.errors import InvalidRequest
from trainyard.insight.profiling.speedup import MeasuredSpeedup
from trainyard.insight.profiling.trial_runs import Changes, TrialRun, VerifiedChange, compare_trials

__all__ = [
    "DEFAULT_ROUNDS",
    "DEFAULT_TRIAL_S",
    "Changes",
    "MeasuredSpeedup",
    "TrialPlan",
    "Verification",
    "VerifiedChange",
    "changes_text",
    "verify_changes",
]

DEFAULT_ROUNDS = 4
DEFAULT_TRIAL_S = 10.0
# Fewer steps say little, more take longer than they tell.
_MIN_STEPS, _MAX_STEPS = 30, 5000


@dataclass(frozen=True, slots=True)
class Verification:
    """What came of each of the changes, in the order in which they were given, and the jobs that ran for it."""

    results: Sequence[VerifiedChange]
    jobs: Sequence[str]


@dataclass(frozen=True, slots=True)
class TrialPlan:
    """How much is tried: every change, and the unchanged program, runs once in each round for so many steps."""

    rounds: int
    steps: int

    @classmethod
    def of(cls, step_s: float | None, *, rounds: int = DEFAULT_ROUNDS, trial_s: float = DEFAULT_TRIAL_S) -> "TrialPlan":
        """Return the plan for trials that train about `trial_s` seconds at the time that a step takes by now."""
        steps = _MIN_STEPS if not step_s else round(trial_s / step_s)
        return cls(rounds, min(max(steps, _MIN_STEPS), _MAX_STEPS))


def verify_changes(
    api: Api,
    description: Description,
    candidates: Sequence[Changes],
    *,
    bucket: str,
    plan: TrialPlan,
    report: Callable[[str], None],
) -> Verification:
    """Run the trials one after the other, because trials at the same time would slow each other down.

    Every second round runs in reverse order, so that a machine that gets slower favours nobody. InvalidRequest if the
    unchanged program already cannot be repeated.
    """
    name, token = description["TrainingJobName"], secrets.token_hex(3)
    engine = TrainingJobHandle(api, name).details()["Engine"]
    programs: list[Changes] = [{}, *candidates]
    runs: list[list[TrialRun]] = [[] for _ in programs]
    jobs: list[str] = []
    for round_number in range(plan.rounds):
        turns = list(range(len(programs)))
        for number in reversed(turns) if round_number % 2 else turns:
            if runs[number] and runs[number][-1].failure:
                continue
            job = trial_name(name, token, len(jobs) + 1)
            report(f"Round {round_number + 1} of {plan.rounds}: {changes_text(programs[number])} …")
            changes = programs[number]
            request = trial_request(description, job, bucket=bucket, engine=engine, steps=plan.steps, changes=changes)
            jobs.append(job)
            run = run_trial(api, request)
            runs[number].append(run)
            if number == 0 and run.failure:
                raise InvalidRequest(f"The job cannot be repeated for a trial: {run.failure}.")
    return Verification(
        [compare_trials(runs[0], tried, changes) for tried, changes in zip(runs[1:], candidates, strict=True)], jobs
    )


def changes_text(changes: Changes) -> str:
    """Return changes as text, such as `loader workers 2, pin memory true`."""
    if not changes:
        return "unchanged"
    return ", ".join(f"{change.value.replace('_', ' ')} {value}" for change, value in changes.items())
