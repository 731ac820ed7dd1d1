"""The folders of an instance that are kept in S3 while it runs: checkpoints, TensorBoard's files, and tensors.

Checkpoints are restored before the program starts, and a job whose last ones cannot be stored has failed: the next one
would go on from an older state than the program believes it left. What is for TensorBoard or the debugger only goes up.
"""

from collections.abc import Callable
from contextlib import closing

from trainyard.foundation.confined import ConfinedFolder
from trainyard.foundation.errors import NotFound
from trainyard.foundation.locations import Location, parse_s3_uri
from trainyard.instance.agent.failure import CannotRun, FailureKind
from trainyard.instance.agent.layout import Owner
from trainyard.instance.agent.reports import Reports
from trainyard.instance.agent.store import open_store
from trainyard.instance.agent.syncing.folder import FolderSync
from trainyard.instance.agent.syncing.sending import Place, Writer, catch_lease_signals
from trainyard.link.contract import InstanceSpec, SyncSpec
from trainyard.link.folders import InstanceFolder
from trainyard.link.lease import may_write
from trainyard.link.places import place_of
from trainyard.objects.contract import ObjectAccess

RULE_OUTPUT = "/opt/ml/output/rule-output"  # what rules write, kept beside the tensors as on AWS


class SyncedFolders:
    """Those of one instance. `restore`, `begin`, `finish` and `close` are called in this order, by one thread."""

    def __init__(self, folder: InstanceFolder, spec: InstanceSpec, *, reports: Reports, owner: Owner) -> None:
        self._folder = folder
        self._spec = spec
        self._reports = reports
        self._owner = owner
        self._checkpoints: FolderSync | None = None
        self._others: list[FolderSync] = []

    def __bool__(self) -> bool:
        """Whether there are any."""
        spec = self._spec
        return any(each is not None for each in (spec.checkpoint, spec.tensorboard, spec.debugger))

    def restore(self, check: Callable[[], None]) -> None:
        """Make the folders, and bring the checkpoints. CannotRun when their bucket is gone."""
        if self._spec.checkpoint is not None:
            self._checkpoints = self._sync_of(self._spec.checkpoint)
            try:
                with closing(open_store(self._spec.objects, check=check)) as store:
                    self._checkpoints.restore(store, owner=self._owner, check=check)
            except NotFound as error:
                raise CannotRun(
                    f"The checkpoints cannot be restored: {error.message}", FailureKind.USER_ERROR
                ) from error
        if self._spec.tensorboard is not None:
            self._others.append(self._sync_of(self._spec.tensorboard))
        if self._spec.debugger is not None:
            self._others.append(self._sync_of(self._spec.debugger.tensors, is_restless=True))
            if self._spec.debugger.rules:
                uri = f"{self._spec.debugger.tensors.uri.rstrip('/').rpartition('/')[0]}/rule-output"
                self._others.append(self._sync_of(SyncSpec(uri, RULE_OUTPUT)))

    def begin(self) -> None:
        """Keep S3 up to date from now on."""
        if self._all:
            catch_lease_signals()
        for sync in self._all:
            sync.begin()

    def finish(self, check: Callable[[], None]) -> CannotRun | None:
        """Bring S3 up to date when the program has ended, however it did; why the checkpoints could not be stored."""
        for sync in self._others:
            try:
                sync.finish(check)
            except CannotRun as error:
                self._reports.note(error.message)
        try:
            if self._checkpoints is not None:
                self._checkpoints.finish(check)
        except CannotRun as error:
            return error
        return None

    def close(self) -> None:
        """Give up what is under way, with nothing torn."""
        for sync in self._all:
            sync.close()

    @property
    def _all(self) -> list[FolderSync]:
        return [*([self._checkpoints] if self._checkpoints else []), *self._others]

    def _sync_of(self, spec: SyncSpec, *, is_restless: bool = False) -> FolderSync:
        place = Place(*place_of(self._folder, self._spec, spec.path))
        self._make(place)
        return FolderSync(
            place,
            _location(spec.uri, self._spec.account),
            seen_as=spec.path,
            writer=Writer(self._spec.job_name, self._spec.instance, len(self._spec.hosts) == 1),
            open_store=self._store,
            note=self._reports.note,
            is_restless=is_restless,
            may_write=lambda: may_write(self._folder, self._spec),
        )

    def _make(self, place: Place) -> None:
        with ConfinedFolder.open(place.root) as root:
            root.make_folder(place.path, owner=self._owner.uid).close()

    def _store(self) -> ObjectAccess:
        return open_store(self._spec.objects)


def _location(uri: str, account: str) -> Location:
    """What all keys of a folder begin with: the location and a slash, or nothing in the whole of a bucket."""
    where = parse_s3_uri(uri, account)
    key = where.key.rstrip("/")
    return Location(where.bucket, f"{key}/" if key else "")
