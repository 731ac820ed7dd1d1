from trainyard.testing.trainings.faults import FAULTS

SEEN_BY_SOME_FAULT = {
    "VanishingGradient", "ExplodingTensor", "DeadRelu", "PoorWeightInitialization", "SaturatedActivation",
    "WeightUpdateRatio", "AllZero", "ClassImbalance", "LossNotDecreasing", "Overfit", "Overtraining",
    "SimilarAcrossRuns", "StalledTrainingRule", "TensorVariance", "UnchangedTensor", "CheckInputImages",
    "NLPSequenceRatio", "Confusion", "LossSpike", "NotANumber", "ReplicaDivergence", "LearningRateTooHigh",
    "LearningRateTooLow", "DeadEmbedding", "AttentionEntropyCollapse", "GradientNoise",
}  # fmt: skip


def test_every_rule_for_deep_learning_has_a_fault() -> None:
    assert {rule for fault in FAULTS.values() for rule in fault.rules} == SEEN_BY_SOME_FAULT


def test_every_fault_says_what_is_wrong_in_a_sentence() -> None:
    summaries = {name: fault.summary for name, fault in FAULTS.items()}
    assert [name for name, summary in summaries.items() if not summary.endswith(".") or "\n" in summary] == []
