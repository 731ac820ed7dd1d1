"""The life of one instance: prepare it, run its program, upload the results, and decide how it ended."""

import codecs
import logging
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from trainyard.foundation.confined import ConfinedFolder
from trainyard.foundation.errors import TrainyardError
from trainyard.instance.agent.commands import StopRequested
from trainyard.instance.agent.context import InstanceContext
from trainyard.instance.agent.data.channel_cache import ChannelFileCache
from trainyard.instance.agent.data.channel_paths import needs_files
from trainyard.instance.agent.data.channels import has_empty_shard, require_folders, stage_channels
from trainyard.instance.agent.data.checkpoint_sync import SyncedFolders
from trainyard.instance.agent.data.object_store import open_store
from trainyard.instance.agent.data.pipes import PipeChannels
from trainyard.instance.agent.data.profile_uploads import ProfileUploads
from trainyard.instance.agent.data.progress import DownloadProgress
from trainyard.instance.agent.data.remote_files.mounts import RemoteMounts, is_streamed
from trainyard.instance.agent.layout import create_layout
from trainyard.instance.agent.program.code import fetch_code
from trainyard.instance.agent.program.container_training import ContainerTraining
from trainyard.instance.agent.program.launch import only_rank
from trainyard.instance.agent.program.network import InstanceNetwork
from trainyard.instance.agent.program.sandboxed_training import SandboxedTraining
from trainyard.instance.agent.program.training import InstanceTraining
from trainyard.instance.agent.results.failure import (
    CannotRun,
    FailureKind,
    InstanceFailure,
    ProgramEnd,
    exit_status,
    failure_before_program,
    failure_of_program,
    time_limit_card,
    to_cannot_run,
)
from trainyard.instance.agent.results.rank_failures import first_failure
from trainyard.instance.agent.results.result_storage import ResultUploader
from trainyard.instance.agent.results.tracebacks import find_exception
from trainyard.instance.agent.watch.debugger import Debugger
from trainyard.instance.agent.watch.debugger_files import fetch_manifests, fetch_other_runs, fetch_rule_files
from trainyard.instance.agent.watch.supervisor import MAX_RUNTIME, RunEnd
from trainyard.instance.sandbox.contract import ML
from trainyard.link.contract import INTERRUPTED, LEASE, ChannelSpec
from trainyard.objects.contract import ObjectAccess

COMPLETED, FAILED, STOPPED = "completed", "failed", "stopped"

# After a stop for one of these reasons another attempt continues the job.
_CONTINUES_ELSEWHERE = (INTERRUPTED, LEASE)
# The yard still waits this long for an instance that it has killed.
_KILLED_SYNC_S = 3.0
_MAX_FAILURE_FILE_BYTES = 16 * 1024
_MAX_MESSAGE_BYTES = 1024

# Statuses and their messages.
_TRAINING = ("Training", "Training image download completed. Training in progress.")
_PROCESSING = ("Processing", "Processing in progress")
_UPLOADING = ("Uploading", "Uploading generated training model")
_STORING = ("Uploading", "Uploading the outputs")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class InstanceOutcome:
    """How the instance ended. `reason` is why it failed or was stopped; `message` is what its program left."""

    outcome: str
    reason: str = ""
    card: Mapping[str, Any] | None = None
    message: str = ""

    @classmethod
    def of(cls, failure: InstanceFailure) -> "InstanceOutcome":
        return cls(FAILED, failure.reason, failure.card)


