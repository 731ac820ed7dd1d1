"""Uploads the results of a job when its programs have ended: one archive of its model, one of its other output.

A job without compression gets prefixes instead of archives, with one object for each file.

As on SageMaker, both contain what all instances wrote. The first instance waits for the others and packs for all. When
an instance fails there is no model, and it does not wait: it packs the output of the instances that have ended by then,
which may show why.
"""

from contextlib import closing
from pathlib import Path

from trainyard.foundation.errors import NotFound, Unavailable
from trainyard.foundation.jobs.result_locations import MODEL, OUTPUT
from trainyard.instance.agent.commands import StopRequested
from trainyard.instance.agent.context import InstanceContext
from trainyard.instance.agent.data.object_store import open_store
from trainyard.instance.agent.results.artifacts import StoredArtifact, artifact_location, store_folders
from trainyard.instance.agent.results.failure import CannotRun, FailureKind, to_cannot_run
from trainyard.instance.agent.results.uncompressed import store_files
from trainyard.instance.agent.siblings import Siblings, SiblingState
from trainyard.instance.sandbox.contract import ML
from trainyard.objects.encryption.keys import KeyUnusable

_FOLDERS = {MODEL: "model", OUTPUT: "output/data"}


class ResultUploader:
    """Stores the results of a job from one of its instances.

    Its methods raise StopRequested on a kill command and when the lease is about to end.
    """

    def __init__(self, context: InstanceContext) -> None:
        self._folder = context.folder
        self._spec = context.spec
        self._reports = context.reports
        self._commands = context.commands
        self._siblings = Siblings(context.folder, context.spec)

    def store(self) -> None:
        """Store the results after a program that did not fail."""
        if not self._spec.uploads:
            return
        states = self._wait_for_siblings()
        if SiblingState.INTERRUPTED in states.values():
            return
        is_whole = all(state is SiblingState.ENDED_WELL for state in states.values())
        with self._reports.phase("upload"):
            if is_whole:
                self._store(MODEL, list(states))
            ended = [name for name, state in states.items() if state is not SiblingState.LOST]
            self._store(OUTPUT, ended)

    def store_of_failure(self) -> None:
        """Store the output after the program of this instance has failed."""
        with self._reports.phase("upload"):
            self._store(OUTPUT, self._siblings.exited_hosts())

    def _wait_for_siblings(self) -> dict[str, SiblingState]:
        if not self._siblings:
            return {}
        with self._reports.phase("gather"):
            return self._siblings.wait(self._check_kill)

    def _store(self, kind: str, others: list[str]) -> None:
        path, where = _FOLDERS[kind], artifact_location(self._spec, kind)
        store_tree = store_folders if self._spec.is_output_compressed else store_files
        try:
            with closing(open_store(self._spec.objects)) as store:
                stored = store_tree(
                    store,
                    self._roots(others),
                    path,
                    where=where,
                    check=self._check_kill,
                    output_key=self._spec.output_key,
                )
        except NotFound as error:
            raise CannotRun(
                f"The {kind} cannot be stored as {where}: {error.message}", FailureKind.USER_ERROR
            ) from error
        except KeyUnusable as error:
            raise CannotRun(
                f"The {kind} cannot be stored as {where}, because it cannot be encrypted: {error.message}",
                FailureKind.USER_ERROR,
            ) from error
        except Unavailable as error:
            cause = to_cannot_run(error)
            raise CannotRun(f"The {kind} cannot be stored as {where}: {cause.message}", cause.kind) from error
        if stored is None:
            if kind == MODEL:
                name = "model.tar.gz" if self._spec.is_output_compressed else "model"
                self._reports.note(f"The program saved nothing in {ML}/model, so there is no {name}.")
            return
        self._note_omissions(stored, path)
        self._reports.report_artifact(kind, str(stored.where), size=stored.size)

    def _note_omissions(self, stored: StoredArtifact, path: str) -> None:
        if stored.skipped and self._spec.is_output_compressed:
            self._reports.note(
                f"{stored.skipped} entries of {ML}/{path} are sockets, pipes or devices and were not packed."
            )
        elif stored.skipped:
            self._reports.note(
                f"{stored.skipped} entries of {ML}/{path} were not stored: only files whose names are UTF-8 and short "
                "enough for a key are, and links to them."
            )
        if stored.clashes:
            self._reports.note(
                f"Several instances wrote the same {stored.clashes} names in {ML}/{path}, such as {stored.clash}; "
                "those of the last instance were stored. Put SM_CURRENT_HOST into the names to avoid this."
            )

    def _roots(self, others: list[str]) -> list[Path]:
        """The ml folders in the order of the hosts; CannotRun when one is gone: an artifact must be complete."""
        roots = [
            self._folder.ml if host == self._spec.instance else self._siblings[host].ml
            for host in self._spec.hosts
            if host == self._spec.instance or host in others
        ]
        for root in roots:
            if not root.is_dir():
                raise CannotRun(f"The folder {root} of {root.parent.name} is gone.", FailureKind.DISK_FULL)
        return roots

    def _check_kill(self) -> None:
        self._commands.poll()
        if self._commands.is_killed or self._commands.is_lease_ending:
            raise StopRequested
