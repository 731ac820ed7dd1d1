"""The actions of a rule, as one JSON string tells them."""

import json
from collections.abc import Mapping
from typing import Any, Protocol

from ...core.logger import get_logger
from .message_action import MessageAction
from .stop_training_action import StopTrainingAction

ALLOWED_ACTIONS = ["stoptraining", "sms", "email"]


class Action(Protocol):
    """One thing that is done. What it raises is logged and stops nothing."""

    def invoke(self, message: str | None = None) -> None: ...


class Actions:
    """The actions of a rule: one object, or a list of them, each with a name and what it needs.

    Names are the same in any case; all else is left as it is, so that a job's prefix may have capitals. What cannot be
    understood is logged and left out.
    """

    def __init__(self, actions_str: str | None = None, rule_name: str = "") -> None:
        self._logger = get_logger()
        told = _parsed(actions_str)
        self._actions = [action for each in told if (action := self._made(each, rule_name))]

    def invoke(self, message: str = "") -> None:
        for action in self._actions:
            try:
                action.invoke(message)
            except Exception:  # an action of many must not keep the others, nor the rule, from going on
                self._logger.exception("an action of a rule failed")

    def _made(self, told: Any, rule_name: str) -> Action | None:
        name = str(told.get("name", "")).lower() if isinstance(told, Mapping) else ""
        if name == "stoptraining" and told.get("training_job_prefix"):
            return StopTrainingAction(rule_name, told["training_job_prefix"])
        if name in ("sms", "email") and told.get("endpoint"):
            return MessageAction(rule_name, name, told["endpoint"])
        needs = "stoptraining needs a training_job_prefix, sms and email an endpoint"
        self._logger.warning("%r of the rule %s is no action and left out: %s.", told, rule_name, needs)
        return None


def _parsed(actions_str: str | None) -> list[Any]:
    if not actions_str or not actions_str.strip():
        return []
    told = json.loads(actions_str)
    return told if isinstance(told, list) else [told]
