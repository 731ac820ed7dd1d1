"""Which actions the news of a job call for."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime

from trainyard.foundation.errors import AlreadyExists, NotFound
from trainyard.foundation.jobs import InstanceState, Outcome, RulePlan, RuleState, Status, TrainingJob
from trainyard.foundation.rule_status import RuleStatus
from trainyard.foundation.rules import found_rules, rule_states
from trainyard.foundation.transitions import ask_to_stop
from trainyard.link.contract import INTERRUPTED
from trainyard.server.actions import ActionStatus, RuleAction, action_to_do, draft_of, event_of, key_of
from trainyard.server.control.ending import MAX_RUNTIME
from trainyard.server.control.reports import MAX_NOTES
from trainyard.server.records.contract import Records, ResourceId

log = logging.getLogger(__name__)

BY_RULE = "rule"  # the reason of a stop that a rule asked for
_MESSAGE_LENGTH = 500


def ask_for_actions(
    records: Records, job_id: ResourceId, before: TrainingJob, *, after: TrainingJob, now: datetime
) -> None:
    """Remember the actions of the rules that have come to find something, before what they found is remembered.

    Who is killed in between hears the same again and finds the actions there.
    """
    for action, status in _asked(job_id, before, after):
        draft = draft_of(job_id, after, action, status=status)
        event = None if status is ActionStatus.DUE else event_of(action, status)
        try:
            records.create(draft, now=now, event=event)
        except AlreadyExists:
            continue
        except NotFound:  # the job has been deleted meanwhile
            return
        log.info("rule asked for an action", extra={"job": after.name, "rule": action.rule, "action": action.name})


def stopped_by_rules(before: TrainingJob, after: TrainingJob, *, now: datetime) -> TrainingJob:
    """The job on its way to its end, if a rule with that action has come to find something.

    The agent of the instance that found it has stopped its program already; this stops the others. On nodes the agents
    say when that has to be, after a checkpoint perhaps.
    """
    if after.status is not Status.IN_PROGRESS or after.attempt is None:
        return after
    if not any(map(_may_be_stopped, after.attempt.instances)):
        return after
    for rule, state in [*_news(before, after), *_stopping(after)]:
        if state.stops or (not rule.is_dry and any(is_own_stop(action, after.name) for action in rule.actions)):
            return _stopped(after, rule, state, now=now)
    if any(map(_was_stopped_by_agent, after.attempt.instances)):  # for what may have been heard before its end was
        for rule, state in _found(after):
            if not rule.is_dry and any(is_of_agent(action, after.name) for action in rule.actions):
                return _stopped(after, rule, state, now=now)
    return after


def noted(before: TrainingJob, after: TrainingJob) -> TrainingJob:
    """The job with a note for each rule that has come to find something, which those who follow it see at once."""
    notes = [
        f"Rule {rule.name} found an issue: {state.details}"[:_MESSAGE_LENGTH] for rule, state in _news(before, after)
    ]
    return after.noted(*notes) if notes and len(after.notes) < MAX_NOTES else after


def is_own_stop(action: Mapping[str, str], job_name: str) -> bool:
    """Whether an action stops the very job whose rule it is of, at once."""
    return action["name"] == "stoptraining" and action.get("training_job_prefix", "") in ("", job_name)


def is_of_agent(action: Mapping[str, str], job_name: str) -> bool:
    """Whether the agents of the job carry an action out, yard or no yard."""
    return action["name"] == "checkpointthenstop" or is_own_stop(action, job_name)


def _asked(job_id: ResourceId, before: TrainingJob, after: TrainingJob) -> Iterator[tuple[RuleAction, ActionStatus]]:
    for rule, state in _news(before, after):
        for number, action in enumerate(rule.actions, 1):
            asked = action_to_do(after, state, action, key=key_of(job_id, rule.name, number))
            if rule.is_dry:
                yield replace(asked, told="Not done: the rule has dry_run.", at=state.at), ActionStatus.DRY
            elif is_of_agent(action, after.name):
                yield (
                    replace(asked, told="The instance that found it does so.", at=state.at, tries=1),
                    ActionStatus.DONE,
                )
            else:
                yield asked, ActionStatus.DUE


def _news(before: TrainingJob, after: TrainingJob) -> list[tuple[RulePlan, RuleState]]:
    """The rules that have come to find something, with how they stand."""
    known = found_rules(before)
    return [(rule, state) for rule, state in _found(after) if rule.name not in known]


def _found(job: TrainingJob) -> list[tuple[RulePlan, RuleState]]:
    """The rules that have found something."""
    return [(rule, state) for rule, state in _standing(job) if state.status is RuleStatus.ISSUES_FOUND]


def _stopping(job: TrainingJob) -> list[tuple[RulePlan, RuleState]]:
    """The rules because of which an instance has asked to stop them all."""
    return [(rule, state) for rule, state in _standing(job) if state.stops]


def _standing(job: TrainingJob) -> Iterator[tuple[RulePlan, RuleState]]:
    plan = job.plan.debugger
    return zip(plan.rules, rule_states(job), strict=True) if plan else iter(())


def _stopped(job: TrainingJob, rule: RulePlan, state: RuleState, *, now: datetime) -> TrainingJob:
    message = f"Rule {rule.name} stops the training job: {state.details}"
    return ask_to_stop(job, BY_RULE, at=now, message=message[:_MESSAGE_LENGTH])


def _was_stopped_by_agent(instance: InstanceState) -> bool:
    """Whether an instance was stopped without an order of the yard, and not because its time was over."""
    return instance.outcome is Outcome.STOPPED and instance.reason not in (MAX_RUNTIME, INTERRUPTED)


def _may_be_stopped(instance: InstanceState) -> bool:
    """Whether the program of an instance goes on, or was stopped before its end."""
    if instance.has_ended:
        return instance.outcome is Outcome.STOPPED
    return instance.exit_code is None and instance.exit_signal is None
