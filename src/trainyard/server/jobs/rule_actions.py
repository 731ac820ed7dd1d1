"""Actions of rules as the records store them, with their status and result.

Each action is a child resource of its job, named after the job, the rule, and its number among the rule's actions. A
repeated request finds the existing resource, so a kill at any point neither loses an action nor runs it twice.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from trainyard.foundation.jobs.attempts import RuleState
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.foundation.plain import from_plain, to_plain
from trainyard.server.records.contract import Draft, NewEvent, Resource, ResourceId, ResourceKey

KIND = "rule-action"


class ActionStatus(StrEnum):
    """The status of an action. Due actions are tried until they succeed; those of a dry run are only reported."""

    DUE = "Due"
    DONE = "Done"
    FAILED = "Failed"
    DRY = "DryRun"


@dataclass(frozen=True, slots=True)
class RuleAction:
    """One action of one rule of one job. `told` is the reply to the action, or the reason why it was not run."""

    # The same at every try, so that receivers can ignore a repeated action.
    key: str
    job: str
    job_arn: str
    rule: str
    action: Mapping[str, str]
    asked_at: datetime
    details: str = ""
    finding: Mapping[str, object] = field(default_factory=dict)
    tries: int = 0
    told: str = ""
    # The time of the last try.
    at: datetime | None = None

    @property
    def name(self) -> str:
        return self.action["name"]

    @property
    def endpoint(self) -> str:
        return self.action.get("endpoint", "") or self.action.get("training_job_prefix", "")


def action_of(resource: Resource) -> RuleAction:
    return from_plain(RuleAction, resource.body)


def key_of(job_id: ResourceId, rule: str, number: int) -> str:
    """Return the key of an action, in characters that every gateway accepts. Rule names may contain any character."""
    return f"{job_id}-{hashlib.sha256(rule.encode()).hexdigest()[:12]}-{number}"


def new_action(job: TrainingJob, state: RuleState, action: Mapping[str, str], *, key: str) -> RuleAction:
    """Return the action that a finding of a rule triggers."""
    return RuleAction(
        key=key,
        job=job.name,
        job_arn=job.arn,
        rule=state.name,
        action=action,
        asked_at=state.at,
        details=state.details,
        finding=state.findings[0] if state.findings else {},
    )


def draft_of(job_id: ResourceId, job: TrainingJob, action: RuleAction, *, status: ActionStatus) -> Draft:
    return Draft(
        ResourceKey(job.account, KIND, action.key),
        job.region,
        to_plain(action),
        status=status,
        parent=job_id,
        due_at=action.asked_at if status is ActionStatus.DUE else None,
    )


def event_of(action: RuleAction, status: ActionStatus) -> NewEvent:
    """Return the event that reports an action and its result."""
    return NewEvent(
        "training-job.action",
        {
            "key": action.key,
            "job": action.job,
            "rule": action.rule,
            "action": action.name,
            "to": action.endpoint,
            "status": status,
            "tries": action.tries,
            "told": action.told,
        },
    )
