"""The configuration files of a processing job, as SageMaker puts them into /opt/ml/config."""

from collections.abc import Mapping
from typing import Any

from trainyard.link.contract import InstanceSpec

# What the platform's own file has although the request may leave it out.
_INPUT = {
    "S3DataDistributionType": "FullyReplicated",
    "S3InputMode": "File",
    "S3CompressionType": "None",
    "S3DownloadMode": "StartOfJob",
}


def processing_config_files(spec: InstanceSpec) -> Mapping[str, Any]:
    """Return all configuration files by name."""
    return {
        "processingjobconfig.json": _job_config(spec),
        "resourceconfig.json": {"current_host": spec.instance, "hosts": list(spec.hosts)},
    }


def _job_config(spec: InstanceSpec) -> Mapping[str, Any]:
    """Return the request with the ARN of the job; members that it leaves out are null."""
    request = spec.request
    program, cluster = request["AppSpecification"], request["ProcessingResources"]["ClusterConfig"]
    outputs = request.get("ProcessingOutputConfig")
    return {
        "ProcessingJobArn": spec.job_arn,
        "ProcessingJobName": spec.job_name,
        "AppSpecification": {"ContainerEntrypoint": None, "ContainerArguments": None, **program},
        "Environment": request.get("Environment"),
        "ProcessingInputs": [_input(each) for each in request.get("ProcessingInputs", ())],
        "ProcessingOutputConfig": outputs and {"KmsKeyId": None, **outputs},
        "ProcessingResources": {"ClusterConfig": {"VolumeKmsKeyId": None, **cluster}},
        "NetworkConfig": request.get("NetworkConfig"),
        "RoleArn": request["RoleArn"],
        "StoppingCondition": request.get("StoppingCondition"),
        "ExperimentConfig": request.get("ExperimentConfig"),
    }


def _input(given: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**given, "S3Input": {**_INPUT, **given["S3Input"]}} if "S3Input" in given else given
