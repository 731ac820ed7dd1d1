"""The life of one instance: prepare, run, upload, and the verdict on it all."""

import logging
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from trainyard.foundation.confined import ConfinedFolder
from trainyard.foundation.errors import TrainyardError
from trainyard.instance.agent.channels import bring_channels, gets_nothing, require_folders
from trainyard.instance.agent.checkpoints import SyncedFolders
from trainyard.instance.agent.code import fetch_code
from trainyard.instance.agent.contained import ContainedTraining
from trainyard.instance.agent.debugging import Debugging
from trainyard.instance.agent.failure import (
    CannotRun,
    Failure,
    FailureKind,
    ProgramEnd,
    exit_status,
    failure_before_program,
    failure_of_program,
    time_limit_card,
    why_it_cannot_run,
)
from trainyard.instance.agent.kept_files import KeptFiles
from trainyard.instance.agent.launching import only_rank
from trainyard.instance.agent.layout import Owner, lay_out
from trainyard.instance.agent.network import InstanceNetwork
from trainyard.instance.agent.orders import Ordered, Orders
from trainyard.instance.agent.output import Output
from trainyard.instance.agent.pipes import Pipes
from trainyard.instance.agent.placing import needs_files
from trainyard.instance.agent.ranks import first_failure
from trainyard.instance.agent.remote_files.mounts import RemoteFiles, is_streamed
from trainyard.instance.agent.reports import Reports
from trainyard.instance.agent.results import Results
from trainyard.instance.agent.resuming import leave_reached
from trainyard.instance.agent.rule_files import fetch_other_runs, fetch_rule_files
from trainyard.instance.agent.store import open_store
from trainyard.instance.agent.supervision import MAX_RUNTIME, RunEnd
from trainyard.instance.agent.tracebacks import find_exception
from trainyard.instance.agent.training import Training
from trainyard.instance.sandbox.contract import ML
from trainyard.link.contract import INTERRUPTED, LEASE, ChannelSpec, InstanceSpec
from trainyard.link.folders import InstanceFolder
from trainyard.objects.contract import ObjectAccess

COMPLETED, FAILED, STOPPED = "completed", "failed", "stopped"

