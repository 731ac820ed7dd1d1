"""Jobs that repeat another job from the start, such as those of drills: requests, and how to find and remove them.

A kind of repetition has a tag, whose value is the name of the repeated job, and a folder in the user's bucket, in which
each of its jobs has a folder of its own.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from trainyard._sdk.connection import Api
from trainyard._sdk.storage.transfers import list_keys
from trainyard._sdk.training.stream import FINAL, Description
from trainyard.foundation.locations import parse_s3_uri

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


def repeated_members(description: Description, name: str) -> dict[str, Any]:
    """Return the members that make a job with another name do the same, without where it stores its results.

    What makes no difference to the script is left out, such as retries and the warm pool.
    """
    resources = {member: value for member, value in description["ResourceConfig"].items() if member != _KEEP_ALIVE}
    return {
        **{member: description[member] for member in _COPIED_MEMBERS if member in description},
        "TrainingJobName": name,
        "ResourceConfig": resources,
        "HyperParameters": _hyperparameters(description, name),
    }


def find_repetitions(api: Api, job_name: str, *, tag: str, folder: str) -> Iterator[tuple[str, str]]:
    """Yield the bucket and the name of each ended job that repeated a job, of one kind."""
    request = {
        "Resource": "TrainingJob",
        "SearchExpression": {"Filters": [{"Name": f"Tags.{tag}", "Operator": "Equals", "Value": job_name}]},
    }
    while True:
        page = api.call("sagemaker", "Search", **request)
        for result in page["Results"]:
            found = result["TrainingJob"]
            where = parse_s3_uri(found["OutputDataConfig"]["S3OutputPath"], account="")
            # Anyone can tag a job; only what lies in the folder of the kind is ever removed.
            is_ours = where.key.startswith(f"{folder}/{found['TrainingJobName']}/")
            if is_ours and found["TrainingJobStatus"] in FINAL:
                yield where.bucket.name, found["TrainingJobName"]
        if not page.get("NextToken"):
            return
        request["NextToken"] = page["NextToken"]


def remove_repetition(api: Api, bucket: str, name: str, *, folder: str) -> None:
    """Remove a job and all objects that it stored."""
    for key in list(list_keys(api, bucket, f"{folder}/{name}/")):
        api.call("s3", "DeleteObject", Bucket=bucket, Key=key)
    api.call("sagemaker", "DeleteTrainingJob", TrainingJobName=name)


def _hyperparameters(description: Description, name: str) -> Mapping[str, str]:
    """Return the hyperparameters of the job, with the new job name if the SDK has put a job name among them."""
    values = description.get("HyperParameters", {})
    return {**values, "sagemaker_job_name": json.dumps(name)} if "sagemaker_job_name" in values else values
