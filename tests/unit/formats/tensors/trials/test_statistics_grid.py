from pathlib import Path

import numpy as np
import pytest

from tests.unit.formats.tensors.runs import GRADIENT, LOSS, TABLE, WEIGHT, Clock, step_of, write_run
from trainyard.formats.tensors.contract import Mode, Statistic, TensorTable
from trainyard.formats.tensors.recordings.trial_writer import TrialWriter
from trainyard.formats.tensors.trials import statistics_grid
from trainyard.formats.tensors.trials.statistics_grid import FINITE, INFINITE, NOT_A_NUMBER, NOTHING
from trainyard.formats.tensors.trials.trial import Trial, create_trial


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    write_run(tmp_path, 100)
    return create_trial(tmp_path)


@pytest.mark.parametrize("statistic", ["l2", "mean_abs", "max"])
def test_each_cell_has_the_extremes_and_the_mean_of_its_steps(trial: Trial, statistic: str) -> None:
    grid = trial.grid([GRADIENT, WEIGHT], statistic, max_groups=7)
    assert grid.means.shape == (2, 7)
    assert grid.first_steps[0] == 0
    assert grid.last_steps[-1] == 99
    for place, name in enumerate((GRADIENT, WEIGHT)):
        steps, values = trial.series(name, statistic)
        for group, (first, last) in enumerate(zip(grid.first_steps, grid.last_steps, strict=True)):
            inside = values[(steps >= first) & (steps <= last)]
            assert grid.means[place, group] == pytest.approx(inside.mean(), rel=1e-5)
            assert grid.minima[place, group] == np.float32(inside.min())
            assert grid.maxima[place, group] == np.float32(inside.max())


def test_a_short_run_has_a_column_for_each_step(trial: Trial) -> None:
    grid = trial.grid([WEIGHT], "std", max_groups=500)
    assert grid.first_steps.tolist() == grid.last_steps.tolist() == list(range(100))
    assert np.array_equal(grid.means[0], trial.series(WEIGHT, "std").values.astype(np.float32))


def test_a_range_of_steps_is_divided_alone(trial: Trial) -> None:
    grid = trial.grid([WEIGHT], "l2", max_groups=4, steps=(20, 60))
    assert (grid.first_steps[0], grid.last_steps[-1]) == (20, 59)
    assert not trial.grid([WEIGHT], "l2", max_groups=4, steps=(500, None)).first_steps.size


def test_values_and_measures_have_grids_too(trial: Trial) -> None:
    losses = trial.grid([LOSS], "value", max_groups=100)
    assert losses.means[0, 3] == pytest.approx(1 / 4)
    assert trial.grid([WEIGHT], "update_ratio", max_groups=100).means[0, 50] == pytest.approx(0.05)


def test_what_is_absent_or_not_finite_is_told_apart(tmp_path: Path) -> None:
    writer = TrialWriter(tmp_path, clock=Clock())
    for number in range(6):
        step = step_of(number, absent=[2] if number == 1 else [])
        if number == 2:
            step.statistics[2, Statistic.NANS] = 3
            step.statistics[2, : Statistic.ZEROS] = np.nan
        if number == 3:
            step.statistics[2, Statistic.INFS] = 1
            step.statistics[2, Statistic.MAX] = np.inf
        writer.append(step)
    writer.close()
    trial = create_trial(tmp_path)
    grid = trial.grid([GRADIENT], "max", max_groups=10)
    assert grid.contents[0].tolist() == [FINITE, NOTHING, NOT_A_NUMBER, INFINITE, FINITE, FINITE]
    assert np.isnan(grid.means[0, 1:4]).all()
    # In a group, the worst is told, and the finite values stay visible.
    coarse = trial.grid([GRADIENT], "max", max_groups=2)
    assert coarse.contents[0].tolist() == [NOT_A_NUMBER, INFINITE]
    assert np.isfinite(coarse.maxima).all()


def test_a_table_that_changes_on_the_way_leaves_gaps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics_grid, "_ROWS", 3)
    smaller = TensorTable(TABLE.tensors[1:])
    writer = TrialWriter(tmp_path, clock=Clock())
    for number in range(20):
        step = step_of(number) if number < 10 else step_of(number, table=smaller, saved=(False, False))
        writer.append(step)
    writer.close()
    trial = create_trial(tmp_path)
    grid = trial.grid([LOSS, WEIGHT], "mean", max_groups=20)
    assert (grid.contents[0] == FINITE).all()
    assert grid.contents[1].tolist() == [FINITE] * 10 + [NOTHING] * 10


def test_the_steps_of_a_mode_keep_their_numbers_among_all(tmp_path: Path) -> None:
    writer = TrialWriter(tmp_path, clock=Clock())
    for number in range(10):
        mode = Mode.EVAL if number % 2 else Mode.TRAIN
        writer.append(step_of(number, mode=mode, mode_step=number // 2))
    writer.close()
    grid = create_trial(tmp_path).grid([WEIGHT], "l2", max_groups=10, mode=Mode.EVAL)
    assert grid.first_steps.tolist() == [1, 3, 5, 7, 9]
