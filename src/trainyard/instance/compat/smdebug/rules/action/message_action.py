"""Says where messages of rules are sent from."""

from ...core.logger import get_logger


class MessageAction:
    """A mail or a text message, which the yard sends and not the program that runs a rule by itself."""

    def __init__(self, rule_name: str, message_type: str, message_endpoint: str) -> None:
        self._rule, self._kind, self._endpoint = rule_name, message_type, message_endpoint

    def invoke(self, message: str | None = None) -> None:
        get_logger().warning(
            "%s sends no %s to %s%s: messages are sent by the yard, for rules of a training job. Give the action to "
            "Rule.custom(..., actions=...) of the estimator.",
            self._rule,
            self._kind,
            self._endpoint,
            f" ({message})" if message else "",
        )
