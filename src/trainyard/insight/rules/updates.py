"""How far the optimizer moves the weights in a step, in shares of what they are: what tells a learning rate."""

import numpy as np

from trainyard.formats.tensors.contract import Mode, Probe, Step
from trainyard.formats.tensors.probes import UPDATE_NORM_RATIO
from trainyard.insight.rules.contract import Need
from trainyard.insight.rules.readings import Numbers, Reader, Reading, is_matrix

MOVED = Probe(UPDATE_NORM_RATIO)
GRADIENTS = Need(collections=("gradients",))
UPDATES = Need(collections=("weights",), probes=(MOVED,), also=(GRADIENTS,))


def weights_reader() -> Reader:
    """Reads the weights that layers multiply by; scales of normalisations and biases move by other measures."""
    return Reader(UPDATES, is_matrix)


def moves(reading: Reading) -> Numbers:
    """By what share of its norm the last update changed each weight; NaN for those that are not trained."""
    return np.where(reading.chosen.is_trained, reading.measured(MOVED), np.nan)


def trains(step: Step) -> bool:
    return step.mode in (Mode.TRAIN, Mode.GLOBAL)
