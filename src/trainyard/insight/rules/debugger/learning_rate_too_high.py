"""Updates that are too large for the weights."""

import numpy as np

from trainyard.insight.rules.contract import Parameter
from trainyard.insight.rules.readings import Numbers
from trainyard.insight.rules.updates import UpdateSize, UpdateSizeRule


class LearningRateTooHigh(UpdateSizeRule):
    """Finds trainings whose updates are too large a share of the weights."""

    name = "LearningRateTooHigh"
    parameters = (
        Parameter(
            "threshold", float, 0.1, "The share of their norm by which half of the weights may move.", at_least=0
        ),
        Parameter("patience", int, 3, "For how many consecutive steps it must be exceeded.", at_least=1),
    )
    label = "median of |update| / |weight|"

    def sum_up(self, moved: Numbers) -> float:
        # The lower median: half of the weights may start at zero, like those of low-rank adapters, and their first
        # updates are as large as the weights themselves.
        known = np.sort(moved[np.isfinite(moved)])
        return float(known[(len(known) - 1) // 2])

    def is_wrong(self, share: float) -> bool:
        return share > self.threshold

    def describe(self, pace: UpdateSize) -> str:
        return (
            f"An update moves half of the weights by {pace.share:.2g} of their norm or more, over {self.threshold:g} "
            f"for {pace.steps} steps, and {pace.fastest} the most: the learning rate is too high."
        )
