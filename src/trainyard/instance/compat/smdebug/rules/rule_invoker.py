"""Runs a rule over the steps of its trial."""

from itertools import count

from ..core.logger import get_logger
from ..exceptions import (
    NoMoreProfilerData,
    RuleEvaluationConditionMet,
    StepUnavailable,
    TensorUnavailable,
    TensorUnavailableForStep,
)
from .rule import Rule


def invoke_rule(
    rule_obj: Rule, start_step: int | None = 0, end_step: int | None = None, raise_eval_cond: bool = False
) -> None:
    """Evaluate the steps from `start_step` up to but excluding `end_step`, skipping those without the rule's tensors.

    Without an end, it continues until NoMoreData signals the end of the training. A condition that is met is logged, or
    raised if `raise_eval_cond` is set.
    """
    logger = get_logger()
    for step in count(start_step or 0) if end_step is None else range(start_step or 0, end_step):
        try:
            rule_obj.invoke(step)
        except (TensorUnavailableForStep, StepUnavailable, TensorUnavailable) as error:
            logger.debug("%s", error)
        except RuleEvaluationConditionMet as error:
            if raise_eval_cond:
                raise
            logger.info("%s", error)
            if error.end_of_rule:
                return
        except NoMoreProfilerData as error:
            logger.info("%s", error)
            return
