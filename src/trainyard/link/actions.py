"""What the actions of a rule ask of the agent, which stops programs; all others are the yard's to carry out."""

import re

from trainyard.link.contract import RuleSpec

STOP, CHECKPOINT_THEN_STOP = "stoptraining", "checkpointthenstop"  # however they are written


def is_stop(rule: RuleSpec, job: str) -> bool:
    """Whether the program of a job is stopped when the rule finds something. An action may name other jobs instead."""
    return bool(_words(rule, job) & {STOP, CHECKPOINT_THEN_STOP})


def wants_checkpoint(rule: RuleSpec, job: str) -> bool:
    """Whether a checkpoint is to be saved before that."""
    return CHECKPOINT_THEN_STOP in _words(rule, job)


def _words(rule: RuleSpec, job: str) -> set[str]:
    if rule.is_dry:
        return set()
    meant = [action for action in rule.actions if job.startswith(action.get("training_job_prefix", ""))]
    return {re.sub(r"[^a-z]", "", action.get("name", "").lower()) for action in meant}
