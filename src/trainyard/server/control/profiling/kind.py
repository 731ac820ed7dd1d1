"""Evaluates the profiles of jobs with profiler rules: soon after training began, at intervals, and after the end.

Each of these jobs has a record that is due when its next evaluation is, see `server/jobs/profile_evaluations.py`. So
has a job without rules that has just ended, and is only summarized. No job waits for its evaluation. A yard that is
killed in between evaluates again, with the same result: the states and the report are replaced, and an action is
carried out once.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from trainyard.foundation.clock import Clock
from trainyard.foundation.errors import InvalidRequest, NotFound, TrainyardError, Unavailable
from trainyard.foundation.jobs.status import RuleStatus, SecondaryStatus
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.server.control.actions.triggers import (
    add_profiler_notes,
    request_profiler_actions,
    stop_for_profiler_rules,
)
from trainyard.server.control.contract import OneStepKind, Wake
from trainyard.server.control.profiling.conclusions import ProfileConclusions, WrittenReport
from trainyard.server.control.profiling.evaluation_watch import EvaluationWatch
from trainyard.server.control.profiling.report_storage import ReportStorage
from trainyard.server.control.profiling.rule_results import with_conclusion, with_status
from trainyard.server.jobs.profile_evaluations import (
    ProfileEvaluation,
    body_of,
    evaluation_of,
    has_rules,
    is_evaluation_of,
    key_of_job,
    kind_at,
)
from trainyard.server.jobs.profiled_runs import leaves_run
from trainyard.server.jobs.training import change_to, events_of, job_of
from trainyard.server.records.contract import Change, Claim, Records, Resource, ResourceId

log = logging.getLogger(__name__)

POLL_INTERVAL = timedelta(seconds=1)
# After the start of training; most of the start-up of a framework is over then.
FIRST_AFTER = timedelta(seconds=20)
# Between two evaluations of a running job, at least, and in proportion to what one costs: 1 % of a core.
INTERVAL, INTERVALS_PER_CPU = timedelta(seconds=60), 100.0
# A job that does not train yet is looked at when that changes, and now and then in case that was missed.
FIRST_WAIT, LONGEST_WAIT = timedelta(seconds=30), timedelta(minutes=10)
# After a failure, doubled with each one in a row, of which an ended job may have so many.
RETRY, LONGEST_RETRY, MAX_FAILURES = timedelta(seconds=10), timedelta(hours=1), 3

_LEASE = timedelta(seconds=30)
# Created before its job, which comes right after it.
_ORPHAN_AFTER = timedelta(minutes=1)
_TRAINING = frozenset({SecondaryStatus.TRAINING, SecondaryStatus.UPLOADING})


@dataclass(frozen=True)
class ProfileEvaluationKind(OneStepKind):
    """The evaluations of a yard, one at a time, so that they never use more than one processor."""

    records: Records
    conclusions: ProfileConclusions
    reports: ReportStorage
    clock: Clock
    worker: str
    wake: Callable[[str], None] = lambda _: None
    site: str = ""
    watch: EvaluationWatch = field(default_factory=EvaluationWatch)

    @property
    def record_kind(self) -> str:
        return kind_at(self.site)

    @property
    def lease(self) -> timedelta:
        return _LEASE

    @property
    def poll_interval(self) -> timedelta:
        return POLL_INTERVAL

    @property
    def max_concurrent(self) -> int | None:
        return 1

    def open(self, _wake: Wake) -> None:
        self.records.listen(self.watch.handle_change)

    def claim_due(self) -> Iterator[Claim]:
        self.watch.bring_forward(self.records, self.record_kind, now=self.clock())
        while claim := self.records.claim_next(self.record_kind, worker=self.worker, lease=_LEASE, now=self.clock()):
            yield claim

    def extend_lease(self, job: Claim) -> None:
        self.records.renew(job, lease=_LEASE, now=self.clock())

    def step(self, job: Claim, _changed: Collection[str], /) -> None:
        """Evaluate the job of a record that is due, or say when it is due next.

        What fails is tried again under a later claim, so this raises nothing: a step that is repeated at once would
        evaluate again and again.
        """
        try:
            self._take_step(job)
        except TrainyardError:
            # The records failed. The claim expires.
            log.warning("the result of an evaluation could not be stored", exc_info=True, extra={"id": job.resource.id})
        except Exception:
            log.exception("an evaluation failed", extra={"id": job.resource.id})

    def _take_step(self, job: Claim) -> None:
        evaluation = evaluation_of(job.resource)
        try:
            resource = self._load_job(job, evaluation)
        except NotFound:
            self._wait_for_job(job)
            return
        training = job_of(resource)
        if _has_no_profile(training):
            self._delete(job, resource.id)
            return
        self.watch.add(resource, job.resource.id, is_begun=evaluation.count > 0)
        next_look = _next_look(training, evaluation, self.clock())
        if next_look is not None:
            self._postpone(job, evaluation, next_look)
            return
        if has_rules(training):
            self._evaluate(job, evaluation, resource, training)
        else:
            self._summarize(job, evaluation, resource, training)

    def _load_job(self, claim: Claim, evaluation: ProfileEvaluation) -> Resource:
        resource = self.records.load(key_of_job(claim.resource))
        if not is_evaluation_of(evaluation, job_of(resource)):
            raise NotFound("training job", evaluation.job)
        return resource

    def _wait_for_job(self, claim: Claim) -> None:
        """Delete a record without a job, unless the job may be about to be stored."""
        now = self.clock()
        if now - claim.resource.created_at > _ORPHAN_AFTER:
            self.records.delete(claim.resource, now=now)
        else:
            self._postpone(claim, evaluation_of(claim.resource), now + timedelta(seconds=5))

    def _evaluate(self, claim: Claim, evaluation: ProfileEvaluation, resource: Resource, job: TrainingJob) -> None:
        try:
            report = self.conclusions.write_report(resource, job)
            failures = self._store_reports(job, report)
        except InvalidRequest as error:
            # The yard lacks a package; it says which.
            self._settle(claim, resource, error.message)
            return
        except TrainyardError as error:
            self._handle_failure(claim, evaluation, resource, job, error.message)
            return
        except OSError as error:
            # The disk may be full.
            why = f"The profile could not be evaluated: {error.strerror}."
            self._handle_failure(claim, evaluation, resource, job, why)
            return
        conclusion = report.conclusion
        self._apply(resource, lambda before: with_conclusion(before, conclusion, failures=failures, now=self.clock()))
        self.conclusions.discard_files(resource.id, is_final=conclusion.is_final)
        log.info(
            "profile evaluated",
            extra={"job": job.name, "id": resource.id, "cpu_s": conclusion.cpu_s, "is_final": conclusion.is_final},
        )
        if not conclusion.is_final:
            again = replace(evaluation, count=evaluation.count + 1, failures=0)
            pause = max(INTERVAL, timedelta(seconds=conclusion.cpu_s * INTERVALS_PER_CPU))
            self._postpone(claim, again, self.clock() + pause)
            return
        self._delete(claim, resource.id)

    def _summarize(self, claim: Claim, evaluation: ProfileEvaluation, resource: Resource, job: TrainingJob) -> None:
        try:
            self.conclusions.summarize_run(resource, job)
        except InvalidRequest:
            # The yard lacks a package, which nobody has asked for.
            self._delete(claim, resource.id)
        except TrainyardError as error:
            self._handle_failure(claim, evaluation, resource, job, error.message)
        else:
            self._delete(claim, resource.id)

    def _store_reports(self, job: TrainingJob, report: WrittenReport) -> Mapping[str, str]:
        """Store the files of each rule; return why those of some could not be stored, by the name of the rule."""
        failures = {}
        rules = {rule.name: rule for rule in job.plan.profiler.rules} if job.plan.profiler else {}
        for number, concluded in enumerate(report.conclusion.rules):
            try:
                folder = report.folder / str(number)
                self.reports.store(job, rules[concluded.name], folder, concluded.files, now=self.clock())
            except Unavailable:
                raise
            except TrainyardError as error:
                log.warning(
                    "a report could not be stored",
                    extra={"job": job.name, "rule": concluded.name, "why": error.message},
                )
                failures[concluded.name] = f"Its results could not be stored: {error.message}"
        return failures

    def _handle_failure(
        self, claim: Claim, evaluation: ProfileEvaluation, resource: Resource, job: TrainingJob, why: str
    ) -> None:
        failed = replace(evaluation, failures=evaluation.failures + 1)
        log.warning(
            "a profile could not be evaluated",
            extra={"job": job.name, "id": resource.id, "failures": failed.failures, "why": why},
        )
        if job.is_final and failed.failures >= MAX_FAILURES:
            self._settle(claim, resource, why)
            return
        pause = RETRY if job.is_final else INTERVAL
        pause *= 2 ** min(evaluation.failures, 16)
        self._postpone(claim, failed, self.clock() + min(pause, LONGEST_RETRY))

    def _settle(self, claim: Claim, resource: Resource, details: str) -> None:
        """Give up: no later try would do better."""
        self._apply(resource, lambda before: with_status(before, RuleStatus.ERROR, details, now=self.clock()))
        self._delete(claim, resource.id)

    def _apply(self, resource: Resource, change: Callable[[TrainingJob], TrainingJob]) -> None:
        """Store a change of a job that others change too, and request the actions of its new findings before."""
        while True:
            job, now = job_of(resource), self.clock()
            after = add_profiler_notes(job, change(job))
            request_profiler_actions(self.records, resource.id, job, after=after, now=now)
            after = stop_for_profiler_rules(job, after, now=now)
            if after == job:
                return
            events = events_of(job, after)
            if self.records.apply(resource, change_to(resource, after), now=now, events=events) is not None:
                if after.stop_reason != job.stop_reason:
                    self.wake(resource.id)
                return
            try:
                resource = self.records.load_by_id(resource.id)
            except NotFound:
                return

    def _postpone(self, claim: Claim, evaluation: ProfileEvaluation, due_at: datetime) -> None:
        change = Change(body=body_of(evaluation), due_at=due_at, is_quiet=True)
        self.records.apply_claimed(claim, change, now=self.clock(), release=True)

    def _delete(self, claim: Claim, job_id: ResourceId) -> None:
        self.watch.remove(job_id)
        self.records.delete(claim.resource, now=self.clock())


def _has_no_profile(job: TrainingJob) -> bool:
    """Whether there is nothing to evaluate, now or later."""
    return job.is_final and not (job.attempts and (has_rules(job) or leaves_run(job)))


def _next_look(job: TrainingJob, evaluation: ProfileEvaluation, now: datetime) -> datetime | None:
    """Return when to look at a job that has nothing new to evaluate; None if it has."""
    if job.is_final:
        return None
    if not has_rules(job):
        # It is about to end, or has lost its rules.
        return now + LONGEST_WAIT
    if job.secondary not in _TRAINING:
        if evaluation.count:
            # It was interrupted, or is about to end.
            return now + INTERVAL
        return now + min(max(FIRST_WAIT, (now - job.created_at) / 10), LONGEST_WAIT)
    began_at = next(step.started_at for step in job.transitions if step.status in _TRAINING)
    return began_at + FIRST_AFTER if evaluation.count == 0 and now < began_at + FIRST_AFTER else None
