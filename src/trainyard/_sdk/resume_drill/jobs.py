"""The jobs of a drill: their names, their requests and their storage, and how to find and remove them later."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainyard._sdk.connection import Api
from trainyard._sdk.job_names import MAX_LENGTH
from trainyard._sdk.storage.transfers import list_keys
from trainyard._sdk.training.stream import FINAL, Description
from trainyard.foundation.engine_names import ENGINE_TAG
from trainyard.foundation.locations import parse_s3_uri

# Marks the jobs of a drill; the value is the name of the drilled job.
TAG = "trainyard:drill"
# The folder of all drills in the user's bucket.
FOLDER = "trainyard-drills"

_COPIED_MEMBERS = (
    "AlgorithmSpecification",
    "RoleArn",
    "InputDataConfig",
    "VpcConfig",
    "Environment",
    "EnableNetworkIsolation",
    "EnableInterContainerTrafficEncryption",
)
_KEEP_ALIVE = "KeepAlivePeriodInSeconds"
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

    The request leaves out what makes no difference to the script, such as retries and the warm pool. Only the job that
    will be interrupted is a spot job.
    """
    resources = {name: value for name, value in description["ResourceConfig"].items() if name != _KEEP_ALIVE}
    request: dict[str, Any] = {
        **{member: description[member] for member in _COPIED_MEMBERS if member in description},
        "TrainingJobName": job.job_name,
        "ResourceConfig": resources,
        "HyperParameters": _hyperparameters(description, job.job_name),
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
    request = {
        "Resource": "TrainingJob",
        "SearchExpression": {"Filters": [{"Name": f"Tags.{TAG}", "Operator": "Equals", "Value": job_name}]},
    }
    while True:
        page = api.call("sagemaker", "Search", **request)
        for result in page["Results"]:
            found = result["TrainingJob"]
            where = parse_s3_uri(found["OutputDataConfig"]["S3OutputPath"], account="")
            # Anyone can tag a job; drills only remove what is in their own folder.
            is_ours = where.key.startswith(f"{FOLDER}/{found['TrainingJobName']}/")
            if is_ours and found["TrainingJobStatus"] in FINAL:
                yield DrillJob(where.bucket.name, found["TrainingJobName"])
        if not page.get("NextToken"):
            return
        request["NextToken"] = page["NextToken"]


def remove_drill_job(api: Api, job: DrillJob) -> None:
    """Remove a job of a drill and all objects that it stored."""
    for key in list(list_keys(api, job.bucket, job.prefix)):
        api.call("s3", "DeleteObject", Bucket=job.bucket, Key=key)
    api.call("sagemaker", "DeleteTrainingJob", TrainingJobName=job.job_name)


def _hyperparameters(description: Description, name: str) -> Mapping[str, str]:
    """Return the hyperparameters of the job, with the new job name if the SDK has put a job name among them."""
    values = description.get("HyperParameters", {})
    return {**values, "sagemaker_job_name": json.dumps(name)} if "sagemaker_job_name" in values else values


def _limits(description: Description, *, is_spot: bool) -> Mapping[str, int]:
    run_s = description["StoppingCondition"]["MaxRuntimeInSeconds"]
    limits = {"MaxRuntimeInSeconds": 2 * run_s if is_spot else run_s}
    return limits | {"MaxWaitTimeInSeconds": 2 * run_s + _WAIT_S} if is_spot else limits
