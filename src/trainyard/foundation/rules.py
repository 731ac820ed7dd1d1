"""How the rules of a training job stand, from what its instances have told and how the job itself stands."""

from collections.abc import Sequence
from dataclasses import replace

from trainyard.foundation.jobs import Outcome, RuleState, Status, TrainingJob
from trainyard.foundation.rule_status import RuleStatus

MAX_FINDINGS = 20  # of a rule that are kept

# Of what several instances tell of a rule, the first of these holds for all.
_RANKS = (
    RuleStatus.ISSUES_FOUND,
    RuleStatus.ERROR,
    RuleStatus.IN_PROGRESS,
    RuleStatus.STOPPING,
    RuleStatus.STOPPED,
    RuleStatus.NO_ISSUES_FOUND,
)
_UNDECIDED = (RuleStatus.IN_PROGRESS, RuleStatus.STOPPING)

_NOTHING_TOLD = (
    "No step was judged: no tensor of the program was seen. The program must train with a framework that can be "
    "watched, or make its own hook."
)
_LOST = "The instance that judged the job died before the rule had judged it to its end."
_CUT_SHORT = "The job ended before the rule had judged it to its end."


def rule_states(job: TrainingJob) -> tuple[RuleState, ...]:
    """The state of each rule of a job, in the order in which they were asked for."""
    plan = job.plan.debugger
    return tuple(_state(job, rule.name) for rule in plan.rules) if plan else ()


def found_rules(job: TrainingJob) -> tuple[str, ...]:
    """The names of the rules that have found something."""
    return tuple(state.name for state in rule_states(job) if state.status is RuleStatus.ISSUES_FOUND)


def _state(job: TrainingJob, name: str) -> RuleState:
    told = [[each.rules[name] for each in attempt.instances if name in each.rules] for attempt in job.attempts]
    found = [state for states in told for state in states if state.status is RuleStatus.ISSUES_FOUND]
    if found:  # what has been found once is not taken back by a later attempt
        return _merged([state for states in told for state in states])
    latest = told[-1] if told else []
    state = _merged(latest) if latest else RuleState(name, RuleStatus.IN_PROGRESS, job.created_at)
    return _as_job_stands(job, state, has_told=bool(latest))


def _merged(states: Sequence[RuleState]) -> RuleState:
    first = min(states, key=lambda state: (_RANKS.index(state.status), state.at))
    findings = [finding for state in states for finding in state.findings]
    return replace(
        first,
        judged=sum(state.judged for state in states),
        dropped=sum(state.dropped for state in states),
        findings=tuple(findings[:MAX_FINDINGS]),
        stops=any(state.stops for state in states),
    )


def _as_job_stands(job: TrainingJob, state: RuleState, *, has_told: bool) -> RuleState:
    """The state of a rule whose last word is missing, as it is when the job stops or ends without it."""
    if state.status not in _UNDECIDED:
        return state
    if job.status is Status.STOPPING:
        return replace(state, status=RuleStatus.STOPPING, at=max(state.at, job.transitions[-1].started_at))
    if job.ended_at is None:
        return state
    ended = replace(state, at=max(state.at, job.ended_at))
    if any(instance.outcome is Outcome.LOST for attempt in job.attempts[-1:] for instance in attempt.instances):
        return replace(ended, status=RuleStatus.ERROR, details=_LOST)
    if job.status is Status.COMPLETED and not has_told:
        return replace(ended, status=RuleStatus.ERROR, details=_NOTHING_TOLD)
    return replace(ended, status=RuleStatus.STOPPED, details=_CUT_SHORT)
