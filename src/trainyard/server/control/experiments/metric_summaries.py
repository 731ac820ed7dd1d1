"""Summarises the metrics that clients put into trial components."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from trainyard.foundation.clock import Clock
from trainyard.server.control.contract import OneStepKind
from trainyard.server.experiments.metric_inbox import MetricInbox, due_kind
from trainyard.server.records.contract import Claim, Records

POLL_INTERVAL = timedelta(seconds=0.5)
# So that one component with many metrics does not delay all others.
MAX_CONCURRENT = 4

_LEASE = timedelta(seconds=30)


@dataclass(frozen=True)
class MetricSummaryKind(OneStepKind):
    """The components with metrics that their summaries lack. Each step summarises one."""

    records: Records
    inbox: MetricInbox
    # Holds the files of metrics.
    folder: Path
    clock: Clock
    worker: str
    site: str = ""

    @property
    def record_kind(self) -> str:
        return due_kind(self.site)

    @property
    def lease(self) -> timedelta:
        return _LEASE

    @property
    def poll_interval(self) -> timedelta:
        return POLL_INTERVAL

    @property
    def max_concurrent(self) -> int | None:
        return MAX_CONCURRENT

    def claim_due(self) -> Iterator[Claim]:
        while claim := self.records.claim_next(self.record_kind, worker=self.worker, lease=_LEASE, now=self.clock()):
            yield claim

    def step(self, job: Claim, _changed: Collection[str], /) -> None:
        self.inbox.summarize(self.records, self.folder, job, site=self.site, now=self.clock())
