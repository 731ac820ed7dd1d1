"""A tuning job in memory: all its trials, read once, and the curves of those that run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from trainyard.foundation.clock import EPOCH
from trainyard.foundation.jobs.tuning import (
    EarlyStopping,
    StrategyKind,
    TrialStatus,
    TuningJob,
    TuningPlan,
    TuningStatus,
    TuningTrial,
)
from trainyard.insight.tuning.completion import Progress, after_trial, has_converged, progress_of
from trainyard.insight.tuning.contract import TrialCurve
from trainyard.server.control.tuning.contract import Question
from trainyard.server.control.tuning.curves import LiveCurve
from trainyard.server.control.tuning.outcomes import is_fruitless
from trainyard.server.control.tuning.suggestions import PreparedSuggestion, TrialPace
from trainyard.server.jobs.tuning import job_of, trial_name, trial_of
from trainyard.server.records.contract import Claim, Resource, ResourceId

# Why no more trials are started although others still run. Both are stored and compared when a study is loaded, so the
# texts must not change.
ALL_STARTED = "All training jobs that it may have were started."
NOTHING_LEFT = "There is nothing left to try."

# A study fails if all of its first trials failed, at least this many.
MIN_TRIALS_TO_FAIL = 5


@dataclass(slots=True)
class TuningStudy:
    """One tuning job that this yard holds. Only one thread at a time may use it.

    All counts follow from the trials, which are stored one by one. The record of the tuning job repeats the counts for
    describe calls.
    """

    claim: Claim
    known: TuningJob  # as it is stored
    trials: dict[int, TuningTrial]
    rows: dict[int, Resource]  # of the trials that have not ended
    parents: Mapping[str, Sequence[TuningTrial]]
    progress: Progress
    pace: TrialPace
    curves: dict[int, LiveCurve] = field(default_factory=dict)
    runs: dict[int, TrialCurve] = field(default_factory=dict)
    stopping: set[int] = field(default_factory=set)  # trials that were asked to stop
    prepared: PreparedSuggestion | None = None
    stop_reason: str = ""
    failure: str = ""
    notes: tuple[str, ...] = ()
    converged_at: datetime | None = None
    polled_at: datetime = EPOCH  # when all running trials were last checked
    pauses_until: datetime = EPOCH  # after a trial could not be started

    @property
    def id(self) -> ResourceId:
        return self.claim.resource.id

    @property
    def job(self) -> TuningJob:
        """The tuning job as it should be stored."""
        return replace(
            self.known,
            planned=len(self.trials),
            measured=self.progress.measured,
            best=self.progress.best,
            since_best=self.progress.since_best,
            converged_at=self.converged_at,
            stop_reason=self.known.stop_reason if self.is_stopped else self.stop_reason,
            failure=self.failure,
            notes=tuple(dict.fromkeys((*self.known.notes, *self.notes))),
        )

    @property
    def plan(self) -> TuningPlan:
        return self.known.plan

    @property
    def is_stopped(self) -> bool:
        """Whether a user stopped it."""
        return self.known.status is TuningStatus.STOPPING

    @property
    def is_ending(self) -> bool:
        """Whether running trials should stop too."""
        return self.is_stopped or self.stop_reason not in ("", ALL_STARTED, NOTHING_LEFT)

    @property
    def has_all(self) -> bool:
        """Whether no more trials will be planned."""
        limit = self.plan.max_trials
        return self.is_stopped or bool(self.stop_reason) or (limit is not None and len(self.trials) >= limit)

    @property
    def ended(self) -> int:
        return len(self.trials) - len(self.rows)

    @property
    def is_pruned(self) -> bool:
        plan = self.plan
        return plan.strategy is StrategyKind.HYPERBAND or plan.early_stopping is not EarlyStopping.OFF

    @property
    def running(self) -> list[TuningTrial]:
        """The trials that have a training job and have not ended."""
        return [trial for number in self.rows if (trial := self.trials[number]).job_id]

    @property
    def waiting(self) -> TuningTrial | None:
        """The trial whose training job does not exist yet. There is at most one, and it is the last."""
        last = self.trials.get(len(self.trials))
        return last if last is not None and last.status is TrialStatus.PLANNED else None

    @property
    def has_room(self) -> bool:
        """Whether another trial may be planned now."""
        return not self.has_all and self.waiting is None and len(self.rows) < self.plan.max_parallel

    def wants_advice(self) -> bool:
        """Whether to ask the strategy now: a slot is free, or will be before the answer comes."""
        if self.has_all or self.waiting is not None:
            return False
        if self.prepared is not None:
            return self.has_room and not self.pace.accepts(self.prepared, ended=self.ended)
        return self.has_room or self.pace.asks_ahead

    def question(self) -> Question:
        trials = [self.trials[number] for number in sorted(self.trials)]
        return Question(self.plan, len(self.trials) + 1, trials, self.parents, study=self.id)

    def next_trial(self, now: datetime) -> TuningTrial | None:
        """Return the next trial; None if no slot is free, or no suggestion is fresh enough."""
        if self.prepared is None or not self.has_room or not self.pace.accepts(self.prepared, ended=self.ended):
            return None
        prepared, number = self.prepared, len(self.trials) + 1
        self.prepared = None
        assert prepared.number == number, "a suggestion is for the next trial"
        if prepared.suggestion is None:
            self.stop_reason = NOTHING_LEFT
            return None
        name = trial_name(self.known.name, self.id, number)
        definition, values = prepared.suggestion.definition, prepared.suggestion.values
        return TuningTrial(number, name, definition, values, created_at=now)

    def hold(self, claim: Claim) -> None:
        """Continue with the tuning job as it is stored now."""
        self.claim, self.known = claim, job_of(claim.resource)

    def put(self, row: Resource) -> None:
        """Update a trial from its record."""
        trial = trial_of(row)
        self.trials[trial.number] = trial
        if not trial.has_ended:
            self.rows[trial.number] = row
            return
        self.rows.pop(trial.number, None)
        self.curves.pop(trial.number, None)
        self.stopping.discard(trial.number)
        if self.is_pruned:
            self.runs[trial.number] = run_of(trial)
        self.progress = after_trial(self.progress, trial, plan=self.plan)
        if self.converged_at is None and has_converged(self.progress):
            self.converged_at = trial.ended_at
        self.pace.add(trial)

    def drop(self, number: int) -> None:
        """Forget a trial that was planned but never started."""
        del self.trials[number], self.rows[number]

    def runs_beside(self, trial: TuningTrial) -> list[TrialCurve]:
        """Return the runs of all other trials of the same definition."""
        return [
            run
            for number, run in self.runs.items()
            if number != trial.number and self.trials[number].definition == trial.definition
        ]

    def is_hopeless(self) -> bool:
        """Whether all of the first trials failed, so that more would be useless."""
        fewest = max(MIN_TRIALS_TO_FAIL, self.plan.max_parallel)
        if self.progress.measured or self.ended < fewest:
            return False
        first = (self.trials[number] for number in range(1, fewest + 1))
        return all(each.has_ended and is_fruitless(each, metric=self.metric_of(each)) for each in first)

    def metric_of(self, trial: TuningTrial) -> str:
        return self.plan.definition(trial.definition).objective.metric

    def is_overdue(self, now: datetime) -> bool:
        """Whether its time limit is over."""
        limit_s = self.plan.max_runtime_s
        return limit_s is not None and now - self.known.created_at >= timedelta(seconds=limit_s)


def load_study(claim: Claim, rows: Sequence[Resource], *, parents: Mapping[str, Sequence[TuningTrial]]) -> TuningStudy:
    """Build a study from the records of a tuning job and its trials."""
    trials = {trial.number: trial for trial in map(trial_of, rows)}
    known = job_of(claim.resource)
    over = sorted((each for each in trials.values() if each.has_ended), key=time_of_end)
    study = TuningStudy(
        claim,
        known,
        trials,
        rows={trial_of(row).number: row for row in rows if not trial_of(row).has_ended},
        parents=parents,
        progress=progress_of(known.plan, over),
        pace=TrialPace.of(over),
        stop_reason=known.stop_reason,
        failure=known.failure,
        converged_at=known.converged_at,
    )
    if study.is_pruned:
        study.runs = {trial.number: run_of(trial) for trial in over}
    return study


def run_of(trial: TuningTrial) -> TrialCurve:
    """Return a trial that has ended, as a pruner sees it."""
    is_cut_short = trial.status is not TrialStatus.COMPLETED and trial.cause is not None
    return TrialCurve(
        trial.number, trial.curve, is_over=True, is_cut_short=is_cut_short or trial.status is TrialStatus.FAILED
    )


def time_of_end(trial: TuningTrial) -> tuple[datetime, int]:
    """Return a sort key for ended trials that is the same for every yard."""
    return trial.ended_at or EPOCH, trial.number
