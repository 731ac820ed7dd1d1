from typing import Any

import pytest
import xgboost

from trainyard.testing.trainings.boosting import BOOSTED, BOOSTING_FAULTS, BoostedTraining, Boosting


class Losses(xgboost.callback.TrainingCallback):
    def __init__(self) -> None:
        super().__init__()
        self.training: list[float] = []
        self.validation: list[float] = []

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        self.training, self.validation = (next(iter(evals_log[data].values())) for data in ("train", "validation"))
        return False


def losses(training: BoostedTraining, seed: int = 0) -> Losses:
    seen = Losses()

    def make_callback(boosting: Boosting, learned: Any, held_back: Any) -> Losses:
        assert len(boosting.labels) == learned.num_row() + held_back.num_row()
        return seen

    training.run(seed, make_callback=make_callback)
    return seen


@pytest.mark.parametrize("name", BOOSTED)
def test_a_healthy_booster_generalizes(name: str) -> None:
    seen = losses(BOOSTED[name])
    assert seen.validation[-1] < 0.9 * seen.validation[0]
    assert seen.validation[-1] < 2 * seen.training[-1]


@pytest.mark.parametrize("name", BOOSTING_FAULTS)
def test_a_fault_changes_the_run_of_a_training(name: str) -> None:
    fault = BOOSTING_FAULTS[name]
    assert losses(fault.twin).validation != losses(fault.of).validation
    assert fault.summary.endswith(".")


def test_a_seed_always_makes_the_same_run() -> None:
    assert losses(BOOSTED["tumours"]).validation == losses(BOOSTED["tumours"]).validation
    assert losses(BOOSTED["tumours"]).validation != losses(BOOSTED["tumours"], seed=1).validation
