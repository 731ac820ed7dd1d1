"""What trials of a job say: how fast their steps were, and whether changes made them faster. Standard library only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainyard.formats.profiles.contract import ProgramChange
from trainyard.insight.profiling.speedup import MeasuredSpeedup, measure_speedup

# The first steps start workers, compile, and fill caches: a share of them, and at least a number.
WARM_UP_SHARE, WARM_UP_STEPS = 0.2, 5
NO_STEPS = "no steps were timed, or too few of them to compare"

Changes = Mapping[ProgramChange, str]


@dataclass(frozen=True, slots=True)
class TimedSteps:
    """One or more training steps in a row."""

    steps: int
    ended_us: int


@dataclass(frozen=True, slots=True)
class TrialSteps:
    """The training steps of one rank of a trial after the warm-up. Unknown figures are None."""

    steps: int = 0
    step_s: float | None = None
    samples_per_step: float | None = None
    changes: Mapping[str, str] = field(default_factory=dict)  # that the program really made

    @property
    def sample_s(self) -> float | None:
        return self.step_s / self.samples_per_step if self.step_s and self.samples_per_step else None


@dataclass(frozen=True, slots=True)
class TrialRun:
    """An ended trial. `failure` says why it cannot be compared; empty if it can."""

    name: str
    steps: TrialSteps
    failure: str = ""


@dataclass(frozen=True, slots=True)
class VerifiedChange:
    """What came of trying some changes together. `problem` says why there is no speed-up; it is empty if there is one.

    The speed-up is that per sample if the program tells how many samples a step has, and per step otherwise.
    """

    changes: Changes
    speedup: MeasuredSpeedup | None
    is_per_sample: bool = False
    problem: str = ""


def read_first_rank(rows: Mapping[str, Sequence[TimedSteps]], facts: Mapping[str, Mapping[str, Any]]) -> TrialSteps:
    """Return the steps of the first rank, from the training steps and the facts of all ranks."""
    worker = min(rows, key=_rank, default="")
    about = facts.get(worker, {})
    samples, changes = about.get("samples_per_step"), about.get("changes")
    steps, step_s = _steady(rows.get(worker, ()))
    return TrialSteps(
        steps,
        step_s,
        float(samples) if isinstance(samples, int | float) and samples > 0 else None,
        {str(name): str(value) for name, value in changes.items()} if isinstance(changes, dict) else {},
    )


def compare_trials(unchanged: Sequence[TrialRun], changed: Sequence[TrialRun], changes: Changes) -> VerifiedChange:
    """Compare runs with changes to those without, which ran in turns with them."""
    failed = next((run.failure for run in changed if run.failure), "")
    if failed:
        return VerifiedChange(changes, None, problem=failed)
    missing = [change for change in changes if any(change.value not in run.steps.changes for run in changed)]
    if missing:
        what = ", ".join(change.value.replace("_", " ") for change in missing)
        return VerifiedChange(changes, None, problem=f"the program did not take over the change of {what}")
    runs = [*unchanged, *changed]
    is_per_sample = all(run.steps.sample_s for run in runs)
    before, after = (
        [(run.steps.sample_s if is_per_sample else run.steps.step_s) or 0.0 for run in group]
        for group in (unchanged, changed)
    )
    if ProgramChange.BATCH_SIZE in changes and not is_per_sample:
        problem = "the program does not tell how many samples a step has, so that batch sizes cannot be compared"
        return VerifiedChange(changes, None, problem=problem)
    return VerifiedChange(changes, measure_speedup(before, after), is_per_sample)


def _rank(worker: str) -> tuple[int, str]:
    digits = "".join(character for character in worker if character.isdigit())
    return int(digits or 0), worker


def _steady(rows: Sequence[TimedSteps]) -> tuple[int, float | None]:
    """Return the number of steps after the warm-up, and the mean time from the end of one to the end of the next."""
    warm_up = max(WARM_UP_STEPS, WARM_UP_SHARE * sum(row.steps for row in rows))
    seen, started_us = 0, None
    steps = 0
    for row in rows:
        if started_us is not None:
            steps += row.steps
        seen += row.steps
        if started_us is None and seen >= warm_up:
            started_us = row.ended_us
    if started_us is None or not steps or rows[-1].ended_us <= started_us:
        return 0, None
    return steps, (rows[-1].ended_us - started_us) / 1e6 / steps
