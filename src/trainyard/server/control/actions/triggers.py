"""Which actions the new findings of a job's rules trigger."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime

from trainyard.foundation.errors import AlreadyExists, NotFound
from trainyard.foundation.jobs.attempts import InstanceState, OutcomeKind, RuleState
from trainyard.foundation.jobs.status import RuleStatus, Status
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.foundation.jobs.training.plan import RulePlan
from trainyard.foundation.jobs.training.rules import found_rules, profiler_rule_states, rule_states
from trainyard.foundation.jobs.training.transitions import ask_to_stop
from trainyard.link.contract import INTERRUPTED
from trainyard.server.control.instances.attempt_end import MAX_RUNTIME
from trainyard.server.control.instances.reports import MAX_NOTES
from trainyard.server.control.profiling.contract import REPORT_RULE
from trainyard.server.jobs.rule_actions import ActionStatus, RuleAction, draft_of, event_of, key_of, new_action
from trainyard.server.records.contract import Records, ResourceId

log = logging.getLogger(__name__)

STOPPED_BY_RULE = "rule"  # stop reason
_MESSAGE_LENGTH = 500


def request_actions(
    records: Records, job_id: ResourceId, before: TrainingJob, *, after: TrainingJob, now: datetime
) -> None:
    """Store the actions of rules with new findings, before the findings are stored.

    A yard that is killed in between reads the findings again and finds the actions there.
    """
    _store_actions(records, job_id, after, _actions_to_request(job_id, before, after), now=now)


def request_profiler_actions(
    records: Records, job_id: ResourceId, before: TrainingJob, *, after: TrainingJob, now: datetime
) -> None:
    """Do the same for the rules of the profiler, which the yard itself evaluates."""
    _store_actions(records, job_id, after, _profiler_actions_to_request(job_id, before, after), now=now)


def _store_actions(
    records: Records,
    job_id: ResourceId,
    after: TrainingJob,
    actions: Iterable[tuple[RuleAction, ActionStatus]],
    *,
    now: datetime,
) -> None:
    for action, status in actions:
        draft = draft_of(job_id, after, action, status=status)
        event = None if status is ActionStatus.DUE else event_of(action, status)
        try:
            records.create(draft, now=now, event=event)
        except AlreadyExists:
            continue
        except NotFound:
            # The job was deleted meanwhile.
            return
        log.info("rule asked for an action", extra={"job": after.name, "rule": action.rule, "action": action.name})


def stop_for_rules(before: TrainingJob, after: TrainingJob, *, now: datetime) -> TrainingJob:
    """Stop the job if a rule that stops jobs has found an issue.

    The agent of the instance that found it has already stopped its program; this stops the others. On several nodes the
    agents say when to stop, perhaps after a checkpoint.
    """
    if after.status is not Status.IN_PROGRESS or after.attempt is None:
        return after
    if not any(map(_may_be_stopped, after.attempt.instances)):
        return after
    for rule, state in [*_new_findings(before, after), *_rules_that_stop(after)]:
        if state.stops or (not rule.is_dry and any(is_own_stop(action, after.name) for action in rule.actions)):
            return _stop(after, rule, state, now=now)
    if any(map(_was_stopped_by_agent, after.attempt.instances)):
        # The finding may have been read before the end of the instance was.
        for rule, state in _rules_with_findings(after):
            if not rule.is_dry and any(is_done_by_agent(action, after.name) for action in rule.actions):
                return _stop(after, rule, state, now=now)
    return after


def stop_for_profiler_rules(before: TrainingJob, after: TrainingJob, *, now: datetime) -> TrainingJob:
    """Stop the job if a rule of the profiler that stops jobs has found an issue."""
    if after.status is not Status.IN_PROGRESS:
        return after
    for rule, state in _new_profiler_findings(before, after):
        if not rule.is_dry and any(is_own_stop(action, after.name) for action in rule.actions):
            return _stop(after, rule, state, now=now)
    return after


def add_rule_notes(before: TrainingJob, after: TrainingJob) -> TrainingJob:
    """Add a note for each rule with a new finding, so that everyone who follows the job sees it at once."""
    notes = [
        f"Rule {rule.name} found an issue: {state.details}"[:_MESSAGE_LENGTH]
        for rule, state in _new_findings(before, after)
    ]
    return after.with_notes(*notes) if notes and len(after.notes) < MAX_NOTES else after


def add_profiler_notes(before: TrainingJob, after: TrainingJob) -> TrainingJob:
    """Add such notes for rules of the profiler. Those of a report, which a job may have unasked, are in the report."""
    notes = [
        f"Rule {rule.name} found an issue: {state.details}"[:_MESSAGE_LENGTH]
        for rule, state in _new_profiler_findings(before, after)
        if rule.rule != REPORT_RULE
    ]
    return after.with_notes(*notes) if notes and len(after.notes) < MAX_NOTES else after


def is_own_stop(action: Mapping[str, str], job_name: str) -> bool:
    """Whether an action stops the job of its own rule at once."""
    return action["name"] == "stoptraining" and action.get("training_job_prefix", "") in ("", job_name)


def is_done_by_agent(action: Mapping[str, str], job_name: str) -> bool:
    """Whether the agents of the job carry out an action themselves, even without a yard."""
    return action["name"] == "checkpointthenstop" or is_own_stop(action, job_name)


def _actions_to_request(
    job_id: ResourceId, before: TrainingJob, after: TrainingJob
) -> Iterator[tuple[RuleAction, ActionStatus]]:
    for rule, state in _new_findings(before, after):
        for number, action in enumerate(rule.actions, 1):
            asked = new_action(after, state, action, key=key_of(job_id, rule.name, number))
            if rule.is_dry:
                yield replace(asked, told="Not carried out: the rule has dry_run.", at=state.at), ActionStatus.DRY
            elif is_done_by_agent(action, after.name):
                yield (
                    replace(asked, told="The instance that found the issue carries it out.", at=state.at, tries=1),
                    ActionStatus.DONE,
                )
            else:
                yield asked, ActionStatus.DUE


def _profiler_actions_to_request(
    job_id: ResourceId, before: TrainingJob, after: TrainingJob
) -> Iterator[tuple[RuleAction, ActionStatus]]:
    for rule, state in _new_profiler_findings(before, after):
        for number, action in enumerate(rule.actions, 1):
            # A rule of the debugger may have the same name.
            asked = new_action(after, state, action, key=key_of(job_id, f"profiler/{rule.name}", number))
            if rule.is_dry:
                yield replace(asked, told="Not carried out: the rule has dry_run.", at=state.at), ActionStatus.DRY
            elif is_own_stop(action, after.name):
                is_running = after.status is Status.IN_PROGRESS
                told = "The job was asked to stop." if is_running else f"The job was {after.status} already."
                yield replace(asked, told=told, at=state.at, tries=1), ActionStatus.DONE
            else:
                yield asked, ActionStatus.DUE


def _new_profiler_findings(before: TrainingJob, after: TrainingJob) -> list[tuple[RulePlan, RuleState]]:
    """The rules of the profiler that have found an issue since `before`, with their states."""
    known = {state.name for state in profiler_rule_states(before) if state.status is RuleStatus.ISSUES_FOUND}
    rules = after.plan.profiler.rules if after.plan.profiler else ()
    return [
        (rule, state)
        for rule, state in zip(rules, profiler_rule_states(after), strict=True)
        if state.status is RuleStatus.ISSUES_FOUND and state.name not in known
    ]


def _new_findings(before: TrainingJob, after: TrainingJob) -> list[tuple[RulePlan, RuleState]]:
    """The rules that have found an issue since `before`, with their states."""
    known = found_rules(before)
    return [(rule, state) for rule, state in _rules_with_findings(after) if rule.name not in known]


def _rules_with_findings(job: TrainingJob) -> list[tuple[RulePlan, RuleState]]:
    """The rules that have found an issue."""
    return [(rule, state) for rule, state in _rules_with_states(job) if state.status is RuleStatus.ISSUES_FOUND]


def _rules_that_stop(job: TrainingJob) -> list[tuple[RulePlan, RuleState]]:
    """The rules for which an instance has asked to stop the job."""
    return [(rule, state) for rule, state in _rules_with_states(job) if state.stops]


def _rules_with_states(job: TrainingJob) -> Iterator[tuple[RulePlan, RuleState]]:
    plan = job.plan.debugger
    return zip(plan.rules, rule_states(job), strict=True) if plan else iter(())


def _stop(job: TrainingJob, rule: RulePlan, state: RuleState, *, now: datetime) -> TrainingJob:
    message = f"Rule {rule.name} stops the training job: {state.details}"
    return ask_to_stop(job, STOPPED_BY_RULE, at=now, message=message[:_MESSAGE_LENGTH])


def _was_stopped_by_agent(instance: InstanceState) -> bool:
    """Whether an instance was stopped by its agent, not by the yard or because its time was over."""
    return instance.outcome is OutcomeKind.STOPPED and instance.reason not in (MAX_RUNTIME, INTERRUPTED)


def _may_be_stopped(instance: InstanceState) -> bool:
    """Whether the program of an instance is running, or was stopped before its end."""
    if instance.has_ended:
        return instance.outcome is OutcomeKind.STOPPED
    return instance.exit_code is None and instance.exit_signal is None
