"""What a rule of one's own derives from."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from ..analysis.utils import no_refresh
from ..core.logger import get_logger
from ..exceptions import RuleEvaluationConditionMet
from ..trials.trial import Trial
from .action import Actions
from .req_tensors import RequiredTensors


class Rule(ABC):
    """Judges the steps of a trial, one after the other.

    A job gives the parameters of a rule as strings. `action_str` may be left out: AWS's own examples do so.
    """

    def __init__(
        self, base_trial: Trial, action_str: str | None = None, other_trials: Iterable[Trial] | None = None
    ) -> None:
        self.base_trial = base_trial
        self.other_trials = None if other_trials is None else list(other_trials)
        self.trials = [base_trial, *(self.other_trials or ())]
        self.req_tensors = RequiredTensors(base_trial, self.other_trials)
        self.logger = get_logger()
        self.rule_name = type(self).__name__
        self.report: dict[str, Any] = {
            "RuleTriggered": 0,
            "Violations": 0,
            "Details": {},
            "Datapoints": 0,
            "RuleParameters": "",
        }
        self._actions = Actions(action_str, rule_name=self.rule_name)

    def set_required_tensors(self, step: int) -> None:  # noqa: B027  # which a rule need not say
        """Ask by `self.req_tensors.add` for what must be there before the step is judged."""

    @abstractmethod
    def invoke_at_step(self, step: int) -> bool:
        """Whether the rule finds what it looks for at a step of all modes."""

    def invoke(self, step: int) -> None:
        """Wait for a step and judge it; what is found is acted on and raised as RuleEvaluationConditionMet."""
        self.base_trial.wait_for_steps([step])
        with no_refresh(self.trials):
            self.req_tensors.clear()
            self.set_required_tensors(step)
            self.req_tensors.fetch()
            has_found = self.invoke_at_step(step)
        if has_found:
            self._actions.invoke()
            raise RuleEvaluationConditionMet(self.rule_name, step)
