"""Requests for training jobs, and the objects they need."""

import json
from typing import Any

from tests.unit.server.services.accounts import NOON, As
from trainyard.foundation.arns import role_arn
from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.contract import Attributes, NewObject, WriteResult, WritesBatches
from trainyard.server.services.contract import Yard

IMAGE = "763104351884.dkr.ecr.eu-west-3.amazonaws.com/pytorch-training:2.6-cpu-py312"

_AT_ONCE = 300


def fill_bucket(yard: Yard, account: str, keys: dict[str, bytes], *, bucket: str = "data") -> None:
    """Create an account's bucket and put objects into it."""
    ref = BucketRef(account, bucket)
    yard.objects.create_bucket(ref, region="eu-west-3", now=NOON)
    assert isinstance(yard.objects, WritesBatches), "one by one, many of them would take long"
    new = [NewObject(Location(ref, key), body, Attributes()) for key, body in keys.items()]
    for first in range(0, len(new), _AT_ONCE):
        outcomes = yard.objects.put_batch(new[first : first + _AT_ONCE], now=NOON)
        assert all(isinstance(outcome, WriteResult) for outcome in outcomes)


def prepare(user: As) -> As:
    """Create the bucket that `request` names for a user."""
    keys = {"code/sourcedir.tar.gz": b"code", "train/1.csv": b"1", "train/2.csv": b"2", "train/3.csv": b"3"}
    fill_bucket(user.yard, user.account, keys)
    return user


def request(user: As, name: str = "mnist", **changed: Any) -> dict[str, Any]:
    """Return the SDK's request for a job in script mode with one channel; None removes a member."""
    shape: dict[str, Any] = {
        "TrainingJobName": name,
        "RoleArn": role_arn(user.account, user.caller.role),
        "AlgorithmSpecification": {"TrainingImage": IMAGE, "TrainingInputMode": "File"},
        "HyperParameters": {
            "sagemaker_program": json.dumps("train.py"),
            "sagemaker_submit_directory": json.dumps("s3://data/code/sourcedir.tar.gz"),
            "epochs": "3",
        },
        "InputDataConfig": [channel("train", "s3://data/train/")],
        "OutputDataConfig": {"S3OutputPath": "s3://data/output"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 30},
        "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
    }
    return {member: value for member, value in (shape | changed).items() if value is not None}


def channel(name: str, uri: str, **changed: Any) -> dict[str, Any]:
    source: dict[str, Any] = {"S3DataType": "S3Prefix", "S3Uri": uri, "S3DataDistributionType": "FullyReplicated"}
    of_source = ("S3DataType", "S3DataDistributionType", "AttributeNames", "InstanceGroupNames")
    source |= {member: changed.pop(member) for member in list(changed) if member in of_source}
    return {"ChannelName": name, "DataSource": {"S3DataSource": source}, **changed}


def create(user: As, name: str = "mnist", **changed: Any) -> dict[str, Any]:
    return user("sagemaker", "CreateTrainingJob", **request(user, name, **changed))


def describe(user: As, name: str = "mnist") -> dict[str, Any]:
    return user("sagemaker", "DescribeTrainingJob", TrainingJobName=name)
