"""The jobs of a drill: the definition of a job again, under names and in places of their own."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainyard.following import Description
from trainyard.foundation.engine_names import ENGINE_TAG
from trainyard.job_names import MAX_LENGTH

TAG = "trainyard:drill"  # of the jobs of a drill; its value is the job that was drilled
FOLDER = "trainyard-drills"  # in the user's own bucket

_KEPT = (
    "AlgorithmSpecification",
    "RoleArn",
    "InputDataConfig",
    "VpcConfig",
    "Environment",
    "EnableNetworkIsolation",
    "EnableInterContainerTrafficEncryption",
)
_KEEP_ALIVE = "KeepAlivePeriodInSeconds"
_WAIT_S = 24 * 3600  # for a place, beside the time that both attempts may run


@dataclass(frozen=True, slots=True)
class Places:
    """Where a job of a drill keeps its things, which is nowhere that another job does."""

    bucket: str
    job_name: str

    @property
    def prefix(self) -> str:
        return f"{FOLDER}/{self.job_name}/"

    @property
    def checkpoints(self) -> str:
        """The prefix of its checkpoints in the bucket."""
        return f"{self.prefix}checkpoints/"

    def uri(self, name: str) -> str:
        return f"s3://{self.bucket}/{self.prefix}{name}"


def drill_name(job_name: str, token: str, role: str) -> str:
    """`mnist-drill-3f9a1c-whole`; of a name that is too long the beginning."""
    end = f"-drill-{token}-{role}"
    return job_name[: MAX_LENGTH - len(end)].rstrip("-") + end


def definition(description: Description, places: Places, *, engine: str, is_spot: bool) -> dict[str, Any]:
    """The request of a job that does what another did, from the beginning, on the engine that ran it.

    What makes no difference to its script is left out, such as what to do after a failure and how long to keep warm
    workers. One that shall be interrupted is a spot job, one that shall not be is none.
    """
    resources = {name: value for name, value in description["ResourceConfig"].items() if name != _KEEP_ALIVE}
    asked: dict[str, Any] = {
        **{member: description[member] for member in _KEPT if member in description},
        "TrainingJobName": places.job_name,
        "ResourceConfig": resources,
        "HyperParameters": _hyperparameters(description, places.job_name),
        "OutputDataConfig": {"S3OutputPath": places.uri("output")},
        "CheckpointConfig": {**description["CheckpointConfig"], "S3Uri": places.uri("checkpoints")},
        "StoppingCondition": _limits(description, is_spot=is_spot),
        "EnableManagedSpotTraining": is_spot,
        "Tags": [{"Key": TAG, "Value": description["TrainingJobName"]}, {"Key": ENGINE_TAG, "Value": engine}],
    }
    if "TensorBoardOutputConfig" in description:
        kept = description["TensorBoardOutputConfig"]
        asked["TensorBoardOutputConfig"] = {**kept, "S3OutputPath": places.uri("tensorboard")}
    return asked


def _hyperparameters(description: Description, name: str) -> Mapping[str, str]:
    """Those of the job; the SDK tells a script the job's name among them."""
    values = description.get("HyperParameters", {})
    return {**values, "sagemaker_job_name": json.dumps(name)} if "sagemaker_job_name" in values else values


def _limits(description: Description, *, is_spot: bool) -> Mapping[str, int]:
    run_s = description["StoppingCondition"]["MaxRuntimeInSeconds"]
    limits = {"MaxRuntimeInSeconds": 2 * run_s if is_spot else run_s}
    return limits | {"MaxWaitTimeInSeconds": 2 * run_s + _WAIT_S} if is_spot else limits
