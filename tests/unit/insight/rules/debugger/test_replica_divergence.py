import numpy as np
import pytest

from tests.unit.insight.rules.steps import Run, found_by
from trainyard.formats.tensors.contract import Probe, Step
from trainyard.formats.tensors.statistics.probes import CHECKSUM
from trainyard.insight.rules.contract import Severity
from trainyard.insight.rules.probes import probe_values

WEIGHT, OTHER = "Net_fc1.weight", "Net_fc2.weight"
EQUAL = np.arange(16.0).reshape(4, 4)


def interleaved(
    *workers: list[np.ndarray[tuple[int, ...], np.dtype[np.float64]]], has_checksum: bool = True
) -> list[Step]:
    runs = [Run(f"worker_{rank}") for rank in range(len(workers))]
    probe = Probe(CHECKSUM)
    return [
        runs[rank].step(
            {WEIGHT: values, OTHER: EQUAL},
            measures={(WEIGHT, probe): probe_values(probe, values)} if has_checksum else None,
        )
        for step in zip(*workers, strict=True)
        for rank, values in enumerate(step)
    ]


def swapped() -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Other values with the same statistics."""
    values = EQUAL.copy()
    values[1, 1], values[2, 2] = values[2, 2], values[1, 1]
    return values


def test_a_replica_that_differs_is_found_at_the_step_in_which_it_does() -> None:
    steps = interleaved([EQUAL] * 3, [EQUAL, swapped(), swapped()], [EQUAL] * 3)
    first, second = found_by("ReplicaDivergence", steps)
    assert (first.tensor, first.step, first.worker, first.severity) == (WEIGHT, 1, "worker_1", Severity.CRITICAL)
    assert (second.step, second.worker) == (2, "worker_1")
    assert [evidence.label for evidence in first.evidence] == ["mean on worker_1", "mean on worker_0"]
    assert list(first.evidence[0].steps) == [0, 1]


def test_replicas_that_are_the_same_are_not_found() -> None:
    assert found_by("ReplicaDivergence", interleaved([EQUAL, swapped()], [EQUAL, swapped()])) == []


def test_without_checksums_the_statistics_tell() -> None:
    other = EQUAL.copy()
    other[3, 3] = 99.0
    (finding,) = found_by("ReplicaDivergence", interleaved([EQUAL], [other], has_checksum=False))
    assert finding.value == pytest.approx(other.mean())
    assert finding.threshold == pytest.approx(EQUAL.mean())


def test_a_worker_that_is_behind_is_held_against_the_same_step() -> None:
    one, two = Run("worker_0"), Run("worker_1")
    ahead = [one.step({WEIGHT: EQUAL + step}) for step in range(5)]
    behind = [two.step({WEIGHT: EQUAL + step}) for step in range(4)] + [two.step({WEIGHT: EQUAL})]
    assert [finding.step for finding in found_by("ReplicaDivergence", [*ahead, *behind])] == [4]


def test_parts_of_divided_tensors_are_not_compared() -> None:
    one, two = Run("worker_0"), Run("worker_1")
    steps = [one.step({WEIGHT: EQUAL}), two.step({WEIGHT: EQUAL[:2]})]
    assert found_by("ReplicaDivergence", steps) == []


def test_tensors_that_nobody_looked_at_are_not_found() -> None:
    one, two = Run("worker_0"), Run("worker_1")
    assert found_by("ReplicaDivergence", [one.step({WEIGHT: None}), two.step({WEIGHT: EQUAL})]) == []


def test_gradients_are_compared_when_they_are_asked_for() -> None:
    one, two = Run("worker_0"), Run("worker_1")
    steps = [one.step({f"gradient/{WEIGHT}": EQUAL}), two.step({f"gradient/{WEIGHT}": -EQUAL})]
    assert found_by("ReplicaDivergence", steps) == []
    assert len(found_by("ReplicaDivergence", steps, collection_names="gradients")) == 1


def test_a_training_that_goes_back_to_a_checkpoint_is_not_held_against_what_it_was() -> None:
    def told(first: float) -> list[Step]:
        runs = [Run("worker_0"), Run("worker_1")]
        return [run.step({WEIGHT: EQUAL + first + step}) for step in range(3) for run in runs]

    assert found_by("ReplicaDivergence", [*told(0.0), *told(1.0)]) == []


@pytest.mark.parametrize(("place", "value"), [((1, 1), 0.0), ((3, 3), 99.0), ((0, 0), -1.0), ((1, 1), np.nan)])
def test_a_difference_in_any_statistic_that_is_exact_is_found(place: tuple[int, int], value: float) -> None:
    other = EQUAL.copy()
    other[place] = value
    assert len(found_by("ReplicaDivergence", interleaved([EQUAL], [other], has_checksum=False))) == 1


def test_a_tensor_that_only_one_worker_has_or_in_another_shape_is_not_compared() -> None:
    steps = [
        Run("worker_0").step({WEIGHT: EQUAL}),
        Run("worker_1").step({WEIGHT: EQUAL[:2], OTHER: EQUAL}),
    ]
    assert found_by("ReplicaDivergence", steps) == []
