"""The base class of custom rules."""

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
    """Evaluates the steps of a trial, one after the other.

    A job passes the parameters of a rule as strings. `action_str` is optional, because AWS's own examples omit it.
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

    def set_required_tensors(self, step: int) -> None:  # noqa: B027
        """Declare with `self.req_tensors.add` the tensors that the step needs. Overriding this is optional."""

    @abstractmethod
    def invoke_at_step(self, step: int) -> bool:
        """Return whether the rule's condition is met at a global step."""

    def invoke(self, step: int) -> None:
        """Wait for a step and evaluate it. If the condition is met, act and raise RuleEvaluationConditionMet."""
        self.base_trial.wait_for_steps([step])
        with no_refresh(self.trials):
            self.req_tensors.clear()
            self.set_required_tensors(step)
            self.req_tensors.fetch()
            is_met = self.invoke_at_step(step)
        if is_met:
            self._actions.invoke()
            raise RuleEvaluationConditionMet(self.rule_name, step)
