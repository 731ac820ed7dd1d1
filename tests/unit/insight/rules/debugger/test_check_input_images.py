import math
from collections.abc import Sequence

import numpy as np
import pytest

from tests.unit.insight.rules.steps import Run, found_by
from trainyard.formats.tensors.contract import Probe, Step
from trainyard.formats.tensors.statistics.probes import CHANNEL_MEAN

IMAGES = "Net_input_0"


def batches(
    means: Sequence[tuple[float, ...]], name: str = IMAGES, shape: tuple[int, ...] = (100, 3, 2, 2)
) -> list[Step]:
    run = Run()
    return [
        run.step(
            {name: np.ones(shape)},
            measures={
                (name, Probe(CHANNEL_MEAN, (1.0, float(channel)))): (*each, math.nan)[channel] for channel in range(4)
            },
        )
        for each in means
    ]


def test_images_that_are_not_normalised_are_found_after_so_many() -> None:
    steps = batches([(0.0, 0.1, -0.3)] * 5)
    (finding,) = found_by("CheckInputImages", steps, regex="_input_0")
    assert (finding.tensor, finding.step, finding.threshold) == (IMAGES, 4, 0.2)
    assert finding.value == pytest.approx(-0.3)
    assert "Channel 2 of the last 500 images" in finding.message


def test_channels_that_are_off_in_opposite_ways_are_found() -> None:
    assert len(found_by("CheckInputImages", batches([(0.3, -0.3, 0.0)] * 5), defaults="advised")) == 1


def test_batches_that_differ_but_are_normalised_together_are_not_found() -> None:
    steps = batches([(0.5, 0.0, 0.0), (-0.5, 0.0, 0.0)] * 10)
    assert found_by("CheckInputImages", steps, defaults="advised") == []


def test_what_changes_later_is_found_too() -> None:
    steps = batches([(0.0, 0.0, 0.0)] * 20 + [(0.0, 0.9, 0.0)] * 5)
    assert [finding.step for finding in found_by("CheckInputImages", steps, defaults="advised")] == [24]


def test_inputs_that_are_no_images_are_not_judged() -> None:
    assert found_by("CheckInputImages", batches([(5.0, 5.0, 5.0)] * 9, shape=(100, 3)), defaults="advised") == []
    assert (
        found_by("CheckInputImages", batches([(5.0, 5.0, 5.0)] * 9, name="MSELoss_input_0"), defaults="advised") == []
    )


def test_each_look_is_of_images_of_its_own_and_shows_those_before_it() -> None:
    first, second = found_by("CheckInputImages", batches([(0.5, 0.0, 0.0)] * 5 + [(0.0, 0.0, 0.9)] * 5), regex="input")
    assert [first.step, second.step] == [4, 9]
    assert [first.value, second.value] == pytest.approx([0.5, 0.9])
    assert "Channel 2 of the last 500 images" in second.message
    (evidence,) = second.evidence
    assert list(evidence.steps) == [4, 9]
    assert list(evidence.values) == pytest.approx([0.5, 0.9])


def test_a_mean_at_the_limit_is_not_found() -> None:
    steps = batches([(0.25, -0.25, 0.0)] * 5)
    assert found_by("CheckInputImages", steps, regex="input", threshold_mean="0.25") == []
    assert len(found_by("CheckInputImages", steps, regex="input", threshold_mean="0.2499")) == 1


def test_images_are_counted_for_each_worker_apart() -> None:
    name, probe = IMAGES, Probe(CHANNEL_MEAN, (1.0, 0.0))
    runs = Run("worker_0"), Run("worker_1")
    steps = [run.step({name: np.ones((100, 3, 2, 2))}, measures={(name, probe): 0.5}) for run in runs for _ in range(4)]
    assert found_by("CheckInputImages", steps, regex="input") == []
