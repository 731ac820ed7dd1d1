"""The lineage of a model or job as a tree: what it came from, and what that came from in turn."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from trainyard._sdk.connection import Api
from trainyard.foundation.errors import NotFound
from trainyard.wire.client import CallFailed

JOB_SUFFIX = "-aws-training-job"
# Packages that are named in a line of the tree; the record has all.
_SHOWN_PACKAGES = 4
_SHOWN_METRICS = 4
_DIGEST_LENGTH = 12
_RECORDED_WITHIN_S, _POLL_S = 30.0, 0.2

T = TypeVar("T")

Shape = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LineageEntry:
    """An entity of the lineage, as people see it: what it is, its name, and what is known of it."""

    arn: str
    kind: str
    title: str
    facts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LineageTree:
    """What an entity came from. `sources` has the ARNs of what contributed to each, in the order of their kinds."""

    root: str
    entries: Mapping[str, LineageEntry]
    sources: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def walk(self) -> Iterator[tuple[int, LineageEntry, bool]]:
        """Yield each entry with its depth, from the root; the last value says whether it was shown before."""
        seen: set[str] = set()
        pending = [(0, self.root)]
        while pending:
            depth, arn = pending.pop()
            yield depth, self.entries[arn], arn in seen
            if arn not in seen:
                seen.add(arn)
                pending += [(depth + 1, each) for each in reversed(self.sources.get(arn, ()))]


def read_tree(api: Api, arn: str) -> LineageTree:
    """Return what the entity with an ARN came from."""
    found = _query(api, arn)
    entries = {vertex["Arn"]: _entry(api, vertex) for vertex in found["Vertices"]}
    sources: dict[str, list[str]] = {}
    for edge in found["Edges"]:
        if edge["SourceArn"] in entries and edge["DestinationArn"] in entries:
            sources.setdefault(edge["DestinationArn"], []).append(edge["SourceArn"])
    ordered = {end: sorted(arns, key=lambda each: _rank(entries[each])) for end, arns in sources.items()}
    return LineageTree(arn, entries, ordered)


def artifact_of(api: Api, uri: str) -> str:
    """Return the ARN of the newest artifact with a source. NotFound if there is none."""
    listed = api.call("sagemaker", "ListArtifacts", SourceUri=uri, MaxResults=1)["ArtifactSummaries"]
    if not listed:
        raise NotFound("lineage artifact", uri)
    arn: str = listed[0]["ArtifactArn"]
    return arn


def job_node(api: Api, name: str) -> str:
    """Return the ARN of an ended job in the lineage. NotFound if nothing is recorded of it."""
    return str(read_record(api, name)["NodeArn"])


def read_record(api: Api, name: str, *, checks_inputs: bool = False) -> dict[str, Any]:
    """Return what an ended job read, ran and wrote. NotFound if nothing is recorded of it."""
    try:
        return api.call("trainyard", "DescribeJobRecord", TrainingJobName=name, ChecksInputs=checks_inputs)
    except CallFailed as error:
        if error.code != "ResourceNotFound":
            raise
        raise NotFound("job record", name) from error


def await_recorded(lookup: Callable[[], T], *, since: datetime, now: datetime) -> T:
    """Return what a lookup finds, which may still be on its way to the lineage. NotFound if it does not come.

    The yard records a job or a model within a second or two of a change at `since`; an older one is not waited for.
    """
    deadline = time.monotonic() + max(0.0, _RECORDED_WITHIN_S - (now - since).total_seconds())
    while True:
        try:
            return lookup()
        except NotFound:
            if time.monotonic() > deadline:
                raise
        time.sleep(_POLL_S)


def _query(api: Api, arn: str) -> dict[str, Any]:
    asked: dict[str, Any] = {"StartArns": [arn], "Direction": "Ascendants", "IncludeEdges": True}
    vertices: dict[str, Any] = {}
    edges: dict[tuple[str, str], Any] = {}
    while True:
        page = api.call("sagemaker", "QueryLineage", **asked)
        vertices |= {each["Arn"]: each for each in page["Vertices"]}
        edges |= {(each["SourceArn"], each["DestinationArn"]): each for each in page["Edges"]}
        if not page.get("NextToken"):
            return {"Vertices": list(vertices.values()), "Edges": list(edges.values())}
        asked["NextToken"] = page["NextToken"]


def _entry(api: Api, vertex: Shape) -> LineageEntry:
    arn, lineage_type = vertex["Arn"], vertex["LineageType"]
    name = arn.rpartition("/")[2]
    if lineage_type == "Artifact":
        return _artifact_entry(api, api.call("sagemaker", "DescribeArtifact", ArtifactArn=arn))
    if lineage_type == "TrialComponent" and name.endswith(JOB_SUFFIX):
        return _job_entry(arn, read_record(api, name.removesuffix(JOB_SUFFIX)))
    return LineageEntry(arn, lineage_type, name)


def _artifact_entry(api: Api, shape: Shape) -> LineageEntry:
    uri, kind = shape["Source"]["SourceUri"], shape["ArtifactType"]
    if kind == "Environment":
        return LineageEntry(
            shape["ArtifactArn"], "Packages", f"{shape.get('Properties', {}).get('Packages', '?')} packages"
        )
    if ":model-package/" in uri:
        return _package_entry(api, shape["ArtifactArn"], uri)
    ids = [f"{each['SourceIdType']} {_short(each['Value'])}" for each in shape["Source"].get("SourceTypes", ())]
    origin = shape.get("MetadataProperties", {})
    commit = [f"commit {origin['CommitId']}"] if origin.get("CommitId") else []
    repository = [f"of {origin['Repository']}"] if origin.get("Repository") else []
    return LineageEntry(shape["ArtifactArn"], kind, uri, (*ids, *commit, *repository))


def _package_entry(api: Api, arn: str, package: str) -> LineageEntry:
    title = package.rpartition(":model-package/")[2]
    try:
        described = api.call("sagemaker", "DescribeModelPackage", ModelPackageName=package)
    except CallFailed:
        return LineageEntry(arn, "ModelPackage", title, ("deleted",))
    approval = described.get("ModelApprovalStatus")
    return LineageEntry(arn, "ModelPackage", title, (approval,) if approval else ())


def _job_entry(arn: str, record: Shape) -> LineageEntry:
    metrics = [f"{each['MetricName']}={each['Value']:g}" for each in record["Metrics"][:_SHOWN_METRICS]]
    named = [text for text in record["Packages"] if text.partition("==")[0] in _WELL_KNOWN][:_SHOWN_PACKAGES]
    return LineageEntry(arn, "TrainingJob", record["TrainingJobName"], (record["Status"], *metrics, *named))


_WELL_KNOWN = ("torch", "tensorflow", "xgboost", "scikit-learn", "jax", "transformers", "numpy")
_RANKS = ("ModelPackage", "Model", "TrainingJob", "DataSet", "Code", "Packages", "Image")


def _rank(entry: LineageEntry) -> tuple[int, str]:
    return (_RANKS.index(entry.kind) if entry.kind in _RANKS else len(_RANKS), entry.title)


def _short(value: str) -> str:
    algorithm, _, digest = value.rpartition(":")
    return f"{algorithm}:{digest[:_DIGEST_LENGTH]}" if algorithm else digest[:_DIGEST_LENGTH]
