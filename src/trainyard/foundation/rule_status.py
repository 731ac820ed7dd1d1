"""Where the evaluation of a rule stands, in AWS's words."""

from enum import StrEnum


class RuleStatus(StrEnum):
    """A word of `DebugRuleEvaluationStatuses`."""

    IN_PROGRESS = "InProgress"
    NO_ISSUES_FOUND = "NoIssuesFound"
    ISSUES_FOUND = "IssuesFound"
    ERROR = "Error"
    STOPPING = "Stopping"
    STOPPED = "Stopped"
