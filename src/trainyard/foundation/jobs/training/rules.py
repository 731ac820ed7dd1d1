"""The rule states of a training job: from the reports of its instances, what the yard stored, and the job's status."""

from collections.abc import Sequence
from dataclasses import replace

from trainyard.foundation.jobs.attempts import OutcomeKind, RuleState
from trainyard.foundation.jobs.status import RuleStatus, Status
from trainyard.foundation.jobs.training.job import TrainingJob

MAX_FINDINGS = 20  # stored per rule

# If instances report different statuses of a rule, the first of these holds for the job.
_RANKS = (
    RuleStatus.ISSUES_FOUND,
    RuleStatus.ERROR,
    RuleStatus.IN_PROGRESS,
    RuleStatus.STOPPING,
    RuleStatus.STOPPED,
    RuleStatus.NO_ISSUES_FOUND,
)
_UNDECIDED = (RuleStatus.IN_PROGRESS, RuleStatus.STOPPING)

_NOTHING_REPORTED = (
    "The rule checked no step, because no tensor was captured. The program must train with a supported framework, or "
    "create its own hook."
)
_LOST = "The instance that ran the rule died before the rule had finished."
_CUT_SHORT = "The job ended before the rule had finished."


def rule_states(job: TrainingJob) -> tuple[RuleState, ...]:
    """Return the state of each rule of a job, in the order of the request."""
    plan = job.plan.debugger
    return tuple(_state(job, rule.name) for rule in plan.rules) if plan else ()


def profiler_rule_states(job: TrainingJob) -> tuple[RuleState, ...]:
    """Return the state of each profiler rule of a job, in the order of the request.

    The yard stores states in the job as it evaluates the rules. A rule that it has not yet evaluated is in progress, or
    stopped if the job ended before it had instances.
    """
    plan = job.plan.profiler
    known = {state.name: state for state in job.profiler_rules}
    return tuple(known.get(rule.name) or _unevaluated_state(job, rule.name) for rule in plan.rules) if plan else ()


def found_rules(job: TrainingJob) -> tuple[str, ...]:
    """Return the names of the rules that have found an issue."""
    return tuple(state.name for state in rule_states(job) if state.status is RuleStatus.ISSUES_FOUND)


def _unevaluated_state(job: TrainingJob, name: str) -> RuleState:
    if job.ended_at is not None and not job.attempts:
        return RuleState(name, RuleStatus.STOPPED, job.ended_at, details=_CUT_SHORT)
    return RuleState(name, RuleStatus.IN_PROGRESS, job.created_at)


def _state(job: TrainingJob, name: str) -> RuleState:
    reported = [[each.rules[name] for each in attempt.instances if name in each.rules] for attempt in job.attempts]
    found = [state for states in reported for state in states if state.status is RuleStatus.ISSUES_FOUND]
    if found:
        # A later attempt does not take back what was found once.
        return _merge_states([state for states in reported for state in states])
    latest = reported[-1] if reported else []
    state = _merge_states(latest) if latest else RuleState(name, RuleStatus.IN_PROGRESS, job.created_at)
    return _complete_state(job, state, has_reported=bool(latest))


def _merge_states(states: Sequence[RuleState]) -> RuleState:
    first = min(states, key=lambda state: (_RANKS.index(state.status), state.at))
    findings = [finding for state in states for finding in state.findings]
    return replace(
        first,
        judged=sum(state.judged for state in states),
        dropped=sum(state.dropped for state in states),
        findings=tuple(findings[:MAX_FINDINGS]),
        stops=any(state.stops for state in states),
    )


def _complete_state(job: TrainingJob, state: RuleState, *, has_reported: bool) -> RuleState:
    """Complete the state of a rule that reported no final status, from the status of the job."""
    if state.status not in _UNDECIDED:
        return state
    if job.status is Status.STOPPING:
        return replace(state, status=RuleStatus.STOPPING, at=max(state.at, job.transitions[-1].started_at))
    if job.ended_at is None:
        return state
    ended = replace(state, at=max(state.at, job.ended_at))
    if any(instance.outcome is OutcomeKind.LOST for attempt in job.attempts[-1:] for instance in attempt.instances):
        return replace(ended, status=RuleStatus.ERROR, details=_LOST)
    if job.status is Status.COMPLETED and not has_reported:
        return replace(ended, status=RuleStatus.ERROR, details=_NOTHING_REPORTED)
    return replace(ended, status=RuleStatus.STOPPED, details=_CUT_SHORT)
