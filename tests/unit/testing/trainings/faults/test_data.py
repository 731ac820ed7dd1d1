import math
import time

import torch

from tests.unit.testing.trainings.step_capture import capture_steps
from trainyard.testing.trainings import TRAININGS, reviews
from trainyard.testing.trainings.faults import FAULTS
from trainyard.testing.trainings.faults.data import STALL_S


def test_a_poisoned_batch_holds_one_nan_at_its_step_and_none_before() -> None:
    fault = FAULTS["poisoned_batch"]
    before, after = capture_steps(fault, fault.step - 1, fault.step)
    assert math.isfinite(before.loss)
    assert int(after.inputs["block1.conv"].isnan().sum()) == 1
    assert math.isnan(after.loss)


def test_an_outlier_makes_one_spike_and_passes() -> None:
    fault = FAULTS["outlier_batch"]
    losses = fault.run(0).losses
    assert losses[fault.step] > 20 * max(losses[fault.step - 50 : fault.step])
    assert max(losses[-50:]) < 0.1 * losses[fault.step]


def test_blank_images_are_all_zero_from_their_step_on() -> None:
    fault = FAULTS["blank_images"]
    before, first, later = capture_steps(fault, fault.step - 1, fault.step, fault.step + 50)
    assert before.inputs["block1.conv"].any()
    assert not first.inputs["block1.conv"].any()
    assert not later.inputs["block1.conv"].any()


def test_a_stalled_loader_delays_one_batch() -> None:
    fault = FAULTS["stalled_loader"]
    beginning = time.monotonic()
    capture_steps(fault, fault.step)
    assert time.monotonic() - beginning >= STALL_S


def test_rare_classes_have_five_samples_each_and_are_not_learned() -> None:
    counts = FAULTS["rare_classes"].twin.make_setup(0).batches.samples.targets.bincount()
    assert counts[:5].min() > 100
    assert counts[5:].tolist() == [5] * 5
    assert FAULTS["rare_classes"].run(0).metric < 0.75


def test_from_shuffled_labels_nothing_is_learned() -> None:
    losses = FAULTS["shuffled_labels"].run(0).losses
    guessing = math.log(10)
    assert sum(losses[-100:]) / 100 > guessing - 0.02


def test_confused_labels_make_eights_of_threes() -> None:
    (step,) = capture_steps(FAULTS["confused_labels"], 200)
    training = TRAININGS["cnn"].make_setup(0).batches.samples.targets.bincount()
    confused = FAULTS["confused_labels"].twin.make_setup(0).batches.samples.targets.bincount()
    assert confused[3] < 0.3 * training[3]
    assert confused[8] > 1.5 * training[8]
    assert float((step.records["labels"] == step.records["predictions"]).float().mean()) > 0.8


def test_few_samples_are_memorized() -> None:
    outcome = FAULTS["few_samples"].run(0)
    assert sum(outcome.losses[-20:]) / 20 < 0.01
    assert outcome.metric < 0.9


def test_raw_pixels_are_far_from_the_mean_zero() -> None:
    healthy, raw = (
        capture_steps(each, 0)[0].inputs["block1.conv"] for each in (TRAININGS["cnn"], FAULTS["raw_pixels"])
    )
    assert abs(float(healthy.mean())) < 0.2
    assert float(raw.mean()) > 3
    assert float(raw.max()) == 16


def test_padded_sequences_are_mostly_padding() -> None:
    healthy, padded = (
        capture_steps(each, 0)[0].inputs["embedding"] for each in (TRAININGS["rnn"], FAULTS["padded_sequences"])
    )
    assert _padding(healthy) < 0.5
    assert _padding(padded) > 0.8


def test_the_embedding_learns_nothing_of_unknown_words() -> None:
    steps = capture_steps(FAULTS["unknown_words"], *range(20))
    touched = torch.stack([step.gradients["embedding.weight"].any(1) for step in steps]).any(0)
    assert float(touched.float().mean()) < 0.3
    healthy = capture_steps(TRAININGS["rnn"], *range(20))
    touched = torch.stack([step.gradients["embedding.weight"].any(1) for step in healthy]).any(0)
    assert float(touched.float().mean()) > 0.9


def _padding(words: torch.Tensor) -> float:
    return float((words == reviews.PADDING).float().mean())
