"""Updates that are too small to make progress."""

from trainyard.insight.rules.contract import Parameter
from trainyard.insight.rules.readings import Numbers
from trainyard.insight.rules.updates import UpdateSize, UpdateSizeRule


class LearningRateTooLow(UpdateSizeRule):
    """Finds trainings whose updates are too small a share of the weights."""

    name = "LearningRateTooLow"
    parameters = (
        Parameter("threshold", float, 1e-5, "The share of its norm by which some weight must move.", at_least=0),
        Parameter("patience", int, 50, "For how many consecutive steps no weight must move that far.", at_least=1),
    )
    label = "largest |update| / |weight|"

    def sum_up(self, moved: Numbers) -> float:
        return float(moved.max())

    def is_wrong(self, share: float) -> bool:
        return share < self.threshold

    def describe(self, pace: UpdateSize) -> str:
        return (
            f"No update moved any weight by {self.threshold:.0e} of its norm for {pace.steps} steps; the last moved "
            f"{pace.fastest} most, by {pace.share:.1e}: the learning rate is too low."
        )
