"""The faulty twins of the healthy trainings: what is wrong, from which step on, and which rules should find it."""

from trainyard.testing.trainings import TRAININGS
from trainyard.testing.trainings.faults import data, optimisation, weights
from trainyard.testing.trainings.training import TrainingFault

_MLP, _CNN, _TRANSFORMER = TRAININGS["mlp"], TRAININGS["cnn"], TRAININGS["transformer"]
_RNN, _REGRESSION, _FINE_TUNING = TRAININGS["rnn"], TRAININGS["regression"], TRAININGS["fine_tuning"]

FAULTS = {
    fault.name: fault
    for fault in (
        TrainingFault(
            optimisation.enormous_learning_rate, _REGRESSION, ("ExplodingTensor", "NotANumber", "LearningRateTooHigh")
        ),
        TrainingFault(optimisation.high_learning_rate, _MLP, ("LearningRateTooHigh", "DeadRelu")),
        TrainingFault(optimisation.low_learning_rate, _RNN, ("LearningRateTooLow", "LossNotDecreasing")),
        TrainingFault(
            optimisation.zero_learning_rate,
            _CNN,
            ("LossNotDecreasing", "LearningRateTooLow", "WeightUpdateRatio", "UnchangedTensor"),
        ),
        TrainingFault(
            optimisation.learning_rate_jump,
            _TRANSFORMER,
            ("LossSpike", "LearningRateTooHigh"),
            optimisation.JUMP_STEP,
        ),
        TrainingFault(optimisation.forgotten_layer, _MLP, ("WeightUpdateRatio", "UnchangedTensor")),
        TrainingFault(optimisation.frozen_head, _FINE_TUNING, ("UnchangedTensor",)),
        TrainingFault(optimisation.tiny_batches, _MLP, ("GradientNoise",)),
        TrainingFault(optimisation.too_many_epochs, _REGRESSION, ("Overtraining", "Overfit")),
        TrainingFault(optimisation.fixed_seed, _MLP, ("SimilarAcrossRuns",)),
        TrainingFault(weights.deep_sigmoid_stack, _MLP, ("VanishingGradient", "LossNotDecreasing")),
        TrainingFault(weights.negative_biases, _MLP, ("DeadRelu", "AllZero", "VanishingGradient")),
        TrainingFault(weights.zeroed_layer, _MLP, ("PoorWeightInitialization",)),
        TrainingFault(weights.huge_layer, _MLP, ("PoorWeightInitialization", "TensorVariance")),
        TrainingFault(weights.constant_weights, _MLP, ("PoorWeightInitialization", "TensorVariance")),
        TrainingFault(weights.saturated_tanh, _REGRESSION, ("SaturatedActivation",)),
        TrainingFault(weights.saturated_sigmoid, _MLP, ("SaturatedActivation", "VanishingGradient")),
        TrainingFault(weights.sharpened_attention, _TRANSFORMER, ("AttentionEntropyCollapse",), weights.SHARPENED_STEP),
        TrainingFault(
            weights.poisoned_weight, _TRANSFORMER, ("NotANumber", "ExplodingTensor"), weights.POISONED_WEIGHT_STEP
        ),
        TrainingFault(weights.lost_epsilon, _CNN, ("NotANumber", "ExplodingTensor"), weights.EPSILON_STEP),
        TrainingFault(weights.altered_replica, _MLP, ("ReplicaDivergence",), weights.ALTERED_STEP),
        TrainingFault(data.poisoned_batch, _CNN, ("NotANumber", "ExplodingTensor"), data.POISONED_STEP),
        TrainingFault(data.outlier_batch, _REGRESSION, ("LossSpike",), data.OUTLIER_STEP),
        TrainingFault(data.blank_images, _CNN, ("AllZero",), data.BLANK_STEP),
        TrainingFault(data.stalled_loader, _MLP, ("StalledTrainingRule",), data.STALL_STEP),
        TrainingFault(data.rare_classes, _MLP, ("ClassImbalance",)),
        TrainingFault(data.shuffled_labels, _MLP, ("LossNotDecreasing", "ClassImbalance", "Confusion")),
        TrainingFault(data.confused_labels, _CNN, ("Confusion",)),
        TrainingFault(data.few_samples, _MLP, ("Overfit",)),
        TrainingFault(data.raw_pixels, _CNN, ("CheckInputImages",)),
        TrainingFault(data.padded_sequences, _RNN, ("NLPSequenceRatio",)),
        TrainingFault(data.unknown_words, _RNN, ("DeadEmbedding",)),
    )
}
