"""Small healthy trainings and their faulty twins: what a rule must ignore, and what it must find.

`TRAININGS` are the healthy ones, and `FAULTS` in `trainyard.testing.trainings.faults` what can be wrong with them. Each
runs with a seed and a `TrainingWatch`, which observes what a hook would. They need torch and scikit-learn.
"""

from trainyard.testing.trainings import digits, regression, reviews
from trainyard.testing.trainings.training import SampleTraining

TRAININGS = {
    training.name: training
    for training in (
        SampleTraining("mlp", digits.prepare_mlp),
        SampleTraining("cnn", digits.prepare_cnn),
        SampleTraining("transformer", reviews.prepare_transformer),
        SampleTraining("rnn", reviews.prepare_rnn),
        SampleTraining("regression", regression.prepare),
        SampleTraining("fine_tuning", digits.prepare_fine_tuning),
    )
}
