"""The inputs and outputs of a processing job: parsed from the request, and looked up before the job is accepted."""

import posixpath
from collections.abc import Iterator, Sequence

from trainyard.engines.file_systems import FileSystems
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.jobs.channels import ChannelPlan
from trainyard.foundation.jobs.processing.plan import OutputPlan, ProcessingPlan
from trainyard.objects.contract import ObjectStore
from trainyard.server.services.contract import Shape
from trainyard.server.services.sagemaker.training.inputs import require_bucket, require_channels
from trainyard.server.services.sagemaker.training.local_paths import require_path

ROOT = "/opt/ml/processing"


def inputs_of(shape: Shape) -> tuple[ChannelPlan, ...]:
    """Return the inputs that the platform brings, in the order of the request.

    Those that the program reads itself (AppManaged) are not among them.
    """
    given = shape.get("ProcessingInputs", ())
    _require_unique("InputName", [each["InputName"] for each in given])
    return tuple(_input(each) for each in given if not each.get("AppManaged"))


def outputs_of(shape: Shape) -> tuple[OutputPlan, ...]:
    """Return the outputs that the platform stores, in the order of the request."""
    given = shape.get("ProcessingOutputConfig", {}).get("Outputs", ())
    _require_unique("OutputName", [each["OutputName"] for each in given])
    return tuple(_output(each) for each in given if not each.get("AppManaged"))


def require_locations(objects: ObjectStore, plan: ProcessingPlan, *, account: str, file_systems: FileSystems) -> None:
    """Raise InvalidRequest for the first input that would be empty, and for an output whose bucket does not exist."""
    require_channels(objects, plan.inputs, account=account, file_systems=file_systems)
    for output in plan.outputs:
        require_bucket(objects, output.uri, account=account, member=f'the output "{output.name}"')


def require_separate(inputs: Sequence[ChannelPlan], outputs: Sequence[OutputPlan]) -> None:
    """Raise InvalidRequest if two inputs have the same folder, or the folders of an input and an output overlap.

    The folder of an input may lie in that of another, as SDKs bring dependencies into the folder of the code.
    """
    paths = [each.path for each in inputs]
    for each in inputs:
        if paths.count(each.path) > 1:
            raise InvalidRequest(f'The LocalPath "{each.path}" is that of several inputs; give each its own.')
    for output in outputs:
        for other in _overlapping(output.path, paths):
            raise InvalidRequest(
                f'The LocalPath "{output.path}" of the output "{output.name}" overlaps that of an input, {other}; give '
                "the output a folder of its own."
            )


def _overlapping(path: str, others: Sequence[str]) -> Iterator[str]:
    return (each for each in others if f"{each}/".startswith(f"{path}/") or f"{path}/".startswith(f"{each}/"))


def _require_unique(member: str, names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InvalidRequest(f'The {member} "{name}" is used more than once; give each its own.')


def _input(shape: Shape) -> ChannelPlan:
    name = shape["InputName"]
    if "DatasetDefinition" in shape:
        raise InvalidRequest(
            f'Trainyard does not serve DatasetDefinition yet; give the input "{name}" an S3Input with its data.'
        )
    if "S3Input" not in shape:
        raise InvalidRequest(f'The input "{name}" needs an S3Input.')
    source = shape["S3Input"]
    what = f'the input "{name}"'
    if source.get("S3InputMode", "File") == "Pipe":
        raise InvalidRequest(f"Trainyard does not serve the S3InputMode Pipe yet; give {what} the mode File.")
    if source.get("S3CompressionType", "None") == "Gzip":
        raise InvalidRequest(f"S3CompressionType Gzip is only for the S3InputMode Pipe, and {what} has the mode File.")
    _require_s3(source["S3Uri"], what)
    return ChannelPlan(
        name=name,
        uri=source["S3Uri"],
        is_manifest=source["S3DataType"] == "ManifestFile",
        is_sharded=source.get("S3DataDistributionType") == "ShardedByS3Key",
        path=_path(source.get("LocalPath"), what),
    )


def _output(shape: Shape) -> OutputPlan:
    name = shape["OutputName"]
    what = f'the output "{name}"'
    if "FeatureStoreOutput" in shape:
        raise InvalidRequest(f"Trainyard has no feature store; leave the FeatureStoreOutput of {what} out.")
    if "S3Output" not in shape:
        raise InvalidRequest(f"{what[0].upper()}{what[1:]} needs an S3Output.")
    target = shape["S3Output"]
    _require_s3(target["S3Uri"], what)
    is_continuous = target["S3UploadMode"] == "Continuous"
    return OutputPlan(name, target["S3Uri"], _path(target.get("LocalPath"), what), is_continuous=is_continuous)


def _require_s3(uri: str, what: str) -> None:
    if not uri.startswith("s3://"):
        raise InvalidRequest(f'The S3Uri of {what} is "{uri}"; it must begin with s3://.')


def _path(given: str | None, what: str) -> str:
    """Return a path below the root, without slashes at its end."""
    member = f"The LocalPath of {what}"
    if not given:
        raise InvalidRequest(f"{member} is missing; it is required unless AppManaged is true.")
    require_path(given, member)
    path = posixpath.normpath(given)
    if not path.startswith(f"{ROOT}/"):
        raise InvalidRequest(f'{member} is "{given}"; it must be a folder below {ROOT}, such as {ROOT}/data.')
    return path
