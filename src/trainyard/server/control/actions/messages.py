"""The messages about a rule's finding, for people and programs."""

import json
from collections.abc import Mapping
from typing import Any

from trainyard.foundation.clock import to_micros
from trainyard.server.jobs.rule_actions import RuleAction

_SMS_LENGTH = 300


def subject(action: RuleAction) -> str:
    return f"Rule {_on_one_line(action.rule)} found an issue in training job {action.job}"


def text(action: RuleAction) -> str:
    """Return a message of several lines for a person."""
    finding = action.finding
    rows = [f"{title}: {finding[member]}" for member, title in _ROWS.items() if finding.get(member) not in (None, "")]
    lines = [f"{subject(action)}.", "", _finding_text(action), *rows, ""]
    return "\n".join([*lines, f"More: trainyard rules {action.job}", f"Job: {action.job_arn}"])


def short_text(action: RuleAction) -> str:
    """Return a one-line message for a phone or a chat."""
    return f"{subject(action)}: {_on_one_line(_finding_text(action))}"[:_SMS_LENGTH]


def payload(action: RuleAction) -> bytes:
    """Return a JSON object for a program."""
    content: Mapping[str, Any] = {
        "key": action.key,
        "event": "rule.issues_found",
        "at_us": to_micros(action.asked_at),
        "job": {"name": action.job, "arn": action.job_arn},
        "rule": action.rule,
        "details": action.details,
        "finding": action.finding,
    }
    return json.dumps(content).encode()


_ROWS = {
    "step": "Step",
    "mode": "Mode",
    "tensor": "Tensor",
    "module": "Module",
    "worker": "Worker",
    "value": "Value",
    "threshold": "Threshold",
    "severity": "Severity",
}


def _finding_text(action: RuleAction) -> str:
    return str(action.finding.get("message") or action.details)


def _on_one_line(words: str) -> str:
    return " ".join(words.split())
