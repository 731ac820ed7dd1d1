"""Small trainings that are healthy, and their faulty twins: what a rule must leave alone, and what it must see.

`TRAININGS` names the healthy ones, and `FAULTS` in `trainyard.testing.trainings.faults` what can be wrong with them.
Each of either is run with a seed and a `Watch`, which sees what a hook would see. They need torch and scikit-learn.
"""

from trainyard.testing.trainings import cnn, fine_tuning, mlp, regression, rnn, transformer
from trainyard.testing.trainings.training import Training

TRAININGS = {
    training.name: training
    for training in (
        Training("mlp", mlp.prepare),
        Training("cnn", cnn.prepare),
        Training("transformer", transformer.prepare),
        Training("rnn", rnn.prepare),
        Training("regression", regression.prepare),
        Training("fine_tuning", fine_tuning.prepare),
    )
}
