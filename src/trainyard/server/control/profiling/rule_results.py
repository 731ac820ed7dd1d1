"""What an evaluation means for the states of a job's profiler rules. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from trainyard.foundation.jobs.attempts import RuleState
from trainyard.foundation.jobs.status import RuleStatus
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.foundation.jobs.training.plan import RulePlan
from trainyard.foundation.jobs.training.rules import profiler_rule_states
from trainyard.server.control.profiling.contract import ProfileConclusion, RuleConclusion

# The job is written again with every metric, so it keeps little. DescribeProfile returns all findings.
MAX_FINDINGS = 5  # of a rule
MAX_TEXT = 1000  # characters

_WITHDRAWN = "It found an issue while the job ran, which does not hold for all of the job: "


def with_conclusion(
    job: TrainingJob, conclusion: ProfileConclusion, *, failures: Mapping[str, str], now: datetime
) -> TrainingJob:
    """Return the job with the states of its rules after an evaluation.

    `failures` say, by the name of a rule, why its report could not be stored. Rules stay in progress until the job has
    ended, unless they have found something. What they found is withdrawn only at the end, and only if nothing was done
    because of it.
    """
    concluded = {each.name: each for each in conclusion.rules}
    acting = {rule.name for rule in _rules(job) if rule.actions and not rule.is_dry}
    states = [
        _state(
            state,
            concluded[state.name],
            failures.get(state.name, ""),
            keeps_findings=not conclusion.is_final or state.name in acting,
            is_final=conclusion.is_final,
            now=now,
        )
        if state.name in concluded
        else state
        for state in profiler_rule_states(job)
    ]
    return replace(job, profiler_rules=tuple(states))


def with_status(job: TrainingJob, status: RuleStatus, details: str, *, now: datetime) -> TrainingJob:
    """Return the job with a status for all of its rules that have no final one."""
    states = [
        replace(state, status=status, details=details[:MAX_TEXT], at=now)
        if state.status in (RuleStatus.IN_PROGRESS, RuleStatus.STOPPING)
        else state
        for state in profiler_rule_states(job)
    ]
    return replace(job, profiler_rules=tuple(states))


def _rules(job: TrainingJob) -> Sequence[RulePlan]:
    return job.plan.profiler.rules if job.plan.profiler else ()


def _state(
    known: RuleState,
    concluded: RuleConclusion,
    failure: str,
    *,
    keeps_findings: bool,
    is_final: bool,
    now: datetime,
) -> RuleState:
    if known.status is RuleStatus.ISSUES_FOUND and keeps_findings and not concluded.findings:
        return replace(known, judged=concluded.datapoints)
    status, details = _status_and_details(known, concluded, failure, is_final=is_final)
    after = replace(
        known,
        status=status,
        details=details[:MAX_TEXT],
        judged=concluded.datapoints,
        findings=_findings(concluded.findings),
    )
    is_changed = (after.status, after.details) != (known.status, known.details)
    return replace(after, at=now if is_changed else known.at)


def _status_and_details(
    known: RuleState, concluded: RuleConclusion, failure: str, *, is_final: bool
) -> tuple[RuleStatus, str]:
    if concluded.findings:
        more = len(concluded.findings) - 1
        others = f" ({more} more {'finding' if more == 1 else 'findings'})" if more else ""
        return RuleStatus.ISSUES_FOUND, f"{concluded.findings[0].get('message', '')}{others}{_after(failure)}"
    fault = concluded.error or failure
    if not is_final:
        return RuleStatus.IN_PROGRESS, fault
    if fault:
        return RuleStatus.ERROR, fault
    if known.status is RuleStatus.ISSUES_FOUND:
        return RuleStatus.NO_ISSUES_FOUND, f"{_WITHDRAWN}{known.details}"
    return RuleStatus.NO_ISSUES_FOUND, concluded.undecided


def _after(text: str) -> str:
    return f" {text}" if text else ""


def _findings(found: Sequence[Mapping[str, object]]) -> tuple[Mapping[str, object], ...]:
    """Return findings as the records and their readers know them, with texts that are not too long."""
    return tuple(
        {name: value[:MAX_TEXT] if isinstance(value, str) else value for name, value in each.items()}
        for each in found[:MAX_FINDINGS]
    )
