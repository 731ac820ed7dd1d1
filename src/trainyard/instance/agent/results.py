"""What is stored of a job when its programs have ended: one archive of its model, one of its other output.

Both hold what all instances wrote, as on SageMaker. The first instance waits for the others and packs for all. Where an
instance fails there is no model, and it does not wait: it packs the output of those that are at rest by then, which may
tell why.
"""

from contextlib import closing
from pathlib import Path

from trainyard.foundation.errors import NotFound, Unavailable
from trainyard.foundation.locations import Location
from trainyard.instance.agent.artifacts import model_location, output_location, store_folders
from trainyard.instance.agent.failure import CannotRun, FailureKind, why_it_cannot_run
from trainyard.instance.agent.orders import Ordered, Orders
from trainyard.instance.agent.reports import Reports
from trainyard.instance.agent.siblings import Siblings, State
from trainyard.instance.agent.store import open_store
from trainyard.link.contract import InstanceSpec
from trainyard.link.folders import InstanceFolder


class Results:
    """Stores the results of one job, as seen from one of its instances.

    An order to kill, and the end of the lease, end it with Ordered.
    """

    def __init__(self, folder: InstanceFolder, spec: InstanceSpec, *, reports: Reports, orders: Orders) -> None:
        self._folder = folder
        self._spec = spec
        self._reports = reports
        self._orders = orders
        self._siblings = Siblings(folder, spec)

    def store(self) -> None:
        """After a program that did not fail."""
        if not self._spec.uploads:
            return
        states = self._states()
        if State.INTERRUPTED in states.values():
            return
        is_whole = all(state is State.ENDED_WELL for state in states.values())
        with self._reports.phase("upload"):
            if is_whole:
                self._store("model", list(states), where=model_location(self._spec))
            ended = [name for name, state in states.items() if state is not State.LOST]
            self._store("output", ended, where=output_location(self._spec))

    def store_of_failure(self) -> None:
        """After a program that failed, here."""
        with self._reports.phase("upload"):
            self._store("output", self._siblings.at_rest(), where=output_location(self._spec))

    def _states(self) -> dict[str, State]:
        if not self._siblings:
            return {}
        with self._reports.phase("gather"):
            return self._siblings.wait(self._check_kill)

    def _store(self, kind: str, others: list[str], *, where: Location) -> None:
        path = _PATHS[kind]
        try:
            with closing(open_store(self._spec.objects)) as store:
                stored = store_folders(store, self._roots(others), path, where=where, check=self._check_kill)
        except NotFound as error:
            raise CannotRun(
                f"The {kind} cannot be stored as {where}: {error.message}", FailureKind.USER_ERROR
            ) from error
        except Unavailable as error:
            cause = why_it_cannot_run(error)
            raise CannotRun(f"The {kind} cannot be stored as {where}: {cause.message}", cause.kind) from error
        if stored is None:
            if kind == "model":
                self._reports.note("The program saved nothing in /opt/ml/model, so there is no model.tar.gz.")
            return
        if stored.skipped:
            self._reports.note(f"{stored.skipped} entries of /opt/ml/{path} are no files and were not packed.")
        if stored.clashes:
            self._reports.note(
                f"Instances wrote {stored.clashes} of the same names in /opt/ml/{path}, such as {stored.clash}; "
                "kept is what the last of them wrote. Names with SM_CURRENT_HOST in them do not clash."
            )
        self._reports.artifact(kind, str(stored.where), size=stored.size)

    def _roots(self, others: list[str]) -> list[Path]:
        """The ml folders in the order of the hosts; CannotRun when one is gone, for an artifact is whole or absent."""
        roots = [
            self._folder.ml if host == self._spec.instance else self._siblings[host].ml
            for host in self._spec.hosts
            if host == self._spec.instance or host in others
        ]
        for root in roots:
            if not root.is_dir():
                raise CannotRun(f"The folder {root}, which {root.parent.name} left, is gone.", FailureKind.DISK_FULL)
        return roots

    def _check_kill(self) -> None:
        self._orders.read()
        if self._orders.is_killed or self._orders.is_taken:
            raise Ordered


_PATHS = {"model": "model", "output": "output/data"}
