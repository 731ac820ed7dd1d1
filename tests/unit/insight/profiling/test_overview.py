import math

import numpy as np
import pytest

from trainyard.formats.profiles.contract import HardwareMetric, HardwareSeries, StepPhase
from trainyard.formats.tensors.contract import Mode
from trainyard.insight.profiling.contract import HardwareSamples, JobProfile, RankProfile, StepTimes
from trainyard.insight.profiling.overview import list_phases, list_series

CPU = HardwareSeries(HardwareMetric.CPU_PERCENT, "total")
MEMORY = HardwareSeries(HardwareMetric.MEMORY_PERCENT)


def steps(*rows: tuple[Mode, int, float]) -> StepTimes:
    """Rows of a mode, a count of steps, and seconds that go to forward."""
    phases = np.zeros((len(rows), len(StepPhase)))
    phases[:, StepPhase.FORWARD] = [seconds for _, _, seconds in rows]
    return StepTimes(
        numbers=np.arange(len(rows)),
        counts=np.array([count for _, count, _ in rows], np.int64),
        modes=[mode for mode, _, _ in rows],
        starts_us=np.zeros(len(rows), np.int64),
        ends_us=np.ones(len(rows), np.int64),
        phases_s=phases,
    )


def test_phases_are_the_means_of_training_steps_whatever_a_row_stands_for() -> None:
    rank = RankProfile("worker_0", "algo-1", 0, steps((Mode.TRAIN, 3, 3.0), (Mode.TRAIN, 1, 5.0), (Mode.EVAL, 1, 99.0)))
    (phases,) = list_phases(JobProfile("mnist", 0, None, ranks=(rank,)))
    assert (phases.worker, phases.host, phases.steps) == ("worker_0", "algo-1", 4)
    assert phases.step_s == pytest.approx(2.0)
    assert phases.phases_s[StepPhase.FORWARD] == pytest.approx(2.0)
    assert phases.phases_s[StepPhase.BACKWARD] == 0


def test_a_rank_that_only_evaluates_has_phases_and_one_without_steps_has_none() -> None:
    ranks = (
        RankProfile("worker_0", "algo-1", 0, steps((Mode.EVAL, 2, 4.0))),
        RankProfile("worker_1", "algo-1", 1, steps()),
    )
    (phases,) = list_phases(JobProfile("mnist", 0, None, ranks=ranks))
    assert (phases.steps, phases.step_s) == (2, 2.0)


def test_a_series_has_its_latest_value_and_its_mean_without_gaps() -> None:
    samples = HardwareSamples(
        np.array([1, 2, 3]), {CPU: np.array([10.0, 30.0, math.nan]), MEMORY: np.array([math.nan] * 3)}
    )
    (series,) = list_series(JobProfile("mnist", 0, None, hardware={"algo-1": samples}))
    assert (series.host, series.series, series.at_us, series.value, series.mean) == ("algo-1", CPU, 2, 30.0, 20.0)
