"""The actions of a rule, parsed from a JSON string."""

import json
from collections.abc import Mapping
from typing import Any, Protocol

from ...core.logger import get_logger
from .message_action import MessageAction
from .stop_training_action import StopTrainingAction

ALLOWED_ACTIONS = ["stoptraining", "sms", "email"]


class Action(Protocol):
    """One action. An error in it is logged and stops nothing else."""

    def invoke(self, message: str | None = None) -> None: ...


class Actions:
    """The actions of a rule: one object or a list of them, each with a name and its parameters.

    Names are case-insensitive. Everything else keeps its case, so that a job's prefix may have capitals. Invalid
    actions are logged and left out.
    """

    def __init__(self, actions_str: str | None = None, rule_name: str = "") -> None:
        self._logger = get_logger()
        specs = _parse_actions(actions_str)
        self._actions = [action for each in specs if (action := self._make_action(each, rule_name))]

    def invoke(self, message: str = "") -> None:
        for action in self._actions:
            try:
                action.invoke(message)
            # One failing action must not stop the others or the rule.
            except Exception:
                self._logger.exception("an action of a rule failed")

    def _make_action(self, spec: Any, rule_name: str) -> Action | None:
        name = str(spec.get("name", "")).lower() if isinstance(spec, Mapping) else ""
        if name == "stoptraining" and spec.get("training_job_prefix"):
            return StopTrainingAction(rule_name, spec["training_job_prefix"])
        if name in ("sms", "email") and spec.get("endpoint"):
            return MessageAction(rule_name, name, spec["endpoint"])
        needs = "stoptraining needs a training_job_prefix, sms and email an endpoint"
        self._logger.warning("%r of the rule %s is not a valid action and is left out: %s.", spec, rule_name, needs)
        return None


def _parse_actions(actions_str: str | None) -> list[Any]:
    if not actions_str or not actions_str.strip():
        return []
    specs = json.loads(actions_str)
    return specs if isinstance(specs, list) else [specs]
