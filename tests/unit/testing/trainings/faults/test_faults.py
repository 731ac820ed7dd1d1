import pytest

from trainyard.testing.trainings.faults import FAULTS

SEEN_BY_SOME_FAULT = {
    "VanishingGradient", "ExplodingTensor", "DeadRelu", "PoorWeightInitialization", "SaturatedActivation",
    "WeightUpdateRatio", "AllZero", "ClassImbalance", "LossNotDecreasing", "Overfit", "Overtraining",
    "SimilarAcrossRuns", "StalledTrainingRule", "TensorVariance", "UnchangedTensor", "CheckInputImages",
    "NLPSequenceRatio", "Confusion", "LossSpike", "NotANumber", "ReplicaDivergence", "LearningRateTooHigh",
    "LearningRateTooLow", "DeadEmbedding", "AttentionEntropyCollapse", "GradientNoise",
}  # fmt: skip


def test_every_rule_for_deep_learning_has_a_fault_to_see() -> None:
    assert {rule for fault in FAULTS.values() for rule in fault.rules} == SEEN_BY_SOME_FAULT


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_fault_says_what_is_wrong_in_a_sentence(fault: object) -> None:
    summary = getattr(fault, "summary", "")
    assert summary.endswith(".")
    assert "\n" not in summary
