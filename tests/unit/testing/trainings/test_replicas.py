import torch

from tests.unit.testing.trainings.step_capture import StepCapture
from trainyard.testing.trainings import TRAININGS
from trainyard.testing.trainings.faults import FAULTS
from trainyard.testing.trainings.replicas import train_replicas
from trainyard.testing.trainings.training import SampleTraining

LAST = 1000  # which no run reaches, so that it goes on to its end


def test_healthy_replicas_keep_the_same_weights_on_different_samples() -> None:
    mlp = TRAININGS["mlp"]
    first, second = _watched(mlp, mlp, steps=(0, 100, 250))
    for step in (0, 100, 250):
        assert first.kept[step].loss != second.kept[step].loss
        assert _equal(first, second, step=step)


def test_an_altered_replica_diverges_at_its_step() -> None:
    fault = FAULTS["altered_replica"]
    first, second = _watched(fault.of, fault.twin, steps=(fault.step - 1, fault.step, 250))
    assert _equal(first, second, step=fault.step - 1)
    assert not _equal(first, second, step=fault.step)
    assert not _equal(first, second, step=250)


def _watched(*ranks: SampleTraining, steps: tuple[int, ...]) -> list[StepCapture]:
    watches = [StepCapture([*steps, LAST]) for _ in ranks]
    train_replicas(ranks, 0, watches=watches)
    return watches


def _equal(first: StepCapture, second: StepCapture, *, step: int) -> bool:
    ours, theirs = first.kept[step].weights, second.kept[step].weights
    return all(torch.equal(ours[name], theirs[name]) for name in ours)
