"""What the trials of a study say to a strategy."""

import math
from collections.abc import Iterable

from trainyard.foundation.tuning import StopCause, Trial, TrialStatus
from trainyard.insight.tuning.contract import Observation, State
from trainyard.insight.tuning.space import Space


def observed(trials: Iterable[Trial], space: Space, *, source: str = "", whole: int | None = None) -> list[Observation]:
    """An observation for each trial, in their order; `whole` is how many reports are all that a trial may make."""
    return [_observation(trial, space, source=source, whole=whole) for trial in trials]


def state_of(trial: Trial, *, whole: int | None = None) -> State:
    """How far what came of a trial can be relied on."""
    if not trial.has_ended:
        return State.PENDING
    if trial.cause is StopCause.RULE or (trial.objective is not None and not math.isfinite(trial.objective)):
        return State.DIVERGED
    if trial.status is TrialStatus.FAILED or trial.objective is None:
        return State.FAILED
    # Nobody's decision stopped it where there is no cause: it used up its time, and came as far as it can in that.
    is_whole = trial.cause is None or (whole is not None and len(trial.curve) >= whole)
    return State.MEASURED if is_whole else State.CUT_SHORT


def _observation(trial: Trial, space: Space, *, source: str, whole: int | None) -> Observation:
    state = state_of(trial, whole=whole)
    value = trial.objective if state in (State.MEASURED, State.CUT_SHORT) else None
    return Observation(space.values(trial.values), state, value, trial.curve, source)
