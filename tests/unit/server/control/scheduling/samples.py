"""Nodes, instance types and queued jobs for the tests of scheduling."""

from datetime import datetime, timedelta
from pathlib import Path

from tests.unit.foundation.sample_jobs import NOON
from trainyard.engines.catalog import Catalog
from trainyard.engines.contract import Capacity, Node
from trainyard.engines.placement import Demand
from trainyard.foundation.jobs.attempts import Share
from trainyard.server.control.scheduling.contract import Allocation, ResourceRequest
from trainyard.server.records.contract import Priority, QueuedResource, ResourceId

GIB = 1024**3
CATALOG = Catalog.read(Path("no such file"))
SMALL, HALF, LARGE = CATALOG["ml.m5.large"], CATALOG["ml.m5.2xlarge"], CATALOG["ml.m5.4xlarge"]  # 2, 8 and 16 cores


def nodes(*names: str, spot: tuple[str, ...] = ()) -> Capacity:
    """Nodes of 16 cores each."""
    return Capacity(tuple(Node(name, 16, 16.0, 64 * GIB, reserves=True, is_spot=name in spot) for name in names))


def queued(
    name: str, *, account: str = "anna", after_s: float = 0, priority: Priority = Priority.ON_DEMAND
) -> QueuedResource:
    return QueuedResource(ResourceId(name), account, "/local", priority, NOON + timedelta(seconds=after_s))


def asking(name: str, *, count: int = 1, instance_type: str = "ml.m5.large") -> ResourceRequest:
    return ResourceRequest(ResourceId(name), "training-job", "", Demand((CATALOG[instance_type],) * count))


def allocated(*shares: Share, account: str = "anna", since: datetime = NOON) -> Allocation:
    return Allocation(shares, False, "", account, since)
