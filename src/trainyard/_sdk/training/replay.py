"""Replay recorded steps of a training job: list the steps, and build the request of the job that replays one."""

from datetime import datetime
from typing import Any

from trainyard._sdk.connection import Api
from trainyard._sdk.job_names import new_name
from trainyard._sdk.storage.bucket_owner import api_for_job_buckets
from trainyard._sdk.storage.transfers import list_keys
from trainyard._sdk.training.stream import Description
from trainyard.foundation.engine_names import ENGINE_TAG
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.locations import parse_s3_uri

# The environment variable with the step, and the channel with the records.
VARIABLE = "TRAINYARD_REPLAY"
CHANNEL = "trainyard-replay"

_RECORD = "record.json"
_COPIED_MEMBERS = (
    "AlgorithmSpecification",
    "RoleArn",
    "HyperParameters",
    "ResourceConfig",
    "VpcConfig",
    "EnableNetworkIsolation",
    "EnableInterContainerTrafficEncryption",
    "DebugHookConfig",
)


def records_of(description: Description) -> str:
    """Return the S3 location of the recorded steps of a job."""
    if "DebugHookConfig" not in description:
        raise InvalidRequest(
            f"{description['TrainingJobName']} recorded no steps: it was created without a DebugHookConfig."
        )
    output = description["DebugHookConfig"]["S3OutputPath"].rstrip("/")
    return f"{output}/{description['TrainingJobName']}/debug-output/records/"


def recorded_steps(api: Api, description: Description) -> list[int]:
    """Return the recorded steps in order."""
    where, owned = parse_s3_uri(records_of(description), account=""), api_for_job_buckets(api, description)
    keys = [key.split("/") for key in list_keys(owned, where.bucket.name, where.key)]
    found = {parts[-2] for parts in keys if len(parts) > 1 and parts[-1] == _RECORD}
    return sorted(int(step) for step in found if step.isdecimal())


def replay_request(description: Description, step: int, *, engine: str, now: datetime) -> dict[str, Any]:
    """Return the request of a job that replays one recorded step, on the engine of the original job."""
    source = {"S3DataType": "S3Prefix", "S3Uri": records_of(description), "S3DataDistributionType": "FullyReplicated"}
    records = {"ChannelName": CHANNEL, "InputMode": "File", "DataSource": {"S3DataSource": source}}
    output = {name: value for name, value in description["OutputDataConfig"].items() if value}
    seconds = description["StoppingCondition"]["MaxRuntimeInSeconds"]
    return {
        "TrainingJobName": new_name(f"{description['TrainingJobName'][:24]}-replay", now),
        **{member: description[member] for member in _COPIED_MEMBERS if member in description},
        "InputDataConfig": [*description.get("InputDataConfig", ()), records],
        "OutputDataConfig": output,
        "StoppingCondition": {"MaxRuntimeInSeconds": seconds},
        "Environment": {**description.get("Environment", {}), VARIABLE: str(step)},
        "Tags": [{"Key": ENGINE_TAG, "Value": engine}],
    }
