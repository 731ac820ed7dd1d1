"""Moves tuning jobs: reads the results of trials, stops those that are not promising, starts others, and finishes.

A trial is stored with its values before its training job exists. The name of that job follows from the number of the
trial, so a trial that is started twice is the same job. Start and end of a trial are stored in one write each. A yard
may be killed between any two of these steps; the next one does the rest.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from trainyard.foundation.clock import EPOCH, Clock
from trainyard.foundation.errors import AlreadyExists, LimitExceeded, NotFound, TrainyardError, Unavailable
from trainyard.foundation.jobs.status import FINAL, Status
from trainyard.foundation.jobs.training.transitions import ask_to_stop
from trainyard.foundation.jobs.tuning import EarlyStopping, TrialStatus, TuningJob, TuningStatus, TuningTrial
from trainyard.insight.tuning.completion import why_complete
from trainyard.insight.tuning.contract import TrialCurve
from trainyard.server.control.tuning.contract import TrialLauncher, TrialPruner
from trainyard.server.control.tuning.curves import LiveCurve
from trainyard.server.control.tuning.outcomes import (
    STOPPED_EARLY,
    TUNING_OVER,
    end_trial,
    fail_deleted_trial,
    fail_trial,
)
from trainyard.server.control.tuning.study import ALL_STARTED, TuningStudy, load_study, time_of_end
from trainyard.server.control.tuning.warm_start import load_parents
from trainyard.server.jobs import training as training_jobs
from trainyard.server.jobs.tuning import (
    KIND,
    change_to,
    events_of,
    job_of,
    site_of,
    trial_change,
    trial_draft,
    trials_of,
)
from trainyard.server.records.contract import Change, Records, Resource, ResourceId, ResourceKey

log = logging.getLogger(__name__)

LEASE = timedelta(seconds=5)  # how long a tuning job waits for a yard that was killed
POLL_TRIALS_INTERVAL = timedelta(seconds=3)  # for trials whose changes were not reported
LAUNCH_RETRY_PAUSE = timedelta(seconds=1)

_MESSAGE_LENGTH = 500
# Stored as the beginning of a note, and looked for there, so it must not change.
_WAITS = "Trials wait to be begun:"


class StudyOutdated(TrainyardError):
    """Another yard has changed a trial, so the study in memory is outdated."""

    def __init__(self, study: TuningStudy) -> None:
        super().__init__(f"Another yard has changed the tuning job {study.known.name}.")


@dataclass(frozen=True, slots=True)
class TuningWork:
    """The work on tuning jobs, one step per call. Calls block; different threads may work on different tuning jobs."""

    records: Records
    launcher: TrialLauncher
    pruner: TrialPruner
    jobs: Path  # folders of training jobs
    clock: Clock
    worker: str
    site: str  # of this yard among several on one database; empty if it is the only one
    wake: Callable[[str], None]  # wakes the controller of a training job

    def find_due(self) -> list[ResourceId]:
        """Return the tuning jobs of this yard that have not ended, the oldest first, held or not."""
        found = self.records.in_state(KIND)
        return [each.id for each in found if site_of(each) in ("", self.site)]

    def claim(self, tuning_id: ResourceId) -> TuningStudy | None:
        """Claim a tuning job and load all its trials; None if another yard holds it."""
        claim = self.records.claim_next(KIND, worker=self.worker, lease=LEASE, now=self.clock(), only=tuning_id)
        if claim is None:
            return None
        parents = load_parents(self.records, job_of(claim.resource))
        return load_study(claim, list(trials_of(self.records, tuning_id)), parents=parents)

    def release(self, study: TuningStudy) -> None:
        """Give a claimed tuning job back as it is."""
        change = Change(due_at=study.known.created_at, is_quiet=True)
        self.records.apply_claimed(study.claim, change, now=self.clock(), release=True)

    def step(self, study: TuningStudy, changed: Collection[str]) -> bool:
        """Take one step; return False if the tuning job has ended or is no longer held.

        `changed` has the ids of records that others changed since the last step: training jobs of trials, or the tuning
        job. StudyOutdated is raised if the study must be loaded again.
        """
        if not self._renew(study, is_woken=study.id in changed):
            return False
        before = study.ended
        self._read_results(study, changed)
        self._prune(study, has_ended=study.ended > before)
        self._decide(study)
        if study.is_ending:
            self._end_trials(study)
        else:
            self._start_next(study)
        return self._store(study)

    def _renew(self, study: TuningStudy, *, is_woken: bool) -> bool:
        """Renew the claim if it is about to expire or others changed the record; return whether it is still held."""
        now = self.clock()
        if not is_woken and study.claim.expires_at - now >= LEASE * 2 / 3:
            return True
        renewed = self.records.renew(study.claim, lease=LEASE, now=now)
        if renewed is None:
            return False
        study.hold(renewed)
        return True

    def _read_results(self, study: TuningStudy, changed: Collection[str]) -> None:
        """Store the results of trials whose training jobs have ended."""
        now = self.clock()
        is_poll = now - study.polled_at >= POLL_TRIALS_INTERVAL
        seen = [trial for trial in study.running if is_poll or trial.job_id in changed]
        over = [after for trial in seen if (after := self._after_end(study, trial)).has_ended]
        for trial in sorted(over, key=time_of_end):
            self._write(study, trial)
            # The quotas have room again.
            study.pauses_until = EPOCH
            names = {"tuning_job": study.known.name, "job": trial.job, "status": trial.status}
            log.info("trial ended", extra=names)
        if is_poll:
            study.polled_at = now

    def _after_end(self, study: TuningStudy, trial: TuningTrial) -> TuningTrial:
        """Return the trial with its result, or as it is while its training job runs."""
        try:
            resource = self.records.load_by_id(ResourceId(trial.job_id))
        except NotFound:
            return fail_deleted_trial(trial, at=self.clock())
        if resource.status not in FINAL:
            return trial
        after = end_trial(trial, training_jobs.job_of(resource), metric=study.metric_of(trial))
        if not study.is_pruned:
            return after
        curve = self._curve(study, trial)
        curve.read()
        return replace(after, curve=tuple(curve.values))

    def _prune(self, study: TuningStudy, *, has_ended: bool) -> None:
        """Stop the trials that are not promising, by the curves of all trials."""
        if not study.is_pruned:
            return
        new = {trial.number for trial in study.running if self._read_curve(study, trial)}
        # The median rule looks only at a trial's own report, as AWS documents it. The other rules also learn from other
        # trials: Hyperband from each report, and extrapolation, which costs more, only from whole curves.
        rule = study.plan.early_stopping
        learns = has_ended if rule is EarlyStopping.CURVE else bool(new) and rule is not EarlyStopping.MEDIAN
        candidates = {each.number for each in study.running} if learns else new
        checked = candidates & (study.runs.keys() - study.stopping)
        for trial in [each for each in study.running if each.number in checked]:
            self._check_trial(study, trial)

    def _read_curve(self, study: TuningStudy, trial: TuningTrial) -> bool:
        curve = self._curve(study, trial)
        if not curve.read():
            return False
        study.runs[trial.number] = TrialCurve(trial.number, tuple(curve.values))
        return True

    def _curve(self, study: TuningStudy, trial: TuningTrial) -> LiveCurve:
        if trial.number not in study.curves:
            curve = LiveCurve(self.jobs, ResourceId(trial.job_id), study.metric_of(trial))
            study.curves[trial.number] = curve
        return study.curves[trial.number]

    def _check_trial(self, study: TuningStudy, trial: TuningTrial) -> None:
        run, others = study.runs[trial.number], study.runs_beside(trial)
        why = self.pruner.stop_reason(study.id, study.plan, definition=trial.definition, run=run, others=others)
        if why is not None:
            log.info("trial is not promising", extra={"job": trial.job, "why": why})
            self._stop(
                study, trial, STOPPED_EARLY, message=f"Stopped early by the tuning job {study.known.name}: {why}"
            )

    def _stop(self, study: TuningStudy, trial: TuningTrial, reason: str, *, message: str) -> None:
        """Ask the training job of a trial to stop, unless it has ended or is about to."""
        while True:
            try:
                resource = self.records.load_by_id(ResourceId(trial.job_id))
            except NotFound:
                break
            job = training_jobs.job_of(resource)
            if job.status is not Status.IN_PROGRESS:
                break
            after = ask_to_stop(job, reason, at=self.clock(), message=message[:_MESSAGE_LENGTH])
            change, events = training_jobs.change_to(resource, after), training_jobs.events_of(job, after)
            if self.records.apply(resource, change, now=self.clock(), events=events) is not None:
                self.wake(resource.id)
                break
        study.stopping.add(trial.number)

    def _decide(self, study: TuningStudy) -> None:
        """Decide whether to start no more trials, or also to stop those that run."""
        if study.is_ending:
            return
        if study.is_overdue(self.clock()):
            study.stop_reason = f"Its time limit of {study.plan.max_runtime_s} s is over."
        elif study.is_hopeless():
            study.failure = (
                f"Its first {study.ended} training jobs all failed. The most common reason: {_commonest(study)}"
            )
            study.stop_reason = study.failure
        elif (reason := why_complete(study.plan, study.progress)) is not None:
            study.stop_reason = reason
        elif study.has_all and not study.stop_reason:
            study.stop_reason = ALL_STARTED

    def _end_trials(self, study: TuningStudy) -> None:
        """Stop all running trials, and forget one that was planned but never started."""
        waiting = study.waiting
        if waiting is not None:
            self._drop(study, waiting)
        name = study.known.name
        why = f"The tuning job {name} was stopped." if study.is_stopped else f"The tuning job {name} is over."
        for trial in study.running:
            if trial.number not in study.stopping:
                self._stop(
                    study, trial, TUNING_OVER, message=f"{why} {'' if study.is_stopped else study.stop_reason}".strip()
                )

    def _drop(self, study: TuningStudy, trial: TuningTrial) -> None:
        """Forget a trial, unless its training job exists because a yard was killed before it stored the start."""
        try:
            found = self.records.load(ResourceKey(study.known.account, training_jobs.KIND, trial.job))
        except NotFound:
            found = None
        if found is not None and trial.created_at is not None and found.created_at >= trial.created_at:
            self._write(study, replace(trial, status=TrialStatus.IN_PROGRESS, job_id=found.id))
            return
        if not self.records.delete(study.rows[trial.number], now=self.clock()):
            raise StudyOutdated(study)
        study.drop(trial.number)

    def _start_next(self, study: TuningStudy) -> None:
        """Plan a trial if a slot is free, and start the one that was planned."""
        now = self.clock()
        planned = study.next_trial(now) if study.waiting is None else None
        if planned is not None:
            try:
                study.put(self.records.create(trial_draft(study.claim.resource, planned), now=now))
            except (AlreadyExists, NotFound) as error:
                raise StudyOutdated(study) from error
        waiting = study.waiting
        if waiting is not None and now >= study.pauses_until:
            self._launch(study, waiting)

    def _launch(self, study: TuningStudy, trial: TuningTrial) -> None:
        try:
            job_id = self.launcher.launch(study.claim.resource, trial, now=self.clock())
        except (LimitExceeded, Unavailable) as error:
            study.pauses_until = self.clock() + LAUNCH_RETRY_PAUSE
            if not any(note.startswith(_WAITS) for note in study.job.notes):
                log.info("a trial must wait", extra={"job": trial.job, "why": error.message})
                study.notes = (*study.notes, f"{_WAITS} {error.message}")
        except TrainyardError as error:
            log.warning("a trial could not be started", extra={"job": trial.job, "why": error.message})
            self._write(study, fail_trial(trial, error.message, at=self.clock()))
        else:
            self._write(study, replace(trial, status=TrialStatus.IN_PROGRESS, job_id=job_id))
            log.info("trial started", extra={"tuning_job": study.known.name, "job": trial.job})

    def _write(self, study: TuningStudy, trial: TuningTrial) -> Resource:
        row = self.records.apply(study.rows[trial.number], trial_change(trial), now=self.clock())
        if row is None:
            raise StudyOutdated(study)
        study.put(row)
        return row

    def _store(self, study: TuningStudy) -> bool:
        """Store what is new; return whether the tuning job continues."""
        now = self.clock()
        job = study.job
        if job.stop_reason and not study.rows:
            job = _finish(study, at=now)
        if job == study.known:
            return True
        change, events = change_to(study.claim.resource, job), events_of(study.known, job)
        applied = self.records.apply_claimed(study.claim, change, now=now, events=events, release=job.is_final)
        if applied is None:
            # A user stopped it first, which the next step reads; or the claim is lost.
            return self._renew(study, is_woken=True)
        study.hold(applied)
        if job.is_final:
            log.info("tuning job ended", extra={"tuning_job": job.name, "id": study.id, "status": job.status})
        return not job.is_final


def _finish(study: TuningStudy, *, at: datetime) -> TuningJob:
    """Return the tuning job in its final status. It has failed only if no trial was measured."""
    job = study.job
    if study.is_stopped:
        return replace(job, status=TuningStatus.STOPPED, ended_at=at)
    if study.progress.measured:
        return replace(job, status=TuningStatus.COMPLETED, ended_at=at)
    failure = job.failure or _nothing_measured(study)
    return replace(job, status=TuningStatus.FAILED, failure=failure, ended_at=at)


def _nothing_measured(study: TuningStudy) -> str:
    if not study.trials:
        return f"No training job was started. {study.job.stop_reason}"
    return (
        f"None of its {len(study.trials)} training jobs has an objective. The most common reason: {_commonest(study)}"
    )


def _commonest(study: TuningStudy) -> str:
    """Return the most common reason of trials without an objective."""
    reasons: Sequence[str] = [trial.why for trial in study.trials.values() if trial.why]
    return Counter(reasons).most_common(1)[0][0] if reasons else "none given."
