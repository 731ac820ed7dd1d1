"""Metrics as the records know them, and where their points lie.

A metric is a namespace, a name and a set of dimensions. Its points lie in a folder of its own, in one file for each
unit they were put with. Those of a job lie in the folders of its instances, which the metric's record names as seen
from the folder of all metrics.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from urllib.parse import quote, unquote

from trainyard.formats.metrics import PointsFile, series_file
from trainyard.foundation.errors import AlreadyExists, NotFound
from trainyard.server.records.contract import Change, Draft, Records, Resource, ResourceKey
from trainyard.server.services.contract import Call, Shape
from trainyard.server.services.visible import load_visible

KIND = "metric"
NO_UNIT = "None"

_SUFFIX = ".points"


@dataclass(frozen=True, slots=True)
class Metric:
    namespace: str
    name: str
    dimensions: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, namespace: str, name: str, dimensions: Iterable[Mapping[str, str]]) -> "Metric":
        return cls(namespace, name, tuple(sorted((each["Name"], each["Value"]) for each in dimensions)))

    @property
    def record_name(self) -> str:
        """Unique, and such that the metrics of a namespace, and those of one name in it, share a prefix."""
        digest = hashlib.sha256(json.dumps(self.dimensions).encode()).hexdigest()[:32]
        return f"{prefix_of(self.namespace, self.name)}{digest}"

    @property
    def shape(self) -> Shape:
        dimensions = [{"Name": name, "Value": value} for name, value in self.dimensions]
        return {"Namespace": self.namespace, "MetricName": self.name, "Dimensions": dimensions}


def prefix_of(namespace: str, name: str = "") -> str:
    """What the record names of a namespace's metrics begin with, or those of one name in it."""
    parts = [namespace, name] if name else [namespace]
    return "".join(f"{quote(part, safe='', errors='surrogatepass')}/" for part in parts)


def metric_of(resource: Resource) -> Metric:
    body = resource.body
    return Metric(body["namespace"], body["name"], tuple((name, value) for name, value in body["dimensions"]))


def remembered(call: Call, metric: Metric) -> Resource:
    """The caller's own record of a metric, made when there is none."""
    draft = metric_draft(metric, call.account, call.region)
    try:
        return call.yard.records.load(draft.key)
    except NotFound:
        pass
    try:
        return call.yard.records.create(draft, now=call.now)
    except AlreadyExists:  # by another call just now
        return call.yard.records.load(draft.key)


def metric_draft(metric: Metric, account: str, region: str) -> Draft:
    body = {"namespace": metric.namespace, "name": metric.name, "dimensions": metric.dimensions}
    return Draft(ResourceKey(account, KIND, metric.record_name), region, body)


def open_foreign_metric(records: Records, draft: Draft, *, folders: Sequence[str], now: datetime) -> None:
    """Show the points that other programs write to `folders` as a metric, from now on in these and in no others."""
    body = {**draft.body, "folders": list(folders)}
    try:
        records.create(replace(draft, body=body), now=now)
    except AlreadyExists:
        known = records.load(draft.key)
        if known.body.get("folders") != body["folders"]:
            records.apply(known, Change(body=body), now=now)


def points_by_unit(call: Call, metric: Metric, *, account: str | None = None) -> dict[str, Sequence[PointsFile]]:
    """The points of a metric that the caller may see, by their unit; none when there is no such metric."""
    try:
        resource = _visible(call, metric, account)
    except NotFound:
        return {}
    return _files(call.yard.metrics, resource)


def points_file(metrics: Path, resource: Resource, unit: str) -> PointsFile:
    return PointsFile(_folder(metrics, resource) / f"{quote(unit, safe='')}{_SUFFIX}")


def last_micros(metrics: Path, resource: Resource) -> int | None:
    """The time of the latest point of any unit."""
    times = [file.last_micros() for files in _files(metrics, resource).values() for file in files]
    return max((time for time in times if time is not None), default=None)


def _files(metrics: Path, resource: Resource) -> dict[str, Sequence[PointsFile]]:
    own = sorted(_folder(metrics, resource).glob(f"*{_SUFFIX}"))
    found: dict[str, Sequence[PointsFile]] = {
        unquote(file.name.removesuffix(_SUFFIX)): [PointsFile(file)] for file in own
    }
    name: str = resource.body["name"]
    folders = [Path(os.path.normpath(metrics / folder)) for folder in resource.body.get("folders", ())]
    foreign = [PointsFile(series_file(folder, name)) for folder in folders]
    return {**found, NO_UNIT: [*found.get(NO_UNIT, ()), *foreign]} if foreign else found


def _visible(call: Call, metric: Metric, account: str | None) -> Resource:
    if account is None:
        return load_visible(call, KIND, metric.record_name)
    if account != call.account and not call.caller.is_admin:
        raise NotFound(KIND, metric.name)
    return call.yard.records.load(ResourceKey(account, KIND, metric.record_name))


def _folder(metrics: Path, resource: Resource) -> Path:
    return metrics / resource.id
