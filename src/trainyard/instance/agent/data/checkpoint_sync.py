"""The folders that are synced to S3: checkpoints, TensorBoard files, tensors, rule output, and outputs of processing.

Checkpoints are restored before the program starts. A job whose last checkpoints cannot be stored fails: otherwise the
next job would continue from an older state than the program saved. The same holds for the outputs of a processing job,
which are its results. The other folders are only uploaded.
"""

from collections.abc import Callable
from contextlib import closing

from trainyard.foundation.confined import ConfinedFolder
from trainyard.foundation.errors import NotFound
from trainyard.foundation.locations import Location, parse_s3_uri
from trainyard.instance.agent.context import InstanceContext
from trainyard.instance.agent.data.object_store import open_store
from trainyard.instance.agent.data.sync.folder import FolderSync
from trainyard.instance.agent.data.sync.upload import SyncedPath, UploadIdentity, catch_lease_signals
from trainyard.instance.agent.program.platform_files import checkpoint_manifest
from trainyard.instance.agent.results.failure import CannotRun, FailureKind
from trainyard.link.contract import SyncSpec
from trainyard.link.folders import host_path
from trainyard.link.lease import may_write
from trainyard.objects.contract import ObjectAccess

# Files that rules write, synced beside the tensors as on AWS.
RULE_OUTPUT = "/opt/ml/output/rule-output"


class SyncedFolders:
    """The synced folders of one instance. One thread calls `restore`, `start`, `finish` and `close`, in this order."""

    def __init__(self, context: InstanceContext) -> None:
        self._folder = context.folder
        self._spec = context.spec
        self._reports = context.reports
        self._owner = context.owner
        self._checkpoints: FolderSync | None = None
        self._others: list[FolderSync] = []
        self._outputs: list[FolderSync] = []
        # Outputs that are stored while the program runs.
        self._continuous: list[FolderSync] = []

    def __bool__(self) -> bool:
        """Whether the instance has synced folders."""
        spec = self._spec
        return any(each is not None for each in (spec.checkpoint, spec.tensorboard, spec.debugger, spec.processing))

    def restore(self, check: Callable[[], None]) -> None:
        """Create the folders and download the checkpoints; CannotRun when their bucket does not exist."""
        if self._spec.checkpoint is not None:
            self._checkpoints = self._folder_sync(self._spec.checkpoint)
            try:
                with closing(open_store(self._spec.objects, check=check)) as store:
                    keys = self._checkpoints.restore(store, owner=self._owner, check=check)
            except NotFound as error:
                raise CannotRun(
                    f"The checkpoints cannot be restored: {error.message}", FailureKind.USER_ERROR
                ) from error
            with ConfinedFolder.open(self._folder.ml, "input/data") as data:
                for name, manifest in checkpoint_manifest(self._spec, keys).items():
                    data.replace_file(name, manifest, owner=self._owner.uid)
        if self._spec.tensorboard is not None:
            self._others.append(self._folder_sync(self._spec.tensorboard))
        if self._spec.debugger is not None:
            self._others.append(self._folder_sync(self._spec.debugger.tensors, is_frequently_written=True))
            if self._spec.debugger.rules:
                uri = f"{self._spec.debugger.tensors.uri.rstrip('/').rpartition('/')[0]}/rule-output"
                self._others.append(self._folder_sync(SyncSpec(uri, RULE_OUTPUT)))

        for output in self._spec.processing.outputs if self._spec.processing is not None else ():
            sync = self._folder_sync(SyncSpec(output.uri, output.path), keeps_removed=True)
            (self._continuous if output.is_continuous else self._outputs).append(sync)

    def start(self) -> None:
        """Upload changes from now on."""
        started = [each for each in self._all if each not in self._outputs]
        if started:
            catch_lease_signals()
        for sync in started:
            sync.start()

    def finish(self, check: Callable[[], None]) -> CannotRun | None:
        """Upload the last changes after the program has ended. Return why what must be stored could not be."""
        for sync in self._others:
            try:
                sync.finish(check)
            except CannotRun as error:
                self._reports.note(error.message)
        failure: CannotRun | None = None
        for sync in self._required:
            try:
                sync.finish(check)
            except CannotRun as error:
                failure = failure or error
        return failure

    def close(self) -> None:
        """Abandon uploads in progress. No object is left incomplete."""
        for sync in self._all:
            sync.close()

    @property
    def _all(self) -> list[FolderSync]:
        return [*self._required, *self._others]

    @property
    def _required(self) -> list[FolderSync]:
        return [*([self._checkpoints] if self._checkpoints else []), *self._continuous, *self._outputs]

    def _folder_sync(
        self, spec: SyncSpec, *, is_frequently_written: bool = False, keeps_removed: bool = False
    ) -> FolderSync:
        path = SyncedPath(*host_path(self._folder, self._spec, spec.path))
        self._make_folder(path)
        return FolderSync(
            path,
            _location(spec.uri, self._spec.account),
            seen_as=spec.path,
            writer=UploadIdentity(
                self._spec.job_name, self._spec.instance, len(self._spec.hosts) == 1, self._spec.output_key
            ),
            open_store=self._store,
            note=self._reports.note,
            is_frequently_written=is_frequently_written,
            keeps_removed=keeps_removed,
            may_write=lambda: may_write(self._folder, self._spec),
        )

    def _make_folder(self, path: SyncedPath) -> None:
        with ConfinedFolder.open(path.root) as root:
            root.make_folder(path.path, owner=self._owner.uid).close()

    def _store(self) -> ObjectAccess:
        return open_store(self._spec.objects)


def _location(uri: str, account: str) -> Location:
    """The prefix of all keys of a folder: ends with a slash, or is empty for a whole bucket."""
    where = parse_s3_uri(uri, account)
    key = where.key.rstrip("/")
    return Location(where.bucket, f"{key}/" if key else "")
