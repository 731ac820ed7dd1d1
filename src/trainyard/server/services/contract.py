"""The contract of a service module.

A service module has `OPERATIONS`, which maps the AWS name of each operation to its function, and `FAULTS`, which maps
our errors to the service's error codes and messages. An operation takes the call and the parsed, validated request
shape, and returns the response shape. A plain function runs in a worker thread and may block; a coroutine function
runs on the event loop and must not block.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from trainyard.engines.catalog import Catalog
from trainyard.engines.container.store import ImageStore
from trainyard.engines.engine_set import EngineSet
from trainyard.engines.file_systems import FileSystems
from trainyard.engines.images import Images
from trainyard.engines.machine_load import LoadMeter
from trainyard.engines.selection import EngineRules
from trainyard.formats.logs.lines import LineIndexes
from trainyard.foundation.disk import require_space, reserve_of
from trainyard.foundation.settings import SettingValue
from trainyard.objects.contract import ObjectStore
from trainyard.server.control.profiling.conclusions import ProfileConclusions
from trainyard.server.control.tuning.advisor import ProcessAnalyst
from trainyard.server.control.tuning.trial_curves import TrialCurves
from trainyard.server.experiments.metric_inbox import MetricInbox
from trainyard.server.gateways import Gateways
from trainyard.server.identity import Caller, Identities
from trainyard.server.jobs.summaries import JobSummaries
from trainyard.server.jobs.trial_tables import TrialTables
from trainyard.server.records.contract import Records
from trainyard.server.streaming import Followers
from trainyard.server.tensors.reader import TensorReader
from trainyard.server.traces.reader import TraceReader
from trainyard.wire.http import HttpRequest

Shape = dict[str, Any]
PlainOperation = Callable[["Call", Shape], Shape]
Operation = PlainOperation | Callable[["Call", Shape], Awaitable[Shape]]
Operations = Mapping[str, Operation]


@dataclass(frozen=True, slots=True)
class Compute:
    """Where jobs run: engines, instance types, images. `wake` tells the controller that a job changed, by its id."""

    # Holds the folders of the attempts.
    jobs: Path
    engines: EngineSet
    engine_rules: EngineRules
    catalog: Catalog
    images: Images
    file_systems: FileSystems
    wake: Callable[[str], None]
    load: LoadMeter = field(default_factory=LoadMeter)
    # The cache of environments that jobs installed, one folder per account; None if there is none.
    environments: Path | None = None
    # The folder of the warm workers; None if there are none.
    warm: Path | None = None
    # Identifies this yard among several that share a database; empty if it is the only one.
    site: str = ""
    # Send the mail and webhooks of rule actions.
    gateways: Gateways = field(default_factory=Gateways)
    # The container images of this machine; None if no engine runs containers.
    containers: ImageStore | None = None
    # Why other machines cannot fetch this yard's objects, as a clause; empty if they can.
    out_of_reach: str = ""
    # Refuse jobs whose instance type or image is only partly available.
    strict: bool = False
    # Whether an administrator states that the disks of jobs are encrypted.
    has_encrypted_disks: bool = False


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What administrators may ask a server about itself: its log, None if that is no file, and its settings."""

    log_file: Path | None = None
    settings_file: Path | None = None
    settings: Sequence[SettingValue] = ()


@dataclass(frozen=True, slots=True)
class Yard:
    """The parts of the yard that operations work on."""

    records: Records
    objects: ObjectStore
    identities: Identities
    # Holds the log segments that PutLogEvents writes.
    logs: Path
    # Holds the points that PutMetricData writes.
    metrics: Path
    compute: Compute
    followers: Followers
    # Disk space kept free for the records; 0 means 5 % of the disk, at most 1 GiB.
    reserve_bytes: int = 0
    # What the profiles of jobs mean; None if nobody asks.
    conclusions: ProfileConclusions | None = None
    # Of the jobs that were listed lately.
    summaries: JobSummaries = field(default_factory=JobSummaries, compare=False)
    # Reads the tensors of jobs; None if nobody asks.
    tensors: TensorReader | None = None
    # Reads the traces of jobs; None if nobody asks.
    traces: TraceReader | None = None
    # Where the lines of logs begin.
    line_indexes: LineIndexes = field(default_factory=LineIndexes, compare=False)
    own: ServerFacts = ServerFacts()
    # Of the tuning jobs that were viewed lately.
    trial_tables: TrialTables = field(default_factory=TrialTables, compare=False)
    trial_curves: TrialCurves = field(default_factory=TrialCurves, compare=False)
    # Takes the metrics of trial components.
    metric_inbox: MetricInbox = field(default_factory=MetricInbox, compare=False)
    # Answers questions about searches; None if nobody asks.
    analyst: ProcessAnalyst | None = None

    def require_space(self, folder: Path, size_bytes: int) -> None:
        """Raise Unavailable if storing this much in a folder would use the reserved disk space."""
        disk = folder if folder.exists() else folder.parent
        require_space(reserve_of(disk, wanted_bytes=self.reserve_bytes), size_bytes)


@dataclass(frozen=True, slots=True)
class Call:
    """One authenticated request."""

    yard: Yard
    caller: Caller
    region: str
    request_id: str
    now: datetime
    http: HttpRequest

    @property
    def account(self) -> str:
        return self.caller.account
