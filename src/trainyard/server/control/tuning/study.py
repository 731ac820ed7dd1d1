"""A tuning job in memory: all its trials, read once, and what is known of those that run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from trainyard.foundation.clock import EPOCH
from trainyard.foundation.tuning import (
    EarlyStopping,
    StrategyKind,
    Trial,
    TrialStatus,
    TuningJob,
    TuningPlan,
    TuningStatus,
)
from trainyard.insight.tuning.completion import Progress, after_trial, has_converged, progress_of
from trainyard.insight.tuning.contract import Run
from trainyard.server.control.tuning.contract import Question
from trainyard.server.control.tuning.curves import LiveCurve
from trainyard.server.control.tuning.outcomes import is_fruitless
from trainyard.server.control.tuning.pace import Pace, Prepared
from trainyard.server.records.contract import Claim, Resource, ResourceId
from trainyard.server.tuning import trial_name, trial_of, tuning_job_of

# Why no further trial is started though those that run go on.
ALL_STARTED = "All training jobs that it may have were started."
NOTHING_LEFT = "There is nothing left to try."

FEWEST_TRIALS = 5  # that all have failed before a study is given up


@dataclass(slots=True)
class Study:
    """One tuning job that this yard holds. Only one thread at a time may use it.

    What is counted is told from the trials, each of which is remembered for itself; the tuning job's own row repeats it
    for those who describe it.
    """

    claim: Claim
    known: TuningJob  # as it is remembered
    trials: dict[int, Trial]
    rows: dict[int, Resource]  # of the trials that have not ended
    parents: Mapping[str, Sequence[Trial]]
    progress: Progress
    pace: Pace
    curves: dict[int, LiveCurve] = field(default_factory=dict)
    runs: dict[int, Run] = field(default_factory=dict)
    stopping: set[int] = field(default_factory=set)  # the trials that were told to
    prepared: Prepared | None = None
    stop_reason: str = ""
    failure: str = ""
    notes: tuple[str, ...] = ()
    converged_at: datetime | None = None
    looked_at: datetime = EPOCH  # when all that run were last looked at
    pauses_until: datetime = EPOCH  # before a trial that could not be begun is begun again

    @property
    def id(self) -> ResourceId:
        return self.claim.resource.id

    @property
    def job(self) -> TuningJob:
        """The tuning job as it shall be remembered."""
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
        """Whether a user wants it to end."""
        return self.known.status is TuningStatus.STOPPING

    @property
    def is_ending(self) -> bool:
        """Whether also the trials that run are to end."""
        return self.is_stopped or self.stop_reason not in ("", ALL_STARTED, NOTHING_LEFT)

    @property
    def has_all(self) -> bool:
        """Whether no further trial is planned."""
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
    def begun(self) -> list[Trial]:
        """The trials that have a training job and have not ended."""
        return [trial for number in self.rows if (trial := self.trials[number]).job_id]

    @property
    def waiting(self) -> Trial | None:
        """The trial whose training job is yet to be begun; there is one at most, and it is the last."""
        last = self.trials.get(len(self.trials))
        return last if last is not None and last.status is TrialStatus.PLANNED else None

    @property
    def has_room(self) -> bool:
        """Whether a further trial may be planned now."""
        return not self.has_all and self.waiting is None and len(self.rows) < self.plan.max_parallel

    def wants_advice(self) -> bool:
        """Whether the strategy is to be asked now: a slot is free, or will be before it could answer."""
        if self.has_all or self.waiting is not None:
            return False
        if self.prepared is not None:
            return self.has_room and not self.pace.accepts(self.prepared, ended=self.ended)
        return self.has_room or self.pace.is_asked_ahead

    def question(self) -> Question:
        trials = [self.trials[number] for number in sorted(self.trials)]
        return Question(self.plan, len(self.trials) + 1, trials, self.parents, study=self.id)

    def next_trial(self, now: datetime) -> Trial | None:
        """The trial that is planned now; None when there is no room for one, or no suggestion that is good enough."""
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
        return Trial(number, name, definition, values, created_at=now)

    def hold(self, claim: Claim) -> None:
        """Go on from what is remembered now."""
        self.claim, self.known = claim, tuning_job_of(claim.resource)

    def put(self, row: Resource) -> None:
        """Keep a trial as it is remembered now."""
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
        """Forget a trial that was planned and never begun."""
        del self.trials[number], self.rows[number]

    def runs_beside(self, trial: Trial) -> list[Run]:
        """What is known of all other trials of its definition."""
        return [
            run
            for number, run in self.runs.items()
            if number != trial.number and self.trials[number].definition == trial.definition
        ]

    def is_hopeless(self) -> bool:
        """Whether so many trials failed, one like the other, that there is no use in more."""
        fewest = max(FEWEST_TRIALS, self.plan.max_parallel)
        if self.progress.measured or self.ended < fewest:
            return False
        first = (self.trials[number] for number in range(1, fewest + 1))
        return all(each.has_ended and is_fruitless(each, metric=self.metric_of(each)) for each in first)

    def metric_of(self, trial: Trial) -> str:
        return self.plan.definition(trial.definition).objective.metric

    def is_overdue(self, now: datetime) -> bool:
        """Whether the time that it may take is over."""
        limit_s = self.plan.max_runtime_s
        return limit_s is not None and now - self.known.created_at >= timedelta(seconds=limit_s)


def study_of(claim: Claim, rows: Sequence[Resource], *, parents: Mapping[str, Sequence[Trial]]) -> Study:
    """A tuning job as its rows tell."""
    trials = {trial.number: trial for trial in map(trial_of, rows)}
    known = tuning_job_of(claim.resource)
    over = sorted((each for each in trials.values() if each.has_ended), key=time_of_end)
    study = Study(
        claim,
        known,
        trials,
        rows={trial_of(row).number: row for row in rows if not trial_of(row).has_ended},
        parents=parents,
        progress=progress_of(known.plan, over),
        pace=Pace.of(over),
        stop_reason=known.stop_reason,
        failure=known.failure,
        converged_at=known.converged_at,
    )
    if study.is_pruned:
        study.runs = {trial.number: run_of(trial) for trial in over}
    return study


def run_of(trial: Trial) -> Run:
    """A trial that has ended, as a pruner sees it."""
    is_cut_short = trial.status is not TrialStatus.COMPLETED and trial.cause is not None
    return Run(trial.number, trial.curve, is_over=True, is_cut_short=is_cut_short or trial.status is TrialStatus.FAILED)


def time_of_end(trial: Trial) -> tuple[datetime, int]:
    """What orders trials that have ended, the same whoever takes them in."""
    return trial.ended_at or EPOCH, trial.number
