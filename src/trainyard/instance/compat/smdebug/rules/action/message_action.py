"""Messages of a rule, which only the yard can send."""

from ...core.logger import get_logger


class MessageAction:
    """Logs a warning: the yard sends emails and text messages, not a program that runs a rule itself."""

    def __init__(self, rule_name: str, message_type: str, message_endpoint: str) -> None:
        self._rule, self._kind, self._endpoint = rule_name, message_type, message_endpoint

    def invoke(self, message: str | None = None) -> None:
        get_logger().warning(
            "%s sends no %s to %s%s: only the yard sends messages, for the rules of a training job. Pass the action to "
            "Rule.custom(..., actions=...) of the estimator.",
            self._rule,
            self._kind,
            self._endpoint,
            f" ({message})" if message else "",
        )
