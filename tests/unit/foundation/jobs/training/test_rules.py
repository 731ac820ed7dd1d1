from dataclasses import replace

import pytest

from tests.unit.foundation.sample_jobs import pending, placed, seconds
from trainyard.foundation.jobs.attempts import OutcomeKind, RuleState
from trainyard.foundation.jobs.status import RuleStatus, SecondaryStatus
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.foundation.jobs.training.plan import DebuggerPlan, ProfilerPlan, RulePlan
from trainyard.foundation.jobs.training.rules import profiler_rule_states, rule_states
from trainyard.foundation.jobs.training.transitions import advance, ask_to_stop

R = RuleStatus


def judged(instances: int = 1) -> TrainingJob:
    job = placed(instances=instances)
    plan = DebuggerPlan({}, "s3://data/debug", "/opt/ml/output/tensors", (RulePlan("Loss", "LossNotDecreasing"),))
    return replace(job, plan=replace(job.plan, debugger=plan))


def told(job: TrainingJob, host: str, status: R, *, at: float = 1, details: str = "", dropped: int = 0) -> TrainingJob:
    attempt = job.attempts[-1]
    state = RuleState("Loss", status, seconds(at), details, judged=10, dropped=dropped)
    return job.with_attempt(attempt.with_instance(replace(attempt.instance(host), rules={"Loss": state})))


def ended(job: TrainingJob, to: SecondaryStatus, outcome: OutcomeKind = OutcomeKind.COMPLETED) -> TrainingJob:
    attempt = job.attempts[-1]
    instances = tuple(replace(each, outcome=outcome, ended_at=seconds(9)) for each in attempt.instances)
    return advance(job.with_attempt(replace(attempt, instances=instances, ended_at=seconds(9))), to, at=seconds(9))


def only(job: TrainingJob) -> RuleState:
    (state,) = rule_states(job)
    return state


def test_a_rule_without_reports_is_in_progress_since_the_create() -> None:
    job = judged()
    assert only(job) == RuleState("Loss", R.IN_PROGRESS, job.created_at)


@pytest.mark.parametrize(
    ("first", "second", "whole"),
    [
        (R.NO_ISSUES_FOUND, R.ISSUES_FOUND, R.ISSUES_FOUND),
        (R.ERROR, R.ISSUES_FOUND, R.ISSUES_FOUND),
        (R.NO_ISSUES_FOUND, R.ERROR, R.ERROR),
        (R.NO_ISSUES_FOUND, R.IN_PROGRESS, R.IN_PROGRESS),
        (R.NO_ISSUES_FOUND, R.NO_ISSUES_FOUND, R.NO_ISSUES_FOUND),
        (R.NO_ISSUES_FOUND, R.STOPPED, R.STOPPED),
    ],
)
def test_a_rule_stands_as_the_worst_of_what_its_instances_tell(first: R, second: R, whole: R) -> None:
    job = told(told(judged(2), "algo-1", first, dropped=1), "algo-2", second, dropped=2)
    state = only(job)
    assert (state.status, state.judged, state.dropped) == (whole, 20, 3)


def test_what_was_found_in_one_attempt_stays_found_in_the_next() -> None:
    job = told(judged(), "algo-1", R.ISSUES_FOUND, details="The loss does not fall.")
    again = replace(job.attempts[0], number=2, instances=placed().attempts[0].instances)
    later = replace(job, attempts=(replace(job.attempts[0], ended_at=seconds(5)), again))
    assert (only(later).status, only(later).details) == (R.ISSUES_FOUND, "The loss does not fall.")
    assert only(told(later, "algo-1", R.NO_ISSUES_FOUND)).status is R.ISSUES_FOUND


def test_rules_without_findings_are_evaluated_again_in_the_next_attempt() -> None:
    job = told(judged(), "algo-1", R.STOPPED)
    again = replace(job.attempts[0], number=2, instances=placed().attempts[0].instances)
    assert only(replace(job, attempts=(*job.attempts, again))).status is R.IN_PROGRESS


def test_a_rule_that_its_agent_concluded_keeps_its_word_when_the_job_ends() -> None:
    job = told(judged(), "algo-1", R.NO_ISSUES_FOUND, at=8)
    assert only(ended(job, SecondaryStatus.COMPLETED)).at == seconds(8)


def test_a_rule_stops_with_its_job() -> None:
    job = ask_to_stop(told(judged(), "algo-1", R.IN_PROGRESS), "user", at=seconds(5))
    assert (only(job).status, only(job).at) == (R.STOPPING, seconds(5))
    assert only(ended(job, SecondaryStatus.STOPPED, OutcomeKind.STOPPED)).status is R.STOPPED


def test_a_killed_agent_leaves_its_rules_in_error() -> None:
    state = only(ended(told(judged(), "algo-1", R.IN_PROGRESS), SecondaryStatus.FAILED, OutcomeKind.LOST))
    assert (state.status, state.at) == (R.ERROR, seconds(9))
    assert "died before the rule had finished" in state.details


def test_a_job_that_completes_without_a_tensor_leaves_its_rules_in_error_with_the_reason() -> None:
    state = only(ended(judged(), SecondaryStatus.COMPLETED))
    assert state.status is R.ERROR
    assert state.details.startswith("The rule checked no step")


def profiled(job: TrainingJob, *states: RuleState) -> TrainingJob:
    rules = tuple(RulePlan(name, name) for name in ("ProfilerReport", "BatchSize"))
    plan = replace(job.plan, profiler=ProfilerPlan("s3://data/out/mnist/profiler-output", rules=rules))
    return replace(job, plan=plan, profiler_rules=states)


def test_profiler_rules_have_the_states_that_the_yard_stored_in_the_order_of_the_request() -> None:
    found = RuleState("BatchSize", R.ISSUES_FOUND, seconds(5))
    gone = RuleState("Dataloader", R.ISSUES_FOUND, seconds(5))
    job = profiled(placed(), found, gone)
    assert profiler_rule_states(job) == (RuleState("ProfilerReport", R.IN_PROGRESS, job.created_at), found)


def test_profiler_rules_of_a_job_that_had_no_instances_are_stopped() -> None:
    job = ask_to_stop(profiled(pending()), "user", at=seconds(2))
    assert {(state.status, state.at) for state in profiler_rule_states(job)} == {(R.STOPPED, seconds(2))}


def test_a_job_of_an_earlier_version_has_no_profiler_rules() -> None:
    assert profiler_rule_states(placed()) == ()
