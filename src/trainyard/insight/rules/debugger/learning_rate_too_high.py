"""Updates so large that the weights are thrown about."""

import numpy as np

from trainyard.insight.rules.contract import Parameter
from trainyard.insight.rules.readings import Numbers
from trainyard.insight.rules.updates import Pace, PaceRule


class LearningRateTooHigh(PaceRule):
    """Finds trainings whose updates are too large a share of the weights."""

    name = "LearningRateTooHigh"
    parameters = (
        Parameter("threshold", float, 0.1, "The share of its norm by which half of the weights may move.", at_least=0),
        Parameter("patience", int, 3, "For how many steps on end it must be exceeded.", at_least=1),
    )
    label = "median of |update| / |weight|"

    def sum_up(self, moved: Numbers) -> float:
        # The lower of two in the middle: half of the weights may begin at zero, as those of low-rank adapters do, and
        # move by all that they are at first.
        known = np.sort(moved[np.isfinite(moved)])
        return float(known[(len(known) - 1) // 2])

    def is_wrong(self, share: float) -> bool:
        return share > self.threshold

    def describe(self, pace: Pace) -> str:
        return (
            f"An update moves half of the weights by {pace.share:.2g} of their norm or more, over {self.threshold:g} "
            f"for {pace.steps} steps, and {pace.fastest} furthest: the learning rate is too high."
        )
