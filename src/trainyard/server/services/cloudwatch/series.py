"""Metrics as the records know them, and where their points lie.

A metric is a namespace, a name and a set of dimensions. Its points lie in a folder of its own, in one file for each
unit they were put with.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from trainyard.formats.metrics import PointsFile
from trainyard.foundation.errors import AlreadyExists, NotFound
from trainyard.server.records.contract import Draft, Resource, ResourceKey
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
    key = ResourceKey(call.account, KIND, metric.record_name)
    body = {"namespace": metric.namespace, "name": metric.name, "dimensions": metric.dimensions}
    try:
        return call.yard.records.load(key)
    except NotFound:
        pass
    try:
        return call.yard.records.create(Draft(key, call.region, body), now=call.now)
    except AlreadyExists:  # by another call just now
        return call.yard.records.load(key)


def points_by_unit(call: Call, metric: Metric, *, account: str | None = None) -> dict[str, PointsFile]:
    """The points of a metric that the caller may see, by their unit; none when there is no such metric."""
    try:
        resource = _visible(call, metric, account)
    except NotFound:
        return {}
    files = sorted(_folder(call.yard.metrics, resource).glob(f"*{_SUFFIX}"))
    return {unquote(file.name.removesuffix(_SUFFIX)): PointsFile(file) for file in files}


def points_file(metrics: Path, resource: Resource, unit: str) -> PointsFile:
    return PointsFile(_folder(metrics, resource) / f"{quote(unit, safe='')}{_SUFFIX}")


def last_micros(metrics: Path, resource: Resource) -> int | None:
    """The time of the latest point of any unit."""
    times = [PointsFile(file).last_micros() for file in _folder(metrics, resource).glob(f"*{_SUFFIX}")]
    return max((time for time in times if time is not None), default=None)


def _visible(call: Call, metric: Metric, account: str | None) -> Resource:
    if account is None:
        return load_visible(call, KIND, metric.record_name)
    if account != call.account and not call.caller.is_admin:
        raise NotFound(KIND, metric.name)
    return call.yard.records.load(ResourceKey(account, KIND, metric.record_name))


def _folder(metrics: Path, resource: Resource) -> Path:
    return metrics / resource.id
