"""Where the files of a training job are: its inputs, its code, its results, and what it saves while it runs."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.locations import parse_s3_uri
from trainyard.server.dashboard.job_frame import JobFrame
from trainyard.server.dashboard.visit import BadRequest
from trainyard.server.services.contract import Shape

_RESULT_TITLES = {"model": "Model", "output": "Output"}


@dataclass(frozen=True, slots=True)
class FilePlace:
    """One location with files of a job: an object, or all objects below a prefix.

    Without a bucket there is nothing to browse, and the note says why.
    """

    id: str
    group: str
    title: str
    uri: str
    bucket: str = ""
    key: str = ""
    note: str = ""
    is_file: bool = False

    def shape(self) -> Shape:
        return {
            "id": self.id,
            "group": self.group,
            "title": self.title,
            "uri": self.uri,
            "note": self.note,
            "isFile": self.is_file,
            "isBrowsable": bool(self.bucket),
            "name": self.key.rstrip("/").rpartition("/")[2],
        }


def owner_of(job: JobFrame) -> str:
    """Return the account of a job. Its buckets must belong to it, also when an administrator looks."""
    account: str = job.description["TrainingJobArn"].split(":")[4]
    return account


def places_of(job: JobFrame) -> list[FilePlace]:
    return [*_inputs(job), *_code(job), *_results(job), *_saved_while_running(job)]


def place_named(job: JobFrame, name: str) -> FilePlace:
    """Return a location of the job that can be browsed. BadRequest if it has none with this name."""
    for place in places_of(job):
        if place.id == name and place.bucket:
            return place
    raise BadRequest(f'The job has no files named "{name[:80]}".')


def _inputs(job: JobFrame) -> Iterator[FilePlace]:
    for channel in job.description.get("InputDataConfig", ()):
        name, source = channel["ChannelName"], channel["DataSource"]
        if "S3DataSource" in source:
            given = source["S3DataSource"]
            # The other types name a file with a list.
            yield _place(f"input:{name}", "Inputs", name, given["S3Uri"], is_file=given["S3DataType"] != "S3Prefix")
            continue
        system = source.get("FileSystemDataSource", {})
        where = f"{system.get('FileSystemId', '')}{system.get('DirectoryPath', '')}"
        yield FilePlace(f"input:{name}", "Inputs", name, where, note="Files of a file system are not shown here.")


def _code(job: JobFrame) -> Iterator[FilePlace]:
    given = job.description.get("HyperParameters", {}).get("sagemaker_submit_directory", "")
    try:
        uri = json.loads(given)
    except (ValueError, RecursionError):
        uri = given
    # Without a network, the code comes through a channel, which is among the inputs.
    if isinstance(uri, str) and uri.startswith("s3://"):
        yield _place("code", "Inputs", "Code", uri, is_file=True)


def _results(job: JobFrame) -> Iterator[FilePlace]:
    found = {artifact["Kind"]: artifact for artifact in job.details.get("Artifacts", ())}
    for kind, title in _RESULT_TITLES.items():
        if kind in found:
            uri = found[kind]["S3Uri"]
            yield _place(kind, "Results", title, uri, is_file=not uri.endswith("/"))
        elif job.is_running:
            yield FilePlace(kind, "Results", title, "", note="The job uploads it when its program has ended.")
        elif kind == "model":
            yield FilePlace(kind, "Results", title, "", note="The job left no files in /opt/ml/model.")


def _saved_while_running(job: JobFrame) -> Iterator[FilePlace]:
    description, name, group = job.description, job.name, "Saved while it runs"
    output = description["OutputDataConfig"]["S3OutputPath"]
    if uri := description.get("CheckpointConfig", {}).get("S3Uri"):
        yield _place("checkpoints", group, "Checkpoints", uri)
    if hook := description.get("DebugHookConfig"):
        yield _place("tensors", group, "Tensors", _below(hook["S3OutputPath"], name, "debug-output"))
    if board := description.get("TensorBoardOutputConfig"):
        yield _place("tensorboard", group, "TensorBoard", _below(board["S3OutputPath"], name, "tensorboard-output"))
    if (profiler := description.get("ProfilerConfig")) and not profiler.get("DisableProfiler"):
        base = profiler.get("S3OutputPath") or output
        yield _place("profiles", group, "Profiles", _below(base, name, "profiler-output"))
    if description.get("ProfilerRuleConfigurations"):
        yield _place("reports", group, "Reports of rules", _below(output, name, "rule-output"))


def _below(output: str, job_name: str, folder: str) -> str:
    return f"{output.rstrip('/')}/{job_name}/{folder}/"


def _place(id: str, group: str, title: str, uri: str, *, is_file: bool = False) -> FilePlace:  # noqa: A002
    try:
        where = parse_s3_uri(uri, account="")
    except InvalidRequest as error:
        return FilePlace(id, group, title, uri, note=str(error))
    return FilePlace(id, group, title, uri, bucket=where.bucket.name, key=where.key, is_file=is_file)
