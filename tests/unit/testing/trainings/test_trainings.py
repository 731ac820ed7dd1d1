import pytest
import torch

from tests.unit.testing.trainings.step_capture import StepCapture, capture_steps
from trainyard.testing.trainings import TRAININGS

# Guessing is right about a tenth of ten digits, half of the reviews and a seventh of the letters.
LEARNED = {"mlp": 0.9, "cnn": 0.95, "transformer": 0.75, "rnn": 0.9, "regression": 0.25, "fine_tuning": 0.93}
SEEDS = [(name, 0) for name in LEARNED] + [(name, 1) for name in ("mlp", "rnn", "regression")]


def test_there_is_a_level_for_every_training() -> None:
    assert LEARNED.keys() == TRAININGS.keys()


@pytest.mark.parametrize(("name", "seed"), SEEDS)
def test_a_healthy_training_learns(name: str, seed: int) -> None:
    outcome = TRAININGS[name].run(seed)
    assert outcome.metric > LEARNED[name]
    assert 200 <= len(outcome.losses) <= 400
    assert sum(outcome.losses[-20:]) < 0.7 * sum(outcome.losses[:20])


@pytest.mark.parametrize("name", ["mlp", "cnn", "transformer", "fine_tuning"])
def test_trainings_are_evaluated_after_each_epoch(name: str) -> None:
    assert TRAININGS[name].make_setup(0).evaluates_each_epoch


@pytest.mark.parametrize("name", TRAININGS)
def test_a_seed_repeats_its_run_and_another_seed_does_not(name: str) -> None:
    first, again = (capture_steps(TRAININGS[name], 0, 5, seed=3) for _ in range(2))
    other = capture_steps(TRAININGS[name], 0, 5, seed=4)
    assert [step.loss for step in first] == [step.loss for step in again]
    assert all(torch.equal(first[1].weights[each], again[1].weights[each]) for each in first[1].weights)
    assert [step.loss for step in first] != [step.loss for step in other]


def test_a_run_leaves_the_random_numbers_of_its_caller_alone() -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    TRAININGS["regression"].run(0)
    assert torch.equal(torch.rand(3), expected)


def test_activations_have_the_names_that_rules_expect() -> None:
    (step,) = capture_steps(TRAININGS["mlp"], 0)
    assert {"layer1.relu", "layer2.relu"} <= step.outputs.keys()
    (step,) = capture_steps(TRAININGS["regression"], 0)
    assert {"layer1.tanh", "layer2.tanh"} <= step.outputs.keys()
    (step,) = capture_steps(TRAININGS["transformer"], 0)
    assert {"embedding", "blocks.0.attention.softmax", "blocks.1.mlp.gelu"} <= step.outputs.keys()


def test_labels_and_predictions_are_recorded_in_each_step() -> None:
    (step,) = capture_steps(TRAININGS["cnn"], 40)
    assert torch.equal(step.records["labels"], step.records["predictions"]) is False
    assert float((step.records["labels"] == step.records["predictions"]).float().mean()) > 0.7


def test_a_watch_receives_each_change_of_mode() -> None:
    told: list[str] = []

    class Listening(StepCapture):
        def mode(self, mode: str) -> None:
            told.append(mode)

    TRAININGS["mlp"].run(0, watch=Listening([1000]))
    assert told == ["TRAIN", "EVAL"] * TRAININGS["mlp"].make_setup(0).epochs
