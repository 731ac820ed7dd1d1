import numpy as np
import pytest
from numpy.typing import NDArray

from tests.profiles import job, rank, step_times, with_evaluations
from tests.unit.insight.rules.profiler.checking import check, has_triggered
from trainyard.formats.profiles.contract import StepPhase
from trainyard.insight.profiling.contract import JobProfile

STEPS = 3000


def stalls(*, every: int, seconds: float, first: int = 50) -> NDArray[np.float64]:
    added = np.zeros(STEPS)
    added[first::every] = seconds
    return added


def with_stalls(every: int, seconds: float, *, phase: StepPhase = StepPhase.CHECKPOINT) -> JobProfile:
    steps = step_times(0, step_s=np.full(STEPS, 0.1), added_s={phase: stalls(every=every, seconds=seconds)})
    return job(1000, None, rank(steps))


@pytest.mark.parametrize(
    ("every", "seconds", "expected"),
    # They cost 10, 5.7, 4 and 1 % of the time; the last ones are too few.
    [(100, 1.1, True), (100, 0.6, True), (100, 0.4, False), (100, 0.1, False), (300, 3.0, False)],
)
def test_outliers_are_found_by_what_they_cost(every: int, seconds: float, expected: bool) -> None:
    assert has_triggered("StepOutlier", with_stalls(every, seconds)) is expected


def test_a_finding_names_the_phase_the_interval_and_the_gain() -> None:
    found = check("StepOutlier", with_stalls(50, 1.0))
    (finding,) = found.findings
    assert finding.worker == "worker_0"
    assert finding.value == 59
    assert "most of it in checkpoint. They come about every 50 steps." in finding.message
    assert found.violations == 59
    assert found.details["worker_0 TRAIN"]["lost_share"] == pytest.approx(1 / 6, abs=0.01)


def test_outliers_do_not_hide_one_another_as_they_do_in_a_mean() -> None:
    durations = np.full(STEPS, 0.1)
    durations[::10] = 2.0
    seconds = step_times(0, step_s=durations)
    each = durations
    assert (each > each.mean() + 5 * each.std()).sum() == 0
    assert has_triggered("StepOutlier", job(1000, None, rank(seconds)))


def test_a_kind_of_step_that_is_frequent_is_no_outlier() -> None:
    durations = np.where(np.arange(STEPS) % 3 == 0, 0.4, 0.1)
    assert not has_triggered("StepOutlier", job(1000, None, rank(step_times(0, step_s=durations))))


def test_steps_that_become_longer_for_good_are_no_outliers() -> None:
    durations = np.where(np.arange(STEPS) < 2600, 0.1, 0.3)
    assert not has_triggered("StepOutlier", job(1000, None, rank(step_times(0, step_s=durations))))


def test_awss_defaults_find_the_outliers_of_any_distribution() -> None:
    durations = np.exp(np.random.default_rng(1).normal(-2, 0.3, STEPS))
    profile = job(1000, None, rank(step_times(0, step_s=durations)))
    assert has_triggered("StepOutlier", profile, defaults="aws")
    assert not has_triggered("StepOutlier", profile)


def test_rows_of_several_steps_are_judged_by_their_mean() -> None:
    added = stalls(every=60, seconds=2.0)
    steps = step_times(0, step_s=np.full(STEPS, 0.002), counts=50, added_s={StepPhase.DATA_WAIT: added})
    (finding,) = check("StepOutlier", job(1000, None, rank(steps))).findings
    assert "data wait" in finding.message


def test_only_the_mode_that_is_asked_for_is_judged() -> None:
    profile = with_stalls(50, 1.0)
    steps = with_evaluations(profile.ranks[0].steps)
    both = job(1000, None, rank(steps))
    assert has_triggered("StepOutlier", both)
    assert has_triggered("StepOutlier", both, mode="TRAIN")
    assert not has_triggered("StepOutlier", both, mode="EVAL")


def test_fewer_than_a_hundred_steps_are_not_judged() -> None:
    steps = step_times(0, step_s=np.where(np.arange(90) % 6 == 0, 2.0, 0.1))
    assert "100 steps" in check("StepOutlier", job(100, None, rank(steps))).undecided


def test_the_number_of_outliers_that_are_allowed_can_be_set() -> None:
    profile = with_stalls(300, 3.0)
    assert has_triggered("StepOutlier", profile, n_outliers=9)
    assert not has_triggered("StepOutlier", profile, n_outliers=10)


def test_what_a_busy_machine_takes_of_short_steps_is_no_outlier() -> None:
    added = stalls(every=20, seconds=0.008)
    steps = step_times(0, step_s=np.full(STEPS, 0.0005), added_s={StepPhase.OPTIMIZER: added})
    assert not has_triggered("StepOutlier", job(1000, None, rank(steps)))
