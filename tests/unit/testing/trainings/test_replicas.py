import torch

from tests.unit.testing.trainings.seeing import Seeing
from trainyard.testing.trainings import TRAININGS
from trainyard.testing.trainings.faults import FAULTS
from trainyard.testing.trainings.replicas import run_replicas
from trainyard.testing.trainings.training import Training

LAST = 1000  # which no run reaches, so that it goes on to its end


def test_healthy_replicas_keep_the_same_weights_while_they_see_other_samples() -> None:
    mlp = TRAININGS["mlp"]
    first, second = _watched(mlp, mlp, steps=(0, 100, 250))
    for step in (0, 100, 250):
        assert first.kept[step].loss != second.kept[step].loss
        assert _equal(first, second, step=step)


def test_an_altered_replica_parts_from_the_other_at_its_step() -> None:
    fault = FAULTS["altered_replica"]
    first, second = _watched(fault.of, fault.twin, steps=(fault.step - 1, fault.step, 250))
    assert _equal(first, second, step=fault.step - 1)
    assert not _equal(first, second, step=fault.step)
    assert not _equal(first, second, step=250)


def _watched(*ranks: Training, steps: tuple[int, ...]) -> list[Seeing]:
    watches = [Seeing([*steps, LAST]) for _ in ranks]
    run_replicas(ranks, 0, watches=watches)
    return watches


def _equal(first: Seeing, second: Seeing, *, step: int) -> bool:
    ours, theirs = first.kept[step].weights, second.kept[step].weights
    return all(torch.equal(ours[name], theirs[name]) for name in ours)
