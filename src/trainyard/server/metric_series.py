"""Metrics in the records, and the files of their points.

A metric is a namespace, a name and a set of dimensions. Its points are in a folder of its own, one file per unit. The
points of a job's metrics stay in the folders of the job's instances; the metric's record names those folders relative
to the folder of all metrics, and the unit of all points there.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from urllib.parse import quote, unquote

from trainyard.formats.metrics import PointsFile, series_file
from trainyard.foundation.errors import AlreadyExists, NotFound
from trainyard.server.records.contract import Change, Draft, Records, Resource, ResourceKey

KIND = "metric"
NO_UNIT = "None"

_SUFFIX = ".points"


@dataclass(frozen=True, slots=True)
class MetricId:
    """What identifies a metric in an account. Dimensions are sorted pairs of name and value."""

    namespace: str
    name: str
    dimensions: tuple[tuple[str, str], ...] = ()

    @property
    def record_name(self) -> str:
        """A unique name with a prefix that all metrics of the namespace, and of the same name in it, share."""
        digest = hashlib.sha256(json.dumps(self.dimensions).encode()).hexdigest()[:32]
        return f"{record_prefix(self.namespace, self.name)}{digest}"


def record_prefix(namespace: str, name: str = "") -> str:
    """The prefix of the record names of a namespace's metrics, or of those metrics that have this name."""
    parts = [namespace, name] if name else [namespace]
    return "".join(f"{quote(part, safe='', errors='surrogatepass')}/" for part in parts)


def metric_of(resource: Resource) -> MetricId:
    body = resource.body
    return MetricId(body["namespace"], body["name"], tuple((name, value) for name, value in body["dimensions"]))


def metric_draft(metric: MetricId, account: str, region: str) -> Draft:
    body = {"namespace": metric.namespace, "name": metric.name, "dimensions": metric.dimensions}
    return Draft(ResourceKey(account, KIND, metric.record_name), region, body)


def ensure_metric(records: Records, draft: Draft, *, now: datetime) -> Resource:
    """Return the record of a metric; create it if it does not exist."""
    try:
        return records.load(draft.key)
    except NotFound:
        pass
    try:
        return records.create(draft, now=now)
    except AlreadyExists:
        # Another call created it meanwhile.
        return records.load(draft.key)


def open_foreign_metric(
    records: Records, draft: Draft, *, folders: Sequence[str], now: datetime, unit: str = NO_UNIT
) -> None:
    """Show the points that other programs write to `folders` as a metric. The given folders replace earlier ones."""
    body = {**draft.body, "folders": list(folders)} | ({} if unit == NO_UNIT else {"unit": unit})
    try:
        records.create(replace(draft, body=body), now=now)
    except AlreadyExists:
        known = records.load(draft.key)
        if known.body.get("folders") != body["folders"]:
            records.apply(known, Change(body=body), now=now)


def points_file(metrics: Path, resource: Resource, unit: str) -> PointsFile:
    return PointsFile(_folder(metrics, resource) / f"{quote(unit, safe='')}{_SUFFIX}")


def points_files(metrics: Path, resource: Resource) -> dict[str, Sequence[PointsFile]]:
    """Return the files of a metric's points by unit: the metric's own, and those in the folders of a job."""
    own = sorted(_folder(metrics, resource).glob(f"*{_SUFFIX}"))
    found: dict[str, Sequence[PointsFile]] = {
        unquote(file.name.removesuffix(_SUFFIX)): [PointsFile(file)] for file in own
    }
    name: str = resource.body["name"]
    folders = [Path(os.path.normpath(metrics / folder)) for folder in resource.body.get("folders", ())]
    foreign = [PointsFile(series_file(folder, name)) for folder in folders]
    unit = resource.body.get("unit", NO_UNIT)
    return {**found, unit: [*found.get(unit, ()), *foreign]} if foreign else found


def last_micros(metrics: Path, resource: Resource) -> int | None:
    """Return the time of the latest point of any unit."""
    times = [file.last_micros() for files in points_files(metrics, resource).values() for file in files]
    return max((time for time in times if time is not None), default=None)


def _folder(metrics: Path, resource: Resource) -> Path:
    return metrics / resource.id
