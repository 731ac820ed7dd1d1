"""Two runs of a training: whether they are the same, and where they come apart."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.unit.formats.tensors.runs import GRADIENT, LOSS, TABLE, WEIGHT, Clock, step_of
from trainyard.formats.tensors.contract import Mode, Statistic, Step, TensorTable
from trainyard.formats.tensors.recordings.trial_writer import TrialWriter
from trainyard.formats.tensors.trials.comparison import compare
from trainyard.formats.tensors.trials.trial import Trial, create_trial


def run(
    folder: Path, steps: int, change: Callable[[Step], None] = lambda step: None, *, worker: str = "worker_0"
) -> Trial:
    writer = TrialWriter(folder, worker=worker, clock=Clock())
    for number in range(steps):
        step = step_of(number, worker=worker)
        change(step)
        writer.append(step)
    writer.close()
    return create_trial(folder)


def test_a_run_is_the_same_as_itself(tmp_path: Path) -> None:
    def poison(step: Step) -> None:
        step.statistics[1, Statistic.MEAN] = np.nan

    result = compare(run(tmp_path / "a", 700, poison), run(tmp_path / "b", 500, poison))
    assert result.is_same
    assert (result.steps, result.tensors) == (500, 3)


def test_the_first_step_and_in_it_the_first_tensor_are_named(tmp_path: Path) -> None:
    def change(step: Step) -> None:
        if step.number >= 333:
            step.statistics[1:, Statistic.MEAN] += 0.25

    result = compare(run(tmp_path / "a", 400), run(tmp_path / "b", 400, change))
    assert result.first is not None
    assert (result.first.step, result.first.mode, result.first.mode_step) == (333, Mode.TRAIN, 333)
    assert (result.first.tensor, result.first.statistic, result.first.worker) == (LOSS, "mean", "worker_0")
    assert result.first.right - result.first.left == 0.25
    assert result.differing == (LOSS, GRADIENT)
    assert f"step 333 (TRAIN 333), worker_0: mean of {LOSS}" in str(result.first)


def test_small_differences_can_be_let_pass(tmp_path: Path) -> None:
    def change(step: Step) -> None:
        step.statistics[0, Statistic.STD] *= 1.0001

    left, right = run(tmp_path / "a", 10), run(tmp_path / "b", 10, change)
    assert not compare(left, right).is_same
    assert not compare(left, right, rtol=1e-5).is_same
    assert compare(left, right, rtol=1e-3).is_same


def test_what_one_run_left_out_tells_nothing(tmp_path: Path) -> None:
    def leave_out(step: Step) -> None:
        step.statistics[2] = 0
        step.statistics[2, Statistic.NANS] = -1

    assert compare(run(tmp_path / "a", 10), run(tmp_path / "b", 10, leave_out)).is_same


def test_tensors_of_only_one_run_are_listed(tmp_path: Path) -> None:
    writer = TrialWriter(tmp_path / "b", clock=Clock())
    writer.append(step_of(0, table=TensorTable(TABLE.tensors[:2])))
    writer.close()
    result = compare(run(tmp_path / "a", 1), create_trial(tmp_path / "b"))
    assert (result.is_same, result.only_left, result.only_right) == (True, (GRADIENT,), ())
    assert WEIGHT not in result.only_left


def test_the_earliest_worker_to_differ_is_named(tmp_path: Path) -> None:
    def late(step: Step) -> None:
        step.statistics[0, Statistic.MAX] += step.number >= 7

    def early(step: Step) -> None:
        step.statistics[0, Statistic.MAX] += step.number >= 4

    for worker, change in (("worker_0", late), ("worker_1", early)):
        run(tmp_path / "a", 10, worker=worker)
        run(tmp_path / "b", 10, change, worker=worker)
    first = compare(create_trial(tmp_path / "a"), create_trial(tmp_path / "b")).first
    assert first is not None
    assert (first.worker, first.step) == ("worker_1", 4)


def test_runs_without_a_worker_in_common_have_nothing_to_compare(tmp_path: Path) -> None:
    result = compare(run(tmp_path / "a", 3), run(tmp_path / "b", 3, worker="worker_9"))
    assert (result.first, result.steps, result.is_same) == (None, 0, False)
