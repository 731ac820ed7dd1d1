"""The jobs of a drill: their names, their requests and their storage, and how to find and remove them later."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainyard._sdk.connection import Api
from trainyard._sdk.job_names import MAX_LENGTH
from trainyard._sdk.training.repetition import find_repetitions, remove_repetition, repeated_members
from trainyard._sdk.training.stream import Description
from trainyard.foundation.engine_names import ENGINE_TAG

# Marks the jobs of a drill; the value is the name of the drilled job.
TAG = "trainyard:drill"
# The folder of all drills in the user's bucket.
FOLDER = "trainyard-drills"

# How long an interrupted job may wait for capacity, in addition to the time that both attempts may run.
_WAIT_S = 24 * 3600


@dataclass(frozen=True, slots=True)
class DrillJob:
    """A job of a drill and its storage, which it shares with no other job."""

    bucket: str
    job_name: str

    @property
    def prefix(self) -> str:
        """The prefix of all its objects."""
        return f"{FOLDER}/{self.job_name}/"

    @property
    def checkpoints(self) -> str:
        """The prefix of its checkpoints."""
        return f"{self.prefix}checkpoints/"

    def uri(self, name: str) -> str:
        """Return the S3 location of one of its folders."""
        return f"s3://{self.bucket}/{self.prefix}{name}"


def drill_name(job_name: str, token: str, role: str) -> str:
    """Return a name such as `mnist-drill-3f9a1c-whole`. A long job name is cut."""
    end = f"-drill-{token}-{role}"
    return job_name[: MAX_LENGTH - len(end)].rstrip("-") + end


def drill_request(description: Description, job: DrillJob, *, engine: str, is_spot: bool) -> dict[str, Any]:
    """Return the request of a job that repeats another one from the start, on the same engine.

    Only the job that will be interrupted is a spot job.
    """
    request: dict[str, Any] = {
        **repeated_members(description, job.job_name),
        "OutputDataConfig": {"S3OutputPath": job.uri("output")},
        "CheckpointConfig": {**description["CheckpointConfig"], "S3Uri": job.uri("checkpoints")},
        "StoppingCondition": _limits(description, is_spot=is_spot),
        "EnableManagedSpotTraining": is_spot,
        "Tags": [{"Key": TAG, "Value": description["TrainingJobName"]}, {"Key": ENGINE_TAG, "Value": engine}],
    }
    if "TensorBoardOutputConfig" in description:
        tensorboard = description["TensorBoardOutputConfig"]
        request["TensorBoardOutputConfig"] = {**tensorboard, "S3OutputPath": job.uri("tensorboard")}
    return request


def find_drill_jobs(api: Api, job_name: str) -> Iterator[DrillJob]:
    """Yield the ended jobs of earlier drills of a job."""
    for bucket, name in find_repetitions(api, job_name, tag=TAG, folder=FOLDER):
        yield DrillJob(bucket, name)


def remove_drill_job(api: Api, job: DrillJob) -> None:
    """Remove a job of a drill and all objects that it stored."""
    remove_repetition(api, job.bucket, job.job_name, folder=FOLDER)


def _limits(description: Description, *, is_spot: bool) -> Mapping[str, int]:
    run_s = description["StoppingCondition"]["MaxRuntimeInSeconds"]
    limits = {"MaxRuntimeInSeconds": 2 * run_s if is_spot else run_s}
    return limits | {"MaxWaitTimeInSeconds": 2 * run_s + _WAIT_S} if is_spot else limits
