"""What only training jobs do while they are driven: rules, actions, profiles, warm pools and evaluations."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from trainyard.foundation.jobs.attempts import Attempt
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.foundation.jobs.training.transitions import give_up
from trainyard.link.contract import CommandKind, InstanceSpec
from trainyard.link.folders import AttemptRef, InstanceRef
from trainyard.server.control.actions.triggers import add_rule_notes, request_actions, stop_for_rules
from trainyard.server.control.contract import JobStorage
from trainyard.server.control.instances.reports import InstanceReport, live_attempt
from trainyard.server.control.instances.work import InstanceWork
from trainyard.server.control.training.partial_results import discard_partial_results
from trainyard.server.control.training.pools import WarmPools
from trainyard.server.control.training.reports import apply_reports
from trainyard.server.control.training.specs import SpecMaker
from trainyard.server.jobs import training
from trainyard.server.jobs.profile_evaluations import leave_evaluation
from trainyard.server.lineage.recordings import ensure_job_recording
from trainyard.server.records.contract import ResourceId
from trainyard.server.source_contents import channel_contents


@dataclass(frozen=True, slots=True)
class TrainingWork(InstanceWork[TrainingJob]):
    """The work on training jobs, one step per call. Calls block; different threads may work on different jobs."""

    specs: SpecMaker

    @property
    def storage(self) -> JobStorage[TrainingJob]:
        return training

    def check_limits(self, job: TrainingJob) -> TrainingJob:
        return give_up(job, at=self.clock())

    def prepare_placed(self, job: TrainingJob) -> None:
        WarmPools(self.records).take_over(job, now=self.clock())

    def start_attempt(self, job: TrainingJob, specs: Sequence[InstanceSpec]) -> Attempt:
        return replace(live_attempt(job), is_started=True, inputs=channel_contents(job.plan, specs))

    def apply_reports(self, job: TrainingJob, reports: Sequence[InstanceReport]) -> TrainingJob:
        return apply_reports(job, reports)

    def draw_conclusions(self, before: TrainingJob, after: TrainingJob) -> TrainingJob:
        return stop_for_rules(before, add_rule_notes(before, after), now=self.clock())

    def prepare_change(self, job_id: ResourceId, before: TrainingJob, after: TrainingJob) -> None:
        # Before the findings are stored: a yard that is killed in between reads them again.
        request_actions(self.records, job_id, before, after=after, now=self.clock())

    def prepare_end(self, job_id: ResourceId, after: TrainingJob) -> None:
        WarmPools(self.records).leave(job_id, after, now=self.clock())
        leave_evaluation(self.records, after, now=self.clock())
        ensure_job_recording(self.records, after, now=self.clock())

    def discard_results(self, job: TrainingJob) -> None:
        discard_partial_results(self.specs.objects, job)

    def send_changes(self, ref: AttemptRef, job: TrainingJob) -> TrainingJob:
        """Send the instances how to profile, if an update call changed that.

        All of it is sent: an instance that was started, or told, by a yard that was killed before it stored that may
        know any version.
        """
        attempt, plan = live_attempt(job), job.plan.profiler
        if plan is None or plan.version == attempt.profiler_version:
            return job
        payload = {
            "is_enabled": plan.is_enabled,
            "interval_ms": plan.interval_ms,
            "is_exported": plan.is_exported,
            "uri": plan.uri,
            "parameters": dict(plan.parameters),
        }
        for instance in attempt.instances:
            if not instance.has_ended:
                self._engine(job).command(InstanceRef(ref, instance.name), CommandKind.PROFILE, payload)
        return job.with_attempt(replace(attempt, profiler_version=plan.version))
