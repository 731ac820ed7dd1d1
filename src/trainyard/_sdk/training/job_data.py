"""The objects that a training job stored on S3: where they are, how much they are, and their removal."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from trainyard._sdk.connection import Api
from trainyard._sdk.storage.transfers import list_objects
from trainyard._sdk.training.job import hyperparameter
from trainyard._sdk.training.stream import Description
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.locations import parse_s3_uri
from trainyard.wire.client import CallFailed

CHECKPOINTS = "checkpoints"

# The limit of S3 for one DeleteObjects call.
_MAX_DELETED = 1000


@dataclass(frozen=True, slots=True)
class DataPrefix:
    """A prefix under which a job stored objects. The prefix ends in a slash, so that no other name starts with it.

    `is_shared` says that other jobs may use the prefix too: it is not named after the job.
    """

    kind: str
    bucket: str
    prefix: str
    is_shared: bool = False

    @property
    def uri(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"


@dataclass(frozen=True, slots=True)
class DataUse:
    """How many objects a prefix has, and their bytes."""

    objects: int
    bytes: int


def data_prefixes(description: Description) -> list[DataPrefix]:
    """Return the prefixes under which a job stored objects: its outputs, its code and its checkpoints.

    Checkpoints in no folder are left out, because everything in the bucket would count as theirs.
    """
    return [data for data in dict.fromkeys(_prefixes(description)) if data.prefix]


def measure_data(api: Api, data: DataPrefix) -> DataUse:
    """Count the objects of a prefix; there are none in a bucket that is gone."""
    objects = size = 0
    try:
        for each in list_objects(api, data.bucket, data.prefix):
            objects, size = objects + 1, size + each.size
    except CallFailed as error:
        if error.code != "NoSuchBucket":
            raise
    return DataUse(objects, size)


def remove_data(api: Api, data: DataPrefix) -> None:
    """Remove all objects of a prefix. Raises CallFailed for the first one that cannot be removed."""
    keys = (each.key for each in list_objects(api, data.bucket, data.prefix))
    # Each page is read before its objects are removed.
    while page := list(islice(keys, _MAX_DELETED)):
        request = {"Objects": [{"Key": key} for key in page], "Quiet": True}
        answer = api.call("s3", "DeleteObjects", Bucket=data.bucket, Delete=request)
        for error in answer.get("Errors", ()):
            raise CallFailed(error["Code"], f"{data.bucket}/{error['Key']}: {error['Message']}", status=403)


def _prefixes(description: Description) -> Iterator[DataPrefix]:
    name = description["TrainingJobName"]
    outputs = (
        ("output", "OutputDataConfig", "output"),
        ("tensors", "DebugHookConfig", "debug-output"),
        ("reports of rules", "DebugHookConfig", "rule-output"),
        ("TensorBoard", "TensorBoardOutputConfig", "tensorboard-output"),
    )
    for kind, member, folder in outputs:
        if path := description.get(member, {}).get("S3OutputPath"):
            yield _prefix(kind, f"{path.rstrip('/')}/{name}/{folder}", name)
    yield from _profiles(description)
    code = hyperparameter(description.get("HyperParameters", {}).get("sagemaker_submit_directory", "null"))
    # Clients upload the code of a job to a prefix with its name; other code may be used by other jobs.
    if isinstance(code, str) and (found := _code_prefix(code, name)):
        yield found
    if "CheckpointConfig" in description:
        yield _prefix(CHECKPOINTS, description["CheckpointConfig"]["S3Uri"], name)


def _profiles(description: Description) -> Iterator[DataPrefix]:
    """Yield where a job stores profiles and reports: with its output, unless it says otherwise."""
    name, output = description["TrainingJobName"], description["OutputDataConfig"]
    # Also of a job that asked for none: it may have written traces of its own.
    path = description.get("ProfilerConfig", {}).get("S3OutputPath") or output["S3OutputPath"]
    yield _prefix("profiles", f"{path.rstrip('/')}/{name}/profiler-output", name)
    for rule in description.get("ProfilerRuleConfigurations", ()):
        path = rule.get("S3OutputPath") or output["S3OutputPath"]
        yield _prefix("reports of rules", f"{path.rstrip('/')}/{name}/rule-output", name)


def _code_prefix(uri: str, name: str) -> DataPrefix | None:
    before, separator, _ = uri.partition(f"/{name}/source/")
    try:
        return _prefix("code", f"{before}/{name}/source", name) if separator else None
    except InvalidRequest:
        return None


def _prefix(kind: str, uri: str, name: str) -> DataPrefix:
    place = parse_s3_uri(uri, account="")
    key = place.key.strip("/")
    return DataPrefix(kind, place.bucket.name, f"{key}/" if key else "", is_shared=name not in key.split("/"))
