from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.unit.foundation.sample_jobs import NOON, pending
from trainyard.foundation.jobs.attempts import RuleState
from trainyard.foundation.jobs.status import RuleStatus
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.foundation.jobs.training.plan import ProfilerPlan, RulePlan
from trainyard.server.control.profiling.contract import ProfileConclusion, RuleConclusion
from trainyard.server.control.profiling.rule_results import MAX_FINDINGS, MAX_TEXT, with_conclusion, with_status

LATER = NOON + timedelta(minutes=1)
FOUND = {"message": "It waits.", "host": "algo-1"}


def job(*states: RuleState) -> TrainingJob:
    plan = ProfilerPlan("s3://data/profiles", rules=(RulePlan("cpu", "CPUBottleneck"), RulePlan("io", "IOBottleneck")))
    known = pending()
    return replace(known, plan=replace(known.plan, profiler=plan), profiler_rules=states)


def conclude(known: TrainingJob, *, is_final: bool = False, failure: str = "", **concluded: Any) -> RuleState:
    """Return the state of the rule cpu after an evaluation."""
    conclusion = ProfileConclusion({}, 0, (RuleConclusion("cpu", "CPUBottleneck", **concluded),), is_final=is_final)
    failures = {"cpu": failure} if failure else {}
    return with_conclusion(known, conclusion, failures=failures, now=LATER).profiler_rules[0]


@pytest.mark.parametrize(
    ("concluded", "is_final", "status", "details"),
    [
        ({}, False, RuleStatus.IN_PROGRESS, ""),
        ({"undecided": "More steps."}, False, RuleStatus.IN_PROGRESS, ""),
        ({}, True, RuleStatus.NO_ISSUES_FOUND, ""),
        ({"undecided": "More steps."}, True, RuleStatus.NO_ISSUES_FOUND, "More steps."),
        ({"findings": [FOUND]}, False, RuleStatus.ISSUES_FOUND, "It waits."),
        ({"findings": [FOUND] * 2}, True, RuleStatus.ISSUES_FOUND, "It waits. (1 more finding)"),
        ({"findings": [FOUND] * 3}, True, RuleStatus.ISSUES_FOUND, "It waits. (2 more findings)"),
        ({"error": "It failed."}, False, RuleStatus.IN_PROGRESS, "It failed."),
        ({"error": "It failed."}, True, RuleStatus.ERROR, "It failed."),
        ({"failure": "Not stored."}, False, RuleStatus.IN_PROGRESS, "Not stored."),
        ({"failure": "Not stored."}, True, RuleStatus.ERROR, "Not stored."),
        ({"findings": [FOUND], "failure": "Not stored."}, True, RuleStatus.ISSUES_FOUND, "It waits. Not stored."),
    ],
)
def test_what_an_evaluation_means_for_a_rule(
    concluded: dict[str, Any], *, is_final: bool, status: RuleStatus, details: str
) -> None:
    state = conclude(job(), is_final=is_final, **concluded)
    assert (state.status, state.details) == (status, details)


def test_what_was_found_stays_while_the_job_runs() -> None:
    found = conclude(job(), findings=[FOUND])
    assert conclude(job(found), datapoints=7) == replace(found, judged=7)


def test_what_does_not_hold_for_the_whole_job_is_withdrawn_at_its_end() -> None:
    after = conclude(job(conclude(job(), findings=[FOUND])), is_final=True)
    assert (after.status, after.findings) == (RuleStatus.NO_ISSUES_FOUND, ())
    assert after.details.endswith("which does not hold for all of the job: It waits.")


@pytest.mark.parametrize(("is_dry", "status"), [(False, RuleStatus.ISSUES_FOUND), (True, RuleStatus.NO_ISSUES_FOUND)])
def test_what_something_was_done_about_is_not_withdrawn(*, is_dry: bool, status: RuleStatus) -> None:
    known = job(conclude(job(), findings=[FOUND]))
    assert known.plan.profiler is not None
    rule = replace(known.plan.profiler.rules[0], actions=({"name": "stoptraining"},), is_dry=is_dry)
    profiler = replace(known.plan.profiler, rules=(rule, known.plan.profiler.rules[1]))
    acting = replace(known, plan=replace(known.plan, profiler=profiler))
    assert conclude(acting, is_final=True).status is status


def test_a_state_that_stays_the_same_keeps_its_time() -> None:
    known = RuleState("cpu", RuleStatus.IN_PROGRESS, NOON)
    assert conclude(job(known), datapoints=7) == replace(known, judged=7)


def test_a_rule_that_was_added_during_the_evaluation_is_still_in_progress() -> None:
    conclusion = ProfileConclusion({}, 0, (RuleConclusion("cpu", "CPUBottleneck"),), is_final=True)
    after = with_conclusion(job(), conclusion, failures={}, now=LATER)
    assert [state.status for state in after.profiler_rules] == [RuleStatus.NO_ISSUES_FOUND, RuleStatus.IN_PROGRESS]


def test_only_rules_without_a_final_status_get_the_status_of_all() -> None:
    found = RuleState("cpu", RuleStatus.ISSUES_FOUND, NOON, "It waits.")
    after = with_status(job(found), RuleStatus.ERROR, "It failed.", now=LATER)
    assert after.profiler_rules == (found, RuleState("io", RuleStatus.ERROR, LATER, "It failed."))


def test_texts_of_findings_are_bounded() -> None:
    state = conclude(job(), findings=[{"message": "x" * 100_000}] * 100)
    assert len(state.details) <= MAX_TEXT
    assert len(state.findings) == MAX_FINDINGS
    assert all(len(str(each["message"])) <= MAX_TEXT for each in state.findings)
