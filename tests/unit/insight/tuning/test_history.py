import math

import pytest

from trainyard.foundation.tuning import StopCause, Trial, TrialStatus
from trainyard.insight.tuning.contract import Observation, State
from trainyard.insight.tuning.history import observed, state_of
from trainyard.insight.tuning.space import Space
from trainyard.testing.tuning import continuous

SPACE = Space([continuous("rate", 0.0, 1.0)])


def trial(status: TrialStatus, objective: float | None = None, cause: StopCause | None = None) -> Trial:
    return Trial(1, "study-001", "", {"rate": "0.5"}, status, objective=objective, curve=(2.0, 1.0), cause=cause)


@pytest.mark.parametrize(
    ("ended", "expected"),
    [
        (trial(TrialStatus.PLANNED), State.PENDING),
        (trial(TrialStatus.IN_PROGRESS, 0.5), State.PENDING),
        (trial(TrialStatus.COMPLETED, 0.5), State.MEASURED),
        (trial(TrialStatus.COMPLETED), State.FAILED),
        (trial(TrialStatus.COMPLETED, math.nan), State.DIVERGED),
        (trial(TrialStatus.FAILED, math.inf), State.DIVERGED),
        (trial(TrialStatus.FAILED, 0.5), State.FAILED),
        (trial(TrialStatus.FAILED), State.FAILED),
        (trial(TrialStatus.STOPPED, 0.5, StopCause.EARLY), State.CUT_SHORT),
        (trial(TrialStatus.STOPPED, 0.5, StopCause.STUDY), State.CUT_SHORT),
        (trial(TrialStatus.STOPPED, 0.5, StopCause.USER), State.CUT_SHORT),
        (trial(TrialStatus.STOPPED, 0.5, StopCause.RULE), State.DIVERGED),
        (trial(TrialStatus.STOPPED, None, StopCause.RULE), State.DIVERGED),
        (trial(TrialStatus.STOPPED, None, StopCause.USER), State.FAILED),
        (trial(TrialStatus.STOPPED, 0.5), State.MEASURED),
    ],
)
def test_how_a_trial_ended_says_what_it_is_worth(ended: Trial, expected: State) -> None:
    assert state_of(ended) is expected


def test_a_trial_that_was_stopped_when_it_had_made_all_its_reports_is_measured() -> None:
    stopped = trial(TrialStatus.STOPPED, 1.0, StopCause.EARLY)
    assert [state_of(stopped, whole=reports) for reports in (2, 3)] == [State.MEASURED, State.CUT_SHORT]
    [observation] = observed([stopped], SPACE, whole=2)
    assert (observation.state, observation.value) == (State.MEASURED, 1.0)


@pytest.mark.parametrize("cause", [StopCause.EARLY, StopCause.RULE])
def test_only_what_can_be_relied_on_is_handed_on_as_a_value(cause: StopCause) -> None:
    [observation] = observed([trial(TrialStatus.STOPPED, 0.5, cause)], SPACE)
    assert observation.value == (0.5 if cause is StopCause.EARLY else None)


def test_a_trial_that_runs_has_no_value_yet() -> None:
    assert observed([trial(TrialStatus.IN_PROGRESS, 0.5)], SPACE) == [
        Observation({"rate": 0.5}, State.PENDING, None, (2.0, 1.0))
    ]


def test_values_and_curves_are_handed_on_with_where_they_come_from() -> None:
    assert observed([trial(TrialStatus.COMPLETED, 1.0)], SPACE, source="parent") == [
        Observation({"rate": 0.5}, State.MEASURED, 1.0, (2.0, 1.0), "parent")
    ]
