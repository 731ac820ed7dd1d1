"""Runs one trial of a job, and reads from the times of its steps how fast it was."""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from trainyard._sdk.connection import Api
from trainyard._sdk.training.job import TrainingJobHandle
from trainyard._sdk.training.outcomes import card_lines
from trainyard._sdk.training.stream import FINAL, Description
from trainyard.foundation.errors import Unavailable
from trainyard.insight.profiling.trial_runs import NO_STEPS, TimedSteps, TrialRun, TrialSteps, read_first_rank
from trainyard.wire.client import CallFailed

_TRAIN = "TRAIN"


def run_trial(api: Api, request: Mapping[str, Any]) -> TrialRun:
    """Run a trial until it has ended. A trial is stopped if the caller is interrupted."""
    name = request["TrainingJobName"]
    job = TrainingJobHandle(api, name)
    api.call("sagemaker", "CreateTrainingJob", **request)
    try:
        description = job.wait_for_end()
    except BaseException:
        # The job may have ended in the meantime.
        with suppress(CallFailed):
            job.stop()
        raise
    if description["TrainingJobStatus"] != "Completed":
        return TrialRun(name, TrialSteps(), _reason(job, description))
    steps = read_trial_steps(api, name)
    if steps.step_s is None:
        return TrialRun(name, steps, NO_STEPS)
    return TrialRun(name, steps)


def read_trial_steps(api: Api, name: str) -> TrialSteps:
    """Return the steps of the first rank of an ended trial."""
    rows: dict[str, list[TimedSteps]] = {}
    facts: dict[str, Mapping[str, Any]] = {}
    with api.stream("trainyard", "ReadSteps", TrainingJobName=name) as lines:
        for line in lines:
            message = json.loads(line)
            if not message:
                return read_first_rank(rows, facts)
            if "facts" in message:
                facts[message["worker"]] = message["facts"]
            else:
                rows.setdefault(message["worker"], []).extend(_rows(message))
    raise Unavailable(f'The yard stopped before it had sent all steps of "{name}"; try again.')


def _rows(message: Mapping[str, Any]) -> list[TimedSteps]:
    columns = zip(message["counts"], message["modes"], message["ended_us"], strict=True)
    return [TimedSteps(steps, ended_us) for steps, mode, ended_us in columns if mode == _TRAIN]


def _reason(job: TrainingJobHandle, description: Description) -> str:
    status = description["TrainingJobStatus"]
    assert status in FINAL, "the trial has ended"
    card = job.details().get("FailureCard")
    why = "; ".join(card_lines(card)) if card else description.get("FailureReason", "")
    return f"the trial {job.name} is {status}" + (f": {why}" if why else "")
