"""What people and programs are told of what a rule found."""

import json
from collections.abc import Mapping
from typing import Any

from trainyard.foundation.clock import to_micros
from trainyard.server.actions import RuleAction

_SMS_LENGTH = 300


def subject(action: RuleAction) -> str:
    return f"Rule {_line(action.rule)} found an issue in training job {action.job}"


def text(action: RuleAction) -> str:
    """Some lines for a person."""
    finding = action.finding
    rows = [f"{title}: {finding[member]}" for member, title in _ROWS.items() if finding.get(member) not in (None, "")]
    lines = [f"{subject(action)}.", "", _found(action), *rows, ""]
    return "\n".join([*lines, f"More: trainyard rules {action.job}", f"Job: {action.job_arn}"])


def short_text(action: RuleAction) -> str:
    """A line for a telephone or a chat."""
    return f"{subject(action)}: {_line(_found(action))}"[:_SMS_LENGTH]


def payload(action: RuleAction) -> bytes:
    """A JSON object for a program."""
    told: Mapping[str, Any] = {
        "key": action.key,
        "event": "rule.issues_found",
        "at_us": to_micros(action.asked_at),
        "job": {"name": action.job, "arn": action.job_arn},
        "rule": action.rule,
        "details": action.details,
        "finding": action.finding,
    }
    return json.dumps(told).encode()


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


def _found(action: RuleAction) -> str:
    return str(action.finding.get("message") or action.details)


def _line(words: str) -> str:
    return " ".join(words.split())
