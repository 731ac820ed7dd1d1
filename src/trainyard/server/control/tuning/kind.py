"""Tuning jobs as the controller drives them: claims each with its trials, steps it, and asks its strategy meanwhile."""

import logging
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta

from trainyard.foundation.errors import TrainyardError
from trainyard.server.control.contract import Wake
from trainyard.server.control.tuning.contract import Advisor, Question
from trainyard.server.control.tuning.study import TuningStudy
from trainyard.server.control.tuning.suggestions import PreparedSuggestion
from trainyard.server.control.tuning.work import LEASE, StudyOutdated, TuningWork
from trainyard.server.jobs.tuning import KIND
from trainyard.server.records.contract import ResourceId

log = logging.getLogger(__name__)

POLL_INTERVAL = timedelta(seconds=1)
PAUSE_S = 1.0  # between two steps with a tuning job that nothing wakes
PRUNED_PAUSE_S = 0.1  # the same, while the reports of its trials decide whether they continue
ADVICE_RETRY_S = 1.0

# These threads only wait for answers, so that no thread that others need does.
_ADVICE_THREADS = 2


@dataclass(slots=True)
class DrivenStudy:
    """A tuning job that is claimed here, the question to its strategy, and the trials whose changes wake it."""

    study: TuningStudy
    advice: "PendingAdvice"
    watched: set[str] = field(default_factory=set)  # ids of training jobs
    is_outdated: bool = False  # another yard has changed its trials


class TuningJobKind:
    """The tuning jobs of a yard. The records report changes of their trials, which wake the tuning job."""

    record_kind = KIND
    max_concurrent = None

    def __init__(self, work: TuningWork, advisor: Advisor) -> None:
        self._work, self._advisor = work, advisor
        self._threads = ThreadPoolExecutor(_ADVICE_THREADS, thread_name_prefix="advice")
        self._driven: set[ResourceId] = set()
        self._parents: dict[str, ResourceId] = {}  # by id of a watched training job

    @property
    def lease(self) -> timedelta:
        return LEASE

    @property
    def poll_interval(self) -> timedelta:
        return POLL_INTERVAL

    def open(self, wake: Wake) -> None:
        self._wake = wake
        self._work.records.listen(self._handle_change)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def job_id(self, job: DrivenStudy) -> ResourceId:
        return job.study.id

    def claim_due(self) -> Iterator[DrivenStudy]:
        """Claim the tuning jobs that are not driven here; one that cannot be read does not hold up the others."""
        for tuning_id in self._work.find_due():
            if tuning_id in self._driven:
                continue
            try:
                study = self._work.claim(tuning_id)
            except Exception:
                log.exception("a tuning job could not be claimed", extra={"id": tuning_id})
                continue
            if study is not None:
                self._driven.add(tuning_id)
                yield DrivenStudy(study, self._pending_advice(tuning_id))

    def step(self, job: DrivenStudy, changed: Collection[str]) -> DrivenStudy | None:
        study = job.study
        job.advice.collect(study)
        try:
            is_held = self._work.step(study, changed)
        except StudyOutdated as error:
            log.warning("a tuning job is read again", extra={"id": study.id, "why": error.message})
            job.is_outdated = True
            return None
        self._watch_trials(job)
        if not is_held:
            return None
        job.advice.request(study)
        return job

    def pause_s(self, job: DrivenStudy) -> float:
        return PRUNED_PAUSE_S if job.study.is_pruned and job.study.rows else PAUSE_S

    def extend_lease(self, job: DrivenStudy) -> None:
        self._work.records.renew(job.study.claim, lease=LEASE, now=self._work.clock())

    def release(self, job: DrivenStudy, *, is_held: bool) -> None:
        try:
            if is_held or job.is_outdated:
                self._work.release(job.study)
        finally:
            for job_id in job.watched:
                self._parents.pop(job_id, None)
            self._driven.discard(job.study.id)

    def _pending_advice(self, tuning_id: ResourceId) -> "PendingAdvice":
        return PendingAdvice(self._advisor, self._threads, lambda: self._wake(tuning_id, ""))

    def _handle_change(self, changed: ResourceId) -> None:
        """Wake the tuning job of a trial, in the thread that made the change. Most changes are of no trial."""
        if (tuning_id := self._parents.get(changed)) is not None:
            self._wake(tuning_id, changed)

    def _watch_trials(self, job: DrivenStudy) -> None:
        """Watch the training job of every trial that runs, and no other."""
        running = {trial.job_id for trial in job.study.running}
        for job_id in running - job.watched:
            self._parents[job_id] = job.study.id
            # It may have ended before it was watched.
            self._wake(job.study.id, job_id)
        for job_id in job.watched - running:
            self._parents.pop(job_id, None)
        job.watched = running


class PendingAdvice:
    """The question to the strategy of one tuning job, if one is pending. Only one thread at a time may use it."""

    def __init__(self, advisor: Advisor, threads: ThreadPoolExecutor, wake: Callable[[], None]) -> None:
        self._advisor, self._threads, self._wake = advisor, threads, wake
        self._future: Future[tuple[PreparedSuggestion, float]] | None = None
        self._next_request_at = 0.0  # by the monotonic clock

    def request(self, study: TuningStudy) -> None:
        """Ask the strategy if the tuning job needs a suggestion; wake it when the answer is there."""
        if self._future is None and study.wants_advice() and time.monotonic() >= self._next_request_at:
            self._future = self._threads.submit(self._ask, study.question(), study.ended)
            self._future.add_done_callback(lambda _: self._wake())

    def collect(self, study: TuningStudy) -> None:
        """Give the answer to the tuning job, if it is there."""
        if self._future is None or not self._future.done():
            return
        future, self._future = self._future, None
        try:
            prepared, took_s = future.result()
        except TrainyardError as error:
            log.warning("a strategy must be asked again", extra={"id": study.id, "why": error.message})
            self._next_request_at = time.monotonic() + ADVICE_RETRY_S
            return
        study.prepared = prepared
        study.pace.answer_s.append(took_s)

    def _ask(self, question: Question, ended: int) -> tuple[PreparedSuggestion, float]:
        started = time.monotonic()
        suggestion = self._advisor.suggest(question)
        took_s = time.monotonic() - started
        if suggestion is not None and suggestion.cpu_s is not None:
            # What counts is how long a free slot would wait, and then its processor is free too. While trials use all
            # processors, a question of low priority may take ten times as long.
            took_s = suggestion.cpu_s
        return PreparedSuggestion(question.number, ended, suggestion), took_s
