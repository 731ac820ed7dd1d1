import pytest

from tests.profiles import HEALTHY, job, rank, step_times, with_evaluations
from tests.unit.insight.rules.profiler.checking import check


def test_the_time_of_each_rank_is_divided_into_modes_and_phases() -> None:
    steps = with_evaluations(step_times(100, step_s=0.1, noise=0.0), every=100, seconds=1.0)
    found = check("OverallFrameworkMetrics", job(100, None, rank(steps)))
    assert not found.findings
    modes = found.details["worker_0"]["modes"]
    assert modes["TRAIN"]["steps"] == 950
    assert modes["TRAIN"]["step_s"]["p50"] == pytest.approx(0.1)
    assert modes["TRAIN"]["phase_shares"]["backward"] == pytest.approx(0.53)
    assert sum(modes["TRAIN"]["phase_shares"].values()) == pytest.approx(1)
    assert modes["EVAL"]["steps"] == 20 * 9
    assert modes["EVAL"]["seconds"] == pytest.approx(9.0)
    assert "PREDICT" not in modes


def test_without_steps_there_is_nothing_to_sum_up() -> None:
    assert check("OverallFrameworkMetrics", HEALTHY["without_steps"]()).undecided == "No steps are known."
