"""The faulty twins of the healthy trainings: what is wrong, since which step, and which rules ought to see it."""

from trainyard.testing.trainings import TRAININGS
from trainyard.testing.trainings.faults import data, optimisation, weights
from trainyard.testing.trainings.training import Fault

_MLP, _CNN, _TRANSFORMER = TRAININGS["mlp"], TRAININGS["cnn"], TRAININGS["transformer"]
_RNN, _REGRESSION, _FINE_TUNING = TRAININGS["rnn"], TRAININGS["regression"], TRAININGS["fine_tuning"]

FAULTS = {
    fault.name: fault
    for fault in (
        Fault(
            optimisation.enormous_learning_rate, _REGRESSION, ("ExplodingTensor", "NotANumber", "LearningRateTooHigh")
        ),
        Fault(optimisation.high_learning_rate, _MLP, ("LearningRateTooHigh", "DeadRelu")),
        Fault(optimisation.low_learning_rate, _RNN, ("LearningRateTooLow", "LossNotDecreasing")),
        Fault(
            optimisation.zero_learning_rate,
            _CNN,
            ("LossNotDecreasing", "LearningRateTooLow", "WeightUpdateRatio", "UnchangedTensor"),
        ),
        Fault(
            optimisation.learning_rate_jump,
            _TRANSFORMER,
            ("LossSpike", "LearningRateTooHigh"),
            optimisation.JUMP_STEP,
        ),
        Fault(optimisation.forgotten_layer, _MLP, ("WeightUpdateRatio", "UnchangedTensor")),
        Fault(optimisation.frozen_head, _FINE_TUNING, ("UnchangedTensor",)),
        Fault(optimisation.tiny_batches, _MLP, ("GradientNoise",)),
        Fault(optimisation.too_many_epochs, _REGRESSION, ("Overtraining", "Overfit")),
        Fault(optimisation.fixed_seed, _MLP, ("SimilarAcrossRuns",)),
        Fault(weights.deep_sigmoid_stack, _MLP, ("VanishingGradient", "LossNotDecreasing")),
        Fault(weights.negative_biases, _MLP, ("DeadRelu", "AllZero", "VanishingGradient")),
        Fault(weights.zeroed_layer, _MLP, ("PoorWeightInitialization",)),
        Fault(weights.huge_layer, _MLP, ("PoorWeightInitialization", "TensorVariance")),
        Fault(weights.constant_weights, _MLP, ("PoorWeightInitialization", "TensorVariance")),
        Fault(weights.saturated_tanh, _REGRESSION, ("SaturatedActivation",)),
        Fault(weights.saturated_sigmoid, _MLP, ("SaturatedActivation", "VanishingGradient")),
        Fault(weights.sharpened_attention, _TRANSFORMER, ("AttentionEntropyCollapse",), weights.SHARPENED_STEP),
        Fault(weights.poisoned_weight, _TRANSFORMER, ("NotANumber", "ExplodingTensor"), weights.POISONED_WEIGHT_STEP),
        Fault(weights.lost_epsilon, _CNN, ("NotANumber", "ExplodingTensor"), weights.EPSILON_STEP),
        Fault(weights.altered_replica, _MLP, ("ReplicaDivergence",), weights.ALTERED_STEP),
        Fault(data.poisoned_batch, _CNN, ("NotANumber", "ExplodingTensor"), data.POISONED_STEP),
        Fault(data.outlier_batch, _REGRESSION, ("LossSpike",), data.OUTLIER_STEP),
        Fault(data.blank_images, _CNN, ("AllZero",), data.BLANK_STEP),
        Fault(data.stalled_loader, _MLP, ("StalledTrainingRule",), data.STALL_STEP),
        Fault(data.rare_classes, _MLP, ("ClassImbalance",)),
        Fault(data.shuffled_labels, _MLP, ("LossNotDecreasing", "ClassImbalance", "Confusion")),
        Fault(data.confused_labels, _CNN, ("Confusion",)),
        Fault(data.few_samples, _MLP, ("Overfit",)),
        Fault(data.raw_pixels, _CNN, ("CheckInputImages",)),
        Fault(data.padded_sequences, _RNN, ("NLPSequenceRatio",)),
        Fault(data.unknown_words, _RNN, ("DeadEmbedding",)),
    )
}