_GOES_ON_ELSEWHERE = (INTERRUPTED, LEASE)  # reasons of a stop after which another attempt goes on
_KILLED_SYNC_S = 3.0  # after a kill, in which the yard still waits for the instance
_WRITTEN_BYTES = 16 * 1024  # of output/failure that are read

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the instance ended. `reason` is why it failed or was stopped."""

    outcome: str
    reason: str = ""
    card: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, failure: Failure) -> "Verdict":
        return cls(FAILED, failure.reason, failure.card)


class Instance:
    """One instance from its first report to its last but one; the last is the verdict, which the caller reports."""

    def __init__(self, folder: InstanceFolder, spec: InstanceSpec, *, reports: Reports, orders: Orders) -> None:
        self._folder = folder
        self._spec = spec
        self._reports = reports
        self._orders = orders
        self._owner = Owner(spec.uid)
        self._network = InstanceNetwork(folder, spec, check=orders.check)
        self._pipes = Pipes(folder, spec, self._owner)
        self._remote = RemoteFiles(folder, spec, reports=reports)
        self._synced = SyncedFolders(folder, spec, reports=reports, owner=self._owner)
        self._output = Output(folder.logs, limit_bytes=spec.log_limit_bytes)
        self._debugging: Debugging | None = None

    def live(self) -> Verdict:
        """Go through it all; whatever goes wrong is a verdict too."""
        try:
            return self._prepared_and_run()
        except Ordered:
            return Verdict(STOPPED, self._orders.stop_reason or "killed")
        except Exception as error:
            cause = why_it_cannot_run(error)
            log.log(_level(cause), "the instance failed", extra={"why": cause.message}, exc_info=error)
            return Verdict.of(failure_before_program(cause, instance=self._spec.instance, tail=self._output.tail))
        finally:
            self._remote.close()
            self._synced.close()
            self._output.close()
            if self._debugging is not None:
                self._debugging.close()

    def _prepared_and_run(self) -> Verdict:
        for note in self._spec.notes:
            self._output.say(note)
        self._reports.status("Downloading", "Downloading input data")
        with self._reports.phase("download"):
            self._prepare()
        self._reports.status("Training", "Training image download completed. Training in progress.")
        training = (Training if self._spec.container is None else ContainedTraining)(
            self._folder,
            self._spec,
            output=self._output,
            orders=self._orders,
            reports=self._reports,
            owner=self._owner,
            pipes=self._pipes,
            network=self._network,
            debugging=self._debugging,
        )
        self._synced.begin()
        self._remote.start()
        with closing(self._pipes), closing(self._remote):
            end = training.run()
        if not end.is_killed and end.stop_reason is None:
            self._note_unopened()
        unsynced = self._finish_syncing()
        verdict = self._with_checkpoints(self._judge(end, training), unsynced)
        if verdict.reason in _GOES_ON_ELSEWHERE:
            return verdict
        self._reports.status("Uploading", "Uploading generated training model")
        results = Results(self._folder, self._spec, reports=self._reports, orders=self._orders)
        if verdict.outcome != FAILED:
            results.store()
            return verdict
        try:
            results.store_of_failure()
        except Ordered:  # another instance failed too, and what this one failed of may be why
            return verdict
        except (TrainyardError, OSError) as error:
            # Why the program failed matters more than that its output could not be kept.
            self._reports.note(f"The output is not stored: {why_it_cannot_run(error).message}")
        return verdict

    def _note_unopened(self) -> None:
        for name in self._pipes.unopened:
            self._reports.note(
                f"The program on {self._spec.instance} has not opened {ML}/input/data/{name}_0, so it has read nothing "
                f"of the Pipe channel {name}."
            )

    def _finish_syncing(self) -> CannotRun | None:
        if not self._synced:
            return None
        if self._orders.stop_reason not in _GOES_ON_ELSEWHERE and not self._orders.is_killed:
            self._reports.status("Uploading", "Uploading generated training model")
        with self._reports.phase("sync"):
            return self._synced.finish(self._check_kill)

    def _check_kill(self) -> None:
        """Raise Ordered when the instance should have ended at once, but not before what it wrote could be kept."""
        if self._orders.is_killed_for(_KILLED_SYNC_S):
            raise Ordered

    def _with_checkpoints(self, verdict: Verdict, unsynced: CannotRun | None) -> Verdict:
        """The verdict after the last checkpoints were stored, or could not be."""
        if unsynced is None:
            return verdict
        if verdict.outcome == FAILED or verdict.reason in _GOES_ON_ELSEWHERE:
            self._reports.note(unsynced.message)
            return verdict
        return Verdict.of(failure_before_program(unsynced, instance=self._spec.instance, tail=self._output.tail))

    def _prepare(self) -> None:
        spec = self._spec
        lay_out(self._folder, spec, self._owner)
        if spec.debugger is not None:
            self._debugging = Debugging(self._folder, spec, spec.debugger, reports=self._reports, owner=self._owner)
        self._note_empty_channels()
        require_folders(spec.channels, node=spec.node)
        check, root = self._orders.check, self._folder.channels
        with closing(open_store(spec.objects, check=check)) as store:
            channels, kept = self._mount(check), KeptFiles(spec, root)
            missing = [kept.link(channel) for channel in channels]
            bring_channels(store, missing, account=spec.account, root=root, check=check)
            kept.keep(channels)
            fetch_code(store, spec, self._folder.ml, check=check)
            self._fetch_rules(store)
            if spec.debugger is not None:
                leave_reached(self._folder, spec, spec.debugger, store=store, reports=self._reports)
        self._pipes.lay()
        with ConfinedFolder.open(self._folder.ml, "code") as code:
            self._owner.take_tree(code)
        self._synced.restore(self._orders.check)

    def _fetch_rules(self, store: ObjectAccess) -> None:
        if self._debugging is None:
            return
        missing = fetch_rule_files(store, self._spec, self._folder.ml, check=self._orders.check)
        if self._spec.instance == self._spec.hosts[0]:
            fetch_other_runs(store, self._spec, self._folder.ml, check=self._orders.check)
        for rule, why in missing.items():
            self._debugging.fail([rule], why)

    def _note_empty_channels(self) -> None:
        for channel in filter(gets_nothing, self._spec.channels):
            self._reports.note(
                f"{self._spec.instance} gets no object of channel {channel.name}: it is ShardedByS3Key, and there are "
                "more instances than objects."
            )

    def _mount(self, check: Callable[[], None]) -> list[ChannelSpec]:
        """Mount what is read while the program runs; what is left has to be brought as files."""
        channels = list(filter(needs_files, self._spec.channels))
        streamed = [channel for channel in channels if is_streamed(self._spec, channel)]
        if not self._remote.mount(streamed, check=check):
            return channels
        return [channel for channel in channels if channel not in streamed]

    def _judge(self, end: RunEnd, training: Training | ContainedTraining) -> Verdict:
        if end.is_killed or (self._orders.is_killed and exit_status(end.ended) == 0):
            raise Ordered
        if end.overuse:
            raise CannotRun(end.overuse, FailureKind.DISK_FULL)
        if end.stop_reason == MAX_RUNTIME:
            limit = self._spec.max_runtime_s
            card = time_limit_card(self._spec.instance, seconds=limit, tail=self._output.tail)
            return Verdict(STOPPED, MAX_RUNTIME, card)
        if end.stop_reason is not None:
            return Verdict(STOPPED, self._stop_reason(end.stop_reason))
        with ConfinedFolder.open(self._folder.ml) as ml:
            written = ml.read_text("output/failure", limit_bytes=_WRITTEN_BYTES)
        if exit_status(end.ended) == 0 and written is None:
            return Verdict(COMPLETED)
        if self._pipes.failure is not None:
            raise self._pipes.failure
        if self._remote.failure is not None:
            raise self._remote.failure
        return Verdict.of(failure_of_program(self._program_end(end, training, written)))

    def _stop_reason(self, first: str) -> str:
        """Why it was stopped for good: a user may stop what gives its place away, and so may a rule."""
        ordered = self._orders.stop_reason
        found = self._debugging.stop_reason if self._debugging is not None else None
        if found is not None and ordered in (None, INTERRUPTED):
            return found
        return ordered or first

    def _program_end(self, end: RunEnd, training: Training | ContainedTraining, written: str | None) -> ProgramEnd:
        """How the program ended, or the rank of it that failed first."""
        failed = first_failure(self._folder)
        tail = failed.tail if failed else self._output.tail
        return ProgramEnd(
            self._spec.instance,
            training.command,
            replace(failed.ended, is_oom=end.ended.is_oom) if failed else end.ended,
            written,
            tail,
            find_exception(tail.text, training.code_folder),
            rank=failed.rank if failed else only_rank(self._spec),
            is_server=failed is not None and failed.rank is None,
            at_us=failed.at_us if failed else end.at_us,
        )


def _level(cause: CannotRun) -> int:
    return logging.ERROR if cause.kind is FailureKind.INTERNAL else logging.INFO
