"""What a service is to the yard: a table of operations over one call.

A service module has `OPERATIONS`, a mapping from the AWS name of an operation to its function, and `FAULTS`, how it
words our errors. An operation takes the call and the parsed, validated request shape, and returns the response shape;
a plain function runs in a worker thread and may block, a coroutine function runs on the loop and must not.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from trainyard.engines.catalog import Catalog
from trainyard.engines.choosing import EngineRules
from trainyard.engines.container.store import ImageStore
from trainyard.engines.file_systems import FileSystems
from trainyard.engines.images import Images
from trainyard.engines.load import MachineLoad
from trainyard.engines.several import Engines
from trainyard.foundation.disk import require_room, reserve_of
from trainyard.objects.contract import ObjectStore
from trainyard.server.following import Followers
from trainyard.server.gateways import Gateways
from trainyard.server.identity import Caller, Identities
from trainyard.server.records.contract import Records
from trainyard.wire.http import HttpRequest

Shape = dict[str, Any]
PlainOperation = Callable[["Call", Shape], Shape]
Operation = PlainOperation | Callable[["Call", Shape], Awaitable[Shape]]
Operations = Mapping[str, Operation]


@dataclass(frozen=True, slots=True)
class Workshop:
    """Where jobs run, and what the yard knows of it. `wake` tells the controller that a job of that id has changed."""

    jobs: Path  # the folders of the attempts
    engines: Engines
    engine_rules: EngineRules
    catalog: Catalog
    images: Images
    file_systems: FileSystems
    wake: Callable[[str], None]
    load: MachineLoad = field(default_factory=MachineLoad)
    warm: Path | None = None  # the folder of the warm workers; None where there are none
    site: str = ""  # of this yard among several on one database; empty where it is the only one
    gateways: Gateways = field(default_factory=Gateways)  # of the actions of rules
    containers: ImageStore | None = None  # the container images of this machine; None where no engine runs them
    out_of_reach: str = ""  # why no other machine can fetch the objects of this yard, as a clause; empty where it can
    strict: bool = False  # refuses jobs whose instance type or image can only be had in part


@dataclass(frozen=True, slots=True)
class Yard:
    """The parts of the yard that operations work on."""

    records: Records
    objects: ObjectStore
    identities: Identities
    logs: Path  # folder of the log segments that PutLogEvents wrote
    metrics: Path  # folder of the points that PutMetricData wrote
    workshop: Workshop
    followers: Followers
    reserve_bytes: int = 0  # of the disk that stay free for the records; 0 is a twentieth of it, and at most 1 GiB

    def require_room(self, folder: Path, size_bytes: int) -> None:
        """Unavailable when what a user sends to be kept in one of the yard's folders would use that."""
        disk = folder if folder.exists() else folder.parent
        require_room(reserve_of(disk, wanted_bytes=self.reserve_bytes), size_bytes)


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
