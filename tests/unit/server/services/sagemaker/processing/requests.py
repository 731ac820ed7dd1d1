"""Requests for processing jobs on the objects that the requests for training jobs need too."""

from typing import Any

from tests.unit.server.services.accounts import As
from tests.unit.server.services.sagemaker.requests import IMAGE
from trainyard.foundation.arns import role_arn

CODE = "/opt/ml/processing/input/code"


def input_of(name: str, uri: str, path: str, **changed: Any) -> dict[str, Any]:
    source = {"S3Uri": uri, "LocalPath": path, "S3DataType": "S3Prefix", "S3InputMode": "File", **changed}
    return {"InputName": name, "S3Input": {member: value for member, value in source.items() if value is not None}}


def output_of(name: str, uri: str, path: str, mode: str = "EndOfJob") -> dict[str, Any]:
    return {"OutputName": name, "S3Output": {"S3Uri": uri, "LocalPath": path, "S3UploadMode": mode}}


def cluster(**changed: Any) -> dict[str, Any]:
    return {"ClusterConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 30, **changed}}


def request(user: As, name: str = "clean", **changed: Any) -> dict[str, Any]:
    """Return a ScriptProcessor's request with one input and one output; None removes a member."""
    shape: dict[str, Any] = {
        "ProcessingJobName": name,
        "RoleArn": role_arn(user.account, user.caller.role),
        "AppSpecification": {"ImageUri": IMAGE, "ContainerEntrypoint": ["python3", f"{CODE}/clean.py"]},
        "ProcessingResources": cluster(),
        "ProcessingInputs": [input_of("data", "s3://data/train/", "/opt/ml/processing/input/data")],
        "ProcessingOutputConfig": {"Outputs": [output_of("out", "s3://data/out", "/opt/ml/processing/out")]},
    }
    return {member: value for member, value in (shape | changed).items() if value is not None}


def create(user: As, name: str = "clean", **changed: Any) -> dict[str, Any]:
    return user("sagemaker", "CreateProcessingJob", **request(user, name, **changed))


def describe(user: As, name: str = "clean") -> dict[str, Any]:
    return user("sagemaker", "DescribeProcessingJob", ProcessingJobName=name)
