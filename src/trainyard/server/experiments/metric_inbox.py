"""Takes the metrics of trial components: each goes to a file, and a summary of all follows within a second.

The files are the truth, and the records have only summaries. A component with metrics that its summary lacks has a
child record that is due. It is written before the first of them is acknowledged, so a yard that was killed finds them.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum, auto
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from trainyard.formats.run_metrics import RunMetrics, RunPoint
from trainyard.foundation.clock import from_micros
from trainyard.foundation.errors import AlreadyExists, NotFound
from trainyard.foundation.experiments import MetricStatistics, TrialComponent, merge_statistics, summarize
from trainyard.server.experiments.storage import component_change, component_of
from trainyard.server.records.contract import Change, Claim, Draft, Records, Resource, ResourceId, ResourceKey

MAX_METRICS = 1000
# The summary of a component that is written all the time follows so often.
SUMMARY_INTERVAL = timedelta(seconds=1)

_KIND = "component-metrics"
_MAX_OPEN = 256
# A call that has opened one has long put its points into it after this time.
_OPEN_S = 60.0
# A component is looked up again after this time, because another yard may have deleted it.
_KNOWN_S = 1.0


def due_kind(site: str) -> str:
    """Return the kind of the records of components with new metrics. Each yard has its own files."""
    return f"{_KIND}@{site}" if site else _KIND


class _State(Enum):
    """What the records know of the new metrics of a component."""

    SUMMARIZED = auto()
    DUE = auto()
    # They are being read; what comes now may be missed.
    READING = auto()


@dataclass(slots=True)
class _Inbox:
    """The metrics of one component that this process takes."""

    files: RunMetrics
    lock: threading.Lock = field(default_factory=threading.Lock)
    state: _State = _State.SUMMARIZED
    has_more: bool = False
    names: set[str] = field(default_factory=set)
    used_at: float = 0.0


class MetricInbox:
    """The metrics that clients put into the components of a yard. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inboxes: OrderedDict[ResourceId, _Inbox] = OrderedDict()
        self._known: dict[ResourceKey, tuple[ResourceId, float]] = {}

    def find(self, records: Records, key: ResourceKey) -> ResourceId:
        """Return the id of a component, which many calls in a row ask for; NotFound if there is none."""
        known = self._known.get(key)
        if known is None or known[1] < time.monotonic():
            known = (records.load(key).id, time.monotonic() + _KNOWN_S)
            if len(self._known) > _MAX_OPEN:
                self._known.clear()
            self._known[key] = known
        return known[0]

    def forget(self, key: ResourceKey) -> None:
        """Forget a component that was deleted."""
        self._known.pop(key, None)

    def put(
        self,
        records: Records,
        folder: Path,
        component: ResourceId,
        points: Sequence[RunPoint],
        *,
        account: str,
        site: str,
        now: datetime,
    ) -> Sequence[bool]:
        """Append points to the metrics of a component; return for each whether it was, or is of one metric too many."""
        inbox = self._open(folder / component, component)
        with inbox.lock:
            if inbox.state is _State.SUMMARIZED:
                if not inbox.names:
                    inbox.names.update(inbox.files.names())
                _make_due(records, ResourceKey(account, due_kind(site), component), now=now)
                inbox.state = _State.DUE
            has_room = [_has_room(inbox.names, point.name) for point in points]
            inbox.files.append([point for point, fits in zip(points, has_room, strict=True) if fits])
            inbox.has_more = True
        return has_room

    def summarize(self, records: Records, folder: Path, claim: Claim, *, site: str, now: datetime) -> None:
        """Bring the summary of a component up to date, and settle the claim on its record of new metrics."""
        component = ResourceId(claim.resource.key.name)
        inbox = self._open(folder / component, component)
        with inbox.lock:
            inbox.state, inbox.has_more = _State.READING, False
        inbox.files.sync()
        while _add_batch(records, inbox.files, component, site=site, now=now):
            continue
        with inbox.lock:
            if inbox.has_more:
                change = Change(due_at=now + SUMMARY_INTERVAL, is_quiet=True)
                inbox.state = _State.DUE
            else:
                change = Change(is_quiet=True, is_settling=True)
                inbox.state = _State.SUMMARIZED
            records.apply_claimed(claim, change, now=now, release=True)

    def catch_up(self, records: Records, folder: Path, component: ResourceId, *, site: str, now: datetime) -> None:
        """Bring the summary of a component up to date at once. Its record of new metrics is settled later."""
        if not (folder / component).is_dir():
            return
        inbox = self._open(folder / component, component)
        # Whoever adds a batch also moves the offset, so none is added twice.
        while _add_batch(records, inbox.files, component, site=site, now=now):
            continue

    def _open(self, folder: Path, component: ResourceId) -> _Inbox:
        with self._lock:
            inbox = self._inboxes.pop(component, None) or _Inbox(RunMetrics(folder))
            self._inboxes[component] = inbox
            inbox.used_at = time.monotonic()
            if len(self._inboxes) > _MAX_OPEN:
                self._close_unused()
        return inbox

    def _close_unused(self) -> None:
        """Close some that nobody uses: a component that is open twice would lose metrics."""
        limit = time.monotonic() - _OPEN_S
        oldest = list(self._inboxes.items())[:_MAX_OPEN]
        for component, inbox in oldest:
            if inbox.used_at < limit and inbox.state is _State.SUMMARIZED:
                del self._inboxes[component]


def _has_room(names: set[str], name: str) -> bool:
    if name not in names and len(names) >= MAX_METRICS:
        return False
    names.add(name)
    return True


def _make_due(records: Records, key: ResourceKey, *, now: datetime) -> None:
    """Write that a component has metrics that its summary lacks. NotFound if the component was deleted."""
    while True:
        try:
            known = records.load(key)
        except NotFound:
            try:
                records.create(Draft(key, "", {}, parent=ResourceId(key.name), due_at=now), now=now)
                return
            except AlreadyExists:
                continue
        if records.apply(known, Change(due_at=now, is_quiet=True), now=now) is not None:
            return


def _add_batch(records: Records, files: RunMetrics, component: ResourceId, *, site: str, now: datetime) -> bool:
    """Add some metrics to the summary of a component; return whether there were any."""
    while True:
        try:
            resource = records.load_by_id(component)
        except NotFound:
            return False
        before = component_of(resource)
        offset = before.summarized.get(site, 0)
        batch = files.read(offset)
        if batch.end == offset:
            return False
        after = replace(
            before,
            metrics=merge_points(before.metrics, batch.points),
            summarized={**before.summarized, site: batch.end},
        )
        if _apply(records, resource, before, after, now=now):
            return True


def _apply(
    records: Records, resource: Resource, before: TrialComponent, after: TrialComponent, *, now: datetime
) -> bool:
    # As on AWS, only a change by a user or a new status counts as a modification.
    return records.apply(resource, component_change(before, after, is_quiet=True), now=now) is not None


def merge_points(known: Mapping[str, MetricStatistics], points: Iterable[RunPoint]) -> Mapping[str, MetricStatistics]:
    """Return the statistics of the metrics with these points added."""
    merged = dict(known)
    for name, values in groupby(sorted(points, key=attrgetter("name")), key=attrgetter("name")):
        added = summarize((point.value, from_micros(point.micros)) for point in values)
        assert added is not None, "a group has at least one point"
        merged[name] = merge_statistics(merged[name], added) if name in merged else added
    return merged
