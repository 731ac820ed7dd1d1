"""Actions of rules as the records keep them: what is to be done or was, and what came of it.

Each is a resource below its job, named after the job, the rule and its place among the rule's actions. Asking for it
again finds it there, so that whatever is killed on the way neither loses an action nor does it twice.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from trainyard.foundation.jobs import RuleState, TrainingJob
from trainyard.foundation.plain import from_plain, to_plain
from trainyard.server.records.contract import Draft, NewEvent, Resource, ResourceId, ResourceKey

KIND = "rule-action"


class ActionStatus(StrEnum):
    DUE = "Due"  # to be done, or tried again
    DONE = "Done"
    FAILED = "Failed"
    DRY = "DryRun"  # told, and not done


@dataclass(frozen=True, slots=True)
class RuleAction:
    """One action of one rule of one job. `told` is what came back of it, or why it was not done."""

    key: str  # the same however often it is tried, for those who must not take it twice
    job: str
    job_arn: str
    rule: str
    action: Mapping[str, str]
    asked_at: datetime
    details: str = ""
    finding: Mapping[str, object] = field(default_factory=dict)
    tries: int = 0
    told: str = ""
    at: datetime | None = None  # when it was last tried

    @property
    def name(self) -> str:
        return self.action["name"]

    @property
    def endpoint(self) -> str:
        return self.action.get("endpoint", "") or self.action.get("training_job_prefix", "")


def action_of(resource: Resource) -> RuleAction:
    return from_plain(RuleAction, resource.body)


def key_of(job_id: ResourceId, rule: str, number: int) -> str:
    """The key of one of a rule's actions, in characters that every gateway takes; names of rules can have any."""
    return f"{job_id}-{hashlib.sha256(rule.encode()).hexdigest()[:12]}-{number}"


def action_to_do(job: TrainingJob, state: RuleState, action: Mapping[str, str], *, key: str) -> RuleAction:
    """An action that what a rule found calls for."""
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
    """What those who watch are told of an action: what it was, and what came of it."""
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
