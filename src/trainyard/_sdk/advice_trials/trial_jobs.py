"""The requests of trial jobs: short repetitions of a job, in a part of the user's bucket that no other job uses."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from trainyard._sdk.connection import Api
from trainyard._sdk.job_names import MAX_LENGTH
from trainyard._sdk.training.repetition import find_repetitions, remove_repetition, repeated_members
from trainyard._sdk.training.stream import Description
from trainyard.formats.profiles.contract import CHANGES_VARIABLE, STEPS_VARIABLE, TRIAL_TAG, ProgramChange
from trainyard.foundation.engine_names import ENGINE_TAG

# The folder of all trials in the user's bucket.
FOLDER = "trainyard-trials"
# A trial that takes longer than this shows that it does not end after its steps.
MAX_RUN_S = 900


def trial_name(job_name: str, token: str, number: int) -> str:
    """Return a name such as `mnist-trial-3f9a1c-4`. A long job name is cut."""
    end = f"-trial-{token}-{number}"
    return job_name[: MAX_LENGTH - len(end)].rstrip("-") + end


def trial_request(
    description: Description,
    name: str,
    *,
    bucket: str,
    engine: str,
    steps: int,
    changes: Mapping[ProgramChange, str],
) -> dict[str, Any]:
    """Return the request of a job that repeats the first steps of another one on the same engine, with changes.

    It has no checkpoints, so that it begins at the beginning, and no rules, so that nothing else uses the processor.
    """
    limit_s = min(description["StoppingCondition"]["MaxRuntimeInSeconds"], MAX_RUN_S)
    environment = {**description.get("Environment", {}), STEPS_VARIABLE: str(steps)}
    if changes:
        environment[CHANGES_VARIABLE] = json.dumps({change.value: value for change, value in changes.items()})
    return {
        **repeated_members(description, name),
        "Environment": environment,
        "OutputDataConfig": {"S3OutputPath": f"s3://{bucket}/{FOLDER}/{name}/"},
        "StoppingCondition": {"MaxRuntimeInSeconds": limit_s},
        "Tags": [{"Key": TRIAL_TAG, "Value": description["TrainingJobName"]}, {"Key": ENGINE_TAG, "Value": engine}],
    }


def find_trial_jobs(api: Api, job_name: str) -> Iterator[tuple[str, str]]:
    """Yield the bucket and the name of each ended trial of a job."""
    return find_repetitions(api, job_name, tag=TRIAL_TAG, folder=FOLDER)


def remove_trial_job(api: Api, bucket: str, name: str) -> None:
    """Remove a trial and all objects that it stored."""
    remove_repetition(api, bucket, name, folder=FOLDER)
