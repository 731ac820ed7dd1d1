"""Running one recorded step of a training job again: which there are, and the job that does it."""

from datetime import datetime
from typing import Any

from trainyard.connection import Api
from trainyard.following import Description
from trainyard.foundation.engine_names import ENGINE_TAG
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.locations import parse_s3_uri
from trainyard.job_names import new_name
from trainyard.owned_buckets import buckets_of_job
from trainyard.transfers import keys_below

VARIABLE = "TRAINYARD_REPLAY"  # tells the program's recorder the step
CHANNEL = "trainyard-replay"  # brings it the records

_RECORD = "record.json"
_KEPT = (
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
    """The S3 location below which a job leaves the steps that it recorded."""
    if "DebugHookConfig" not in description:
        raise InvalidRequest(
            f"{description['TrainingJobName']} recorded no steps: it was made without a DebugHookConfig."
        )
    place = description["DebugHookConfig"]["S3OutputPath"].rstrip("/")
    return f"{place}/{description['TrainingJobName']}/debug-output/records/"


def recorded_steps(api: Api, description: Description) -> list[int]:
    """The steps that can be run again, in order."""
    where, owned = parse_s3_uri(records_of(description), account=""), buckets_of_job(api, description)
    keys = [key.split("/") for key in keys_below(owned, where.bucket.name, where.key)]
    found = {parts[-2] for parts in keys if len(parts) > 1 and parts[-1] == _RECORD}
    return sorted(int(step) for step in found if step.isdecimal())


def replay_request(description: Description, step: int, *, engine: str, now: datetime) -> dict[str, Any]:
    """A request for a job that runs one recorded step of another, and nothing else, on the engine that ran it."""
    source = {"S3DataType": "S3Prefix", "S3Uri": records_of(description), "S3DataDistributionType": "FullyReplicated"}
    records = {"ChannelName": CHANNEL, "InputMode": "File", "DataSource": {"S3DataSource": source}}
    output = {name: value for name, value in description["OutputDataConfig"].items() if value}
    seconds = description["StoppingCondition"]["MaxRuntimeInSeconds"]
    return {
        "TrainingJobName": new_name(f"{description['TrainingJobName'][:24]}-replay", now),
        **{member: description[member] for member in _KEPT if member in description},
        "InputDataConfig": [*description.get("InputDataConfig", ()), records],
        "OutputDataConfig": output,
        "StoppingCondition": {"MaxRuntimeInSeconds": seconds},
        "Environment": {**description.get("Environment", {}), VARIABLE: str(step)},
        "Tags": [{"Key": ENGINE_TAG, "Value": engine}],
    }
