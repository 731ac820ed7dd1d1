"""Moves tuning jobs: takes in what trials came to, ends those that are not promising, begins others, and concludes.

A trial is remembered with its values before its training job exists; the name of that job follows from the trial's
number, so that a trial that is begun again is the same job; and a trial is remembered as begun, or as ended, in one
write. Whoever is killed between any two of these, the next one does the rest.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from trainyard.foundation.clock import EPOCH, Clock
from trainyard.foundation.errors import AlreadyExists, LimitExceeded, NotFound, TrainyardError, Unavailable
from trainyard.foundation.jobs import FINAL, Status
from trainyard.foundation.transitions import ask_to_stop
from trainyard.foundation.tuning import EarlyStopping, Trial, TrialStatus, TuningJob, TuningStatus
from trainyard.insight.tuning.completion import why_complete
from trainyard.insight.tuning.contract import Run
from trainyard.server import jobs as training_jobs
from trainyard.server.control.tuning.contract import Judge, TrialLauncher
from trainyard.server.control.tuning.curves import LiveCurve
from trainyard.server.control.tuning.outcomes import EARLY, OVER, ended, failed, gone
from trainyard.server.control.tuning.parents import parents_of
from trainyard.server.control.tuning.study import ALL_STARTED, Study, study_of, time_of_end
from trainyard.server.records.contract import Change, Records, Resource, ResourceId, ResourceKey
from trainyard.server.tuning import (
    KIND,
    change_to,
    events_of,
    site_of,
    trial_change,
    trial_draft,
    trials_of,
    tuning_job_of,
)

log = logging.getLogger(__name__)

LEASE = timedelta(seconds=5)  # how long a tuning job waits for a yard that was killed
LOOK_INTERVAL = timedelta(seconds=3)  # between looks at trials of which nothing was heard
LAUNCH_PAUSE = timedelta(seconds=1)  # before a trial that could not be begun for now is begun again

_MESSAGE_LENGTH = 500
_WAITS = "Trials wait to be begun:"


class Moved(TrainyardError):
    """Somebody else has worked on a trial: what is held in memory is not the truth any more."""

    def __init__(self, study: Study) -> None:
        super().__init__(f"Another yard has moved the tuning job {study.known.name} on.")


@dataclass(frozen=True, slots=True)
class TuningWork:
    """The work on tuning jobs, one call a round. Calls block; those for different tuning jobs may be made at once."""

    records: Records
    launcher: TrialLauncher
    judge: Judge
    jobs: Path  # the folders of training jobs
    clock: Clock
    worker: str
    site: str  # of this yard among several on one database; empty where it is the only one
    wake: Callable[[str], None]  # tells the controller of training jobs that one has changed

    def due(self) -> list[ResourceId]:
        """The tuning jobs of this yard that have not ended, the oldest first, held or not."""
        found = self.records.due_until(KIND, self.clock())
        return [each.id for each in found if site_of(each) in ("", self.site)]

    def take(self, id: ResourceId) -> Study | None:  # noqa: A002 - the domain's word
        """A tuning job with all its trials; None when another one holds it."""
        claim = self.records.claim_next(KIND, worker=self.worker, lease=LEASE, now=self.clock(), only=id)
        if claim is None:
            return None
        parents = parents_of(self.records, tuning_job_of(claim.resource))
        return study_of(claim, list(trials_of(self.records, id)), parents=parents)

    def release(self, study: Study) -> None:
        """Give a tuning job back as it is, for the next who takes it."""
        change = Change(due_at=study.known.created_at, is_quiet=True)
        self.records.apply_claimed(study.claim, change, now=self.clock(), release=True)

    def round(self, study: Study, heard: Collection[str]) -> bool:
        """One round; False when the tuning job has ended, or is no longer held.

        `heard` are the ids of what others changed since the last round: trials' training jobs, or the tuning job. Moved
        is raised when this must begin anew from what is remembered.
        """
        if not self._is_held(study, is_woken=study.id in heard):
            return False
        before = study.ended
        self._take_in(study, heard)
        self._prune(study, has_ended=study.ended > before)
        self._decide(study)
        if study.is_ending:
            self._end_trials(study)
        else:
            self._begin_next(study)
        return self._is_remembered(study)

    def _is_held(self, study: Study, *, is_woken: bool) -> bool:
        now = self.clock()
        if not is_woken and study.claim.expires_at - now >= LEASE * 2 / 3:
            return True
        renewed = self.records.renew(study.claim, lease=LEASE, now=now)
        if renewed is None:
            return False
        study.hold(renewed)
        return True

    def _take_in(self, study: Study, heard: Collection[str]) -> None:
        """Remember what came of trials whose training jobs have ended."""
        now = self.clock()
        is_look = now - study.looked_at >= LOOK_INTERVAL
        seen = [trial for trial in study.begun if is_look or trial.job_id in heard]
        over = [after for trial in seen if (after := self._after_end(study, trial)).has_ended]
        for trial in sorted(over, key=time_of_end):
            self._write(study, trial)
            study.pauses_until = EPOCH  # there is room in the quotas again
            told = {"tuning_job": study.known.name, "job": trial.job, "status": trial.status}
            log.info("trial ended", extra=told)
        if is_look:
            study.looked_at = now

    def _after_end(self, study: Study, trial: Trial) -> Trial:
        """The trial after the end of its training job, or as it is while that goes on."""
        try:
            resource = self.records.load_by_id(ResourceId(trial.job_id))
        except NotFound:
            return gone(trial, at=self.clock())
        if resource.status not in FINAL:
            return trial
        after = ended(trial, training_jobs.job_of(resource), metric=study.metric_of(trial))
        if not study.is_pruned:
            return after
        curve = self._curve(study, trial)
        curve.look()
        return replace(after, curve=tuple(curve.values))

    def _prune(self, study: Study, *, has_ended: bool) -> None:
        """Stop the trials that are not promising, as what they and others have reported tells."""
        if not study.is_pruned:
            return
        news = {trial.number for trial in study.begun if self._has_news(study, trial)}
        # The median rule looks at a trial's own report, as AWS documents it. The others learn from those of others too:
        # Hyperband from each, and the rule that forecasts, which costs more, from a whole curve.
        rule = study.plan.early_stopping
        learns = has_ended if rule is EarlyStopping.CURVE else bool(news) and rule is not EarlyStopping.MEDIAN
        asked = {each.number for each in study.begun} if learns else news
        judged = asked & (study.runs.keys() - study.stopping)
        for trial in [each for each in study.begun if each.number in judged]:
            self._judge(study, trial)

    def _has_news(self, study: Study, trial: Trial) -> bool:
        curve = self._curve(study, trial)
        if not curve.look():
            return False
        study.runs[trial.number] = Run(trial.number, tuple(curve.values))
        return True

    def _curve(self, study: Study, trial: Trial) -> LiveCurve:
        if trial.number not in study.curves:
            curve = LiveCurve(self.jobs, ResourceId(trial.job_id), study.metric_of(trial))
            study.curves[trial.number] = curve
        return study.curves[trial.number]

    def _judge(self, study: Study, trial: Trial) -> None:
        run, others = study.runs[trial.number], study.runs_beside(trial)
        why = self.judge.verdict(study.id, study.plan, definition=trial.definition, run=run, others=others)
        if why is not None:
            log.info("trial is not promising", extra={"job": trial.job, "why": why})
            self._stop(study, trial, EARLY, message=f"Stopped early by the tuning job {study.known.name}: {why}")

    def _stop(self, study: Study, trial: Trial, reason: str, *, message: str) -> None:
        """Tell a trial's training job to stop, unless it has ended or is about to."""
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

    def _decide(self, study: Study) -> None:
        """Find out whether there is a reason to start no more trials, or to end also those that run."""
        if study.is_ending:
            return
        if study.is_overdue(self.clock()):
            study.stop_reason = f"Its time of {study.plan.max_runtime_s} s is over."
        elif study.is_hopeless():
            study.failure = f"Its first {study.ended} training jobs all failed, most of them so: {_commonest(study)}"
            study.stop_reason = study.failure
        elif (reason := why_complete(study.plan, study.progress)) is not None:
            study.stop_reason = reason
        elif study.has_all and not study.stop_reason:
            study.stop_reason = ALL_STARTED

    def _end_trials(self, study: Study) -> None:
        """Stop all trials that run, and forget one that was planned and never begun."""
        waiting = study.waiting
        if waiting is not None:
            self._drop(study, waiting)
        name = study.known.name
        why = f"The tuning job {name} was stopped." if study.is_stopped else f"The tuning job {name} is over."
        for trial in study.begun:
            if trial.number not in study.stopping:
                self._stop(study, trial, OVER, message=f"{why} {'' if study.is_stopped else study.stop_reason}".strip())

    def _drop(self, study: Study, trial: Trial) -> None:
        """Forget a trial, unless its training job exists: whoever began it was killed before that was remembered."""
        try:
            found = self.records.load(ResourceKey(study.known.account, training_jobs.KIND, trial.job))
        except NotFound:
            found = None
        if found is not None and trial.created_at is not None and found.created_at >= trial.created_at:
            self._write(study, replace(trial, status=TrialStatus.IN_PROGRESS, job_id=found.id))
            return
        if not self.records.delete(study.rows[trial.number], now=self.clock()):
            raise Moved(study)
        study.drop(trial.number)

    def _begin_next(self, study: Study) -> None:
        """Plan a trial where a slot is free, and begin the one that was planned."""
        now = self.clock()
        planned = study.next_trial(now) if study.waiting is None else None
        if planned is not None:
            try:
                study.put(self.records.create(trial_draft(study.claim.resource, planned), now=now))
            except (AlreadyExists, NotFound) as error:
                raise Moved(study) from error
        waiting = study.waiting
        if waiting is not None and now >= study.pauses_until:
            self._launch(study, waiting)

    def _launch(self, study: Study, trial: Trial) -> None:
        try:
            job_id = self.launcher.launch(study.claim.resource, trial, now=self.clock())
        except (LimitExceeded, Unavailable) as error:
            study.pauses_until = self.clock() + LAUNCH_PAUSE
            if not any(note.startswith(_WAITS) for note in study.job.notes):
                log.info("a trial must wait", extra={"job": trial.job, "why": error.message})
                study.notes = (*study.notes, f"{_WAITS} {error.message}")
        except TrainyardError as error:
            log.warning("a trial could not be begun", extra={"job": trial.job, "why": error.message})
            self._write(study, failed(trial, error.message, at=self.clock()))
        else:
            self._write(study, replace(trial, status=TrialStatus.IN_PROGRESS, job_id=job_id))
            log.info("trial begun", extra={"tuning_job": study.known.name, "job": trial.job})

    def _write(self, study: Study, trial: Trial) -> Resource:
        row = self.records.apply(study.rows[trial.number], trial_change(trial), now=self.clock())
        if row is None:
            raise Moved(study)
        study.put(row)
        return row

    def _is_remembered(self, study: Study) -> bool:
        """Whether the tuning job goes on, after all that is new of it was written."""
        now = self.clock()
        job = study.job
        if job.stop_reason and not study.rows:
            job = _concluded(study, at=now)
        if job == study.known:
            return True
        change, events = change_to(study.claim.resource, job), events_of(study.known, job)
        applied = self.records.apply_claimed(study.claim, change, now=now, events=events, release=job.is_final)
        if applied is None:  # a user's stop was first, of which the next round is told; or the claim is lost
            return self._is_held(study, is_woken=True)
        study.hold(applied)
        if job.is_final:
            log.info("tuning job ended", extra={"tuning_job": job.name, "id": study.id, "status": job.status})
        return not job.is_final


def _concluded(study: Study, *, at: datetime) -> TuningJob:
    """The tuning job in its final status; it has failed only if nothing at all was measured."""
    job = study.job
    if study.is_stopped:
        return replace(job, status=TuningStatus.STOPPED, ended_at=at)
    if study.progress.measured:
        return replace(job, status=TuningStatus.COMPLETED, ended_at=at)
    failure = job.failure or _nothing_measured(study)
    return replace(job, status=TuningStatus.FAILED, failure=failure, ended_at=at)


def _nothing_measured(study: Study) -> str:
    if not study.trials:
        return f"No training job was begun. {study.job.stop_reason}"
    return f"None of its {len(study.trials)} training jobs was measured; most of them say: {_commonest(study)}"


def _commonest(study: Study) -> str:
    """The reason that most trials without a measure give."""
    reasons: Sequence[str] = [trial.why for trial in study.trials.values() if trial.why]
    return Counter(reasons).most_common(1)[0][0] if reasons else "nothing."
