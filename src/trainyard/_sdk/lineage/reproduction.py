"""Runs a job again from what was recorded of it, and says in what the two differ."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainyard._sdk.connection import Api
from trainyard._sdk.job_names import base_of, create_named
from trainyard.foundation.errors import Conflict

# The tag of a job that runs another one again; its value is the name of that job.
TAG = "trainyard:reproduces"

_PREFIX = "again"
_SAME = "Same"
_STATES = {"Changed": "has changed", "Gone": "is gone", "Unknown": "was not recorded by content"}

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Difference:
    """Something in which a job and its repetition differ; None where one has none."""

    kind: str
    name: str
    before: str | None
    after: str | None


def changed_sources(record: Record) -> list[str]:
    """Return what a job read that is not certain to be the same now, as sentences."""
    sources = [*record["Inputs"], *([record["Code"]] if record.get("Code") else [])]
    return [f"{each['Name']} at {each['Uri']} {_STATES[each['State']]}" for each in sources if each["State"] != _SAME]


def require_same_sources(record: Record) -> None:
    """Raise Conflict if anything that a job read has changed, is gone, or was not recorded."""
    changed = changed_sources(record)
    if changed:
        raise Conflict(
            "training job",
            record["TrainingJobName"],
            f"cannot be reproduced exactly: {'; '.join(changed)}. --allow-changed runs it with what is there now",
        )


def start_again(api: Api, record: Record, *, name: str = "") -> str:
    """Create a job with the recorded request under another name, and return the name."""

    def create(new_name: str) -> None:
        api.call("sagemaker", "CreateTrainingJob", **repeated_request(record, new_name))

    if name:
        create(name)
        return name
    return create_named(f"{_PREFIX}-{base_of(record['TrainingJobName'])}", create)


def repeated_request(record: Record, name: str) -> dict[str, Any]:
    """Return the recorded request for another name. The job does not resume from the checkpoints of the first one."""
    request: dict[str, Any] = json.loads(record["Request"])
    request["TrainingJobName"] = name
    if "sagemaker_job_name" in request.get("HyperParameters", {}):
        request["HyperParameters"] = {**request["HyperParameters"], "sagemaker_job_name": json.dumps(name)}
    if "CheckpointConfig" in request:
        checkpoints = request["CheckpointConfig"]
        request["CheckpointConfig"] = {**checkpoints, "S3Uri": f"{checkpoints['S3Uri'].rstrip('/')}/{name}"}
    tags = [tag for tag in request.get("Tags", ()) if tag["Key"] != TAG]
    request["Tags"] = [*tags, {"Key": TAG, "Value": record["TrainingJobName"]}]
    return request


def differences_of(before: Record, after: Record) -> list[Difference]:
    """Return in what two jobs differ: status, metrics, inputs, code, packages and results."""
    first, second = dict(_facts(before)), dict(_facts(after))
    keys: Sequence[tuple[str, str]] = list(dict.fromkeys((*first, *second)))
    return [
        Difference(kind, name, first.get((kind, name)), second.get((kind, name)))
        for kind, name in keys
        if first.get((kind, name)) != second.get((kind, name))
    ]


def _facts(record: Record) -> Iterator[tuple[tuple[str, str], str]]:
    yield ("job", "status"), record["Status"]
    for metric in record["Metrics"]:
        yield ("metric", metric["MetricName"]), f"{metric['Value']:.10g}"
    for each in record["Inputs"]:
        yield ("input", each["Name"]), each.get("Digest", "unknown")[:12]
    if record.get("Code"):
        yield ("code", "archive"), record["Code"].get("Digest", "unknown")[:12]
    yield ("environment", "image"), record["Image"]
    for package in record["Packages"]:
        name, _, version = package.partition("==")
        yield ("package", name), version
    for each in record["Outputs"]:
        yield ("result", each["Name"]), each.get("Digest", "unknown")[:12]