class Instance:
    """Runs one instance and reports everything except its outcome, which the caller reports last."""

    def __init__(self, context: InstanceContext) -> None:
        self._context = context
        self._folder = context.folder
        self._spec = context.spec
        self._reports = context.reports
        self._commands = context.commands
        self._output = context.output
        self._network = InstanceNetwork(context.folder, context.spec, check=context.commands.check)
        self._pipes = PipeChannels(context.folder, context.spec, context.owner)
        self._remote = RemoteMounts(context.folder, context.spec, reports=context.reports)
        self._synced = SyncedFolders(context)
        self._profiles = ProfileUploads(context, context.spec.profiler) if context.spec.profiler is not None else None
        self._debugger: Debugger | None = None

    def run(self) -> InstanceOutcome:
        """Run the instance to its end. Every error becomes an outcome."""
        try:
            return self._prepare_and_run()
        except StopRequested:
            return InstanceOutcome(STOPPED, self._commands.stop_reason or "killed")
        except Exception as error:
            cause = to_cannot_run(error)
            log.log(_log_level(cause), "the instance failed", extra={"why": cause.message}, exc_info=error)
            return InstanceOutcome.of(
                failure_before_program(cause, instance=self._spec.instance, tail=self._output.tail)
            )
        finally:
            self._remote.close()
            self._synced.close()
            if self._profiles is not None:
                self._profiles.close()
            self._output.close()
            if self._debugger is not None:
                self._debugger.close()

    def _prepare_and_run(self) -> InstanceOutcome:
        for note in self._spec.notes:
            self._output.add_line(note)
        self._reports.report_status("Downloading", "Downloading input data")
        with self._reports.phase("download"):
            self._prepare()
        self._reports.report_status(*(_TRAINING if self._spec.processing is None else _PROCESSING))
        training = (SandboxedTraining if self._spec.container is None else ContainerTraining)(
            self._context,
            pipes=self._pipes,
            network=self._network,
            debugger=self._debugger,
            watches=[self._profiles] if self._profiles is not None else [],
        )
        self._synced.start()
        self._remote.start()
        with closing(self._pipes), closing(self._remote):
            end = training.run()
        if not end.is_killed and end.stop_reason is None:
            self._note_unopened_pipes()
        sync_failure = self._finish_syncing()
        if self._profiles is not None:
            self._profiles.finish(self._check_kill)
        outcome = self._with_sync_failure(self._outcome(end, training), sync_failure)
        if outcome.reason in _CONTINUES_ELSEWHERE:
            return outcome
        if self._spec.processing is not None:
            return replace(outcome, message=self._read_message(is_strict=outcome.outcome != FAILED))
        self._store_results(outcome)
        return outcome

    def _store_results(self, outcome: InstanceOutcome) -> None:
        """Store the model and the output of a training job."""
        self._reports.report_status(*_UPLOADING)
        results = ResultUploader(self._context)
        if outcome.outcome != FAILED:
            results.store()
            return
        try:
            results.store_of_failure()
        except StopRequested:
            # Another instance failed too, and the failure of this one may be the cause.
            return
        except (TrainyardError, OSError) as error:
            # Why the program failed matters more than why its output could not be stored.
            self._reports.note(f"The output is not stored: {to_cannot_run(error).message}")

    def _read_message(self, *, is_strict: bool) -> str:
        """Return what the program left for the description of its job. If `is_strict`, CannotRun if it is not text."""
        with ConfinedFolder.open(self._folder.ml) as ml:
            data = ml.read("output/message", limit_bytes=_MAX_MESSAGE_BYTES) or b""
        try:
            # The limit may cut a character.
            return codecs.getincrementaldecoder("utf-8")("strict" if is_strict else "replace").decode(data)
        except UnicodeDecodeError as error:
            raise CannotRun(
                f"The program on {self._spec.instance} left a message in {ML}/output/message that is not UTF-8.",
                FailureKind.BAD_INPUT,
            ) from error

    def _note_unopened_pipes(self) -> None:
        for name in self._pipes.unopened:
            self._reports.note(
                f"The program on {self._spec.instance} has not opened {ML}/input/data/{name}_0, so it has read nothing "
                f"of the Pipe channel {name}."
            )

    def _finish_syncing(self) -> CannotRun | None:
        if not self._synced:
            return None
        if self._commands.stop_reason not in _CONTINUES_ELSEWHERE and not self._commands.is_killed:
            self._reports.report_status(*(_UPLOADING if self._spec.processing is None else _STORING))
        with self._reports.phase("sync" if self._spec.processing is None else "upload"):
            return self._synced.finish(self._check_kill)

    def _check_kill(self) -> None:
        """Raise StopRequested some time after a kill command, to leave time for the last checkpoints."""
        if self._commands.is_killed_for(_KILLED_SYNC_S):
            raise StopRequested

    def _with_sync_failure(self, outcome: InstanceOutcome, sync_failure: CannotRun | None) -> InstanceOutcome:
        """Return the outcome, which fails if the last checkpoints could not be stored and the job ends here."""
        if sync_failure is None:
            return outcome
        if outcome.outcome == FAILED or outcome.reason in _CONTINUES_ELSEWHERE:
            self._reports.note(sync_failure.message)
            return outcome
        return InstanceOutcome.of(
            failure_before_program(sync_failure, instance=self._spec.instance, tail=self._output.tail)
        )

    def _prepare(self) -> None:
        spec, owner = self._spec, self._context.owner
        create_layout(self._folder, spec, owner)
        if spec.debugger is not None:
            self._debugger = Debugger(self._context, spec.debugger)
        self._note_empty_channels()
        require_folders(spec.channels, node=spec.node)
        check, root = self._commands.check, self._folder.channels
        with closing(open_store(spec.objects, check=check)) as store:
            channels, cache = self._mount_channels(), ChannelFileCache(spec, root)
            missing = [cache.link_cached_files(channel) for channel in channels]
            size_bytes = sum(sum(channel.sizes) for channel in missing)
            progress = DownloadProgress(size_bytes, self._reports.report_download, check=check)
            stage_channels(
                store, missing, account=spec.account, root=root, check=progress.check, on_bytes=progress.count
            )
            cache.store_files(channels)
            fetch_code(store, spec, self._folder.ml, check=check)
            self._fetch_debugger_files(store)
        self._pipes.create_fifos()
        with ConfinedFolder.open(self._folder.ml, "code") as code:
            owner.give_tree(code)
        self._synced.restore(check)

    def _fetch_debugger_files(self, store: ObjectAccess) -> None:
        if self._debugger is None:
            return
        missing = fetch_rule_files(store, self._spec, self._folder.ml, check=self._commands.check)
        if self._context.is_first:
            fetch_other_runs(store, self._spec, self._folder.ml, check=self._commands.check)
        for rule, why in missing.items():
            self._debugger.fail([rule], why)
        fetch_manifests(store, self._context, self._debugger.spec)

    def _note_empty_channels(self) -> None:
        for channel in filter(has_empty_shard, self._spec.channels):
            self._reports.note(
                f"{self._spec.instance} gets no object of channel {channel.name}: it is ShardedByS3Key, and there are "
                "more instances than objects."
            )

    def _mount_channels(self) -> list[ChannelSpec]:
        """Mount the channels that are read while the program runs; return those that must be downloaded as files."""
        channels = list(filter(needs_files, self._spec.channels))
        streamed = [channel for channel in channels if is_streamed(self._spec, channel)]
        if not self._remote.mount(streamed, check=self._commands.check):
            return channels
        return [channel for channel in channels if channel not in streamed]

    def _outcome(self, end: RunEnd, training: InstanceTraining) -> InstanceOutcome:
        if end.is_killed or (self._commands.is_killed and exit_status(end.ended) == 0):
            raise StopRequested
        if end.overuse:
            raise CannotRun(end.overuse, FailureKind.DISK_FULL)
        if end.stop_reason == MAX_RUNTIME:
            limit = self._spec.max_runtime_s
            card = time_limit_card(self._spec.instance, seconds=limit, tail=self._output.tail)
            return InstanceOutcome(STOPPED, MAX_RUNTIME, card)
        if end.stop_reason is not None:
            return InstanceOutcome(STOPPED, self._final_stop_reason(end.stop_reason))
        with ConfinedFolder.open(self._folder.ml) as ml:
            # Of a processing job only the exit code counts.
            is_read = self._spec.processing is None
            failure_file = ml.read_text("output/failure", limit_bytes=_MAX_FAILURE_FILE_BYTES) if is_read else None
        if exit_status(end.ended) == 0 and failure_file is None:
            return InstanceOutcome(COMPLETED)
        if self._pipes.failure is not None:
            raise self._pipes.failure
        if self._remote.failure is not None:
            raise self._remote.failure
        return InstanceOutcome.of(failure_of_program(self._program_end(end, training, failure_file)))

    def _final_stop_reason(self, first: str) -> str:
        """Why the instance was stopped in the end: a user or a rule may also stop a job that is being interrupted."""
        by_command = self._commands.stop_reason
        by_rule = self._debugger.stop_reason if self._debugger is not None else None
        if by_rule is not None and by_command in (None, INTERRUPTED):
            return by_rule
        return by_command or first

    def _program_end(self, end: RunEnd, training: InstanceTraining, failure_file: str | None) -> ProgramEnd:
        """How the program ended, or the rank of it that failed first."""
        failed = first_failure(self._folder)
        tail = failed.tail if failed else self._output.tail
        return ProgramEnd(
            self._spec.instance,
            training.command,
            replace(failed.ended, is_oom=end.ended.is_oom) if failed else end.ended,
            failure_file,
            tail,
            find_exception(tail.text, training.code_folder),
            rank=failed.rank if failed else only_rank(self._spec),
            is_server=failed is not None and failed.rank is None,
            at_us=failed.at_us if failed else end.at_us,
            is_isolated=self._spec.is_isolated,
        )


def _log_level(cause: CannotRun) -> int:
    return logging.ERROR if cause.kind is FailureKind.INTERNAL else logging.INFO
