"""What the yard concludes from the profile of a job, in a notebook."""

from datetime import UTC, datetime
from typing import Any

from tests.unit.recording import RecordingApi
from trainyard._sdk.training.job import TrainingJobHandle
from trainyard.foundation.plain import to_plain
from trainyard.insight.profiling.verdict.contract import (
    Bottleneck,
    BottleneckKind,
    ProfileAdvice,
    ProfileCosts,
    ProfileVerdict,
)

KIND = BottleneckKind.DATA_LOADING
VERDICT = ProfileVerdict(
    "Steps wait for data in 57 % of their time.",
    Bottleneck(KIND, "Data <loading>", ["Of 40 ms, 23 ms are waits."], 0.57, 2.3),
    advice=[ProfileAdvice("Use 2 data workers", "There are 2 cores.", KIND, max_speedup=2.3)],
    costs=ProfileCosts(step_s=0.04, samples_per_s=400),
)
ANSWER: dict[str, Any] = {
    "TrainingJobName": "job",
    "Verdict": to_plain(VERDICT),
    "Rules": [
        {"Name": "Report", "Rule": "ProfilerReport", "Status": "IssuesFound", "Findings": [{"Message": "8 workers."}]},
        {"Name": "Steps", "Rule": "StepOutlier", "Status": "InProgress", "Findings": [], "Undecided": "Too few steps."},
    ],
    "Phases": [
        {
            "Worker": "worker_0",
            "Instance": "algo-1",
            "Steps": 100,
            "StepSeconds": 0.04,
            "PhaseSeconds": {"forward": 0.01, "data_wait": 0.023, "checkpoint": 0.0},
        }
    ],
    "Hardware": [],
    "Report": "s3://b/job/rule-output/Report/profiler-output/profiler-report.html",
    "ProfilerOutput": "s3://b/job/profiler-output",
    "Notes": ["One trace is torn."],
    "EvaluatedAt": datetime(2026, 11, 19, tzinfo=UTC),
}


def test_a_job_shows_its_verdict_advice_phases_and_rules() -> None:
    profile = TrainingJobHandle(RecordingApi(DescribeProfile=ANSWER), "job").profile()
    assert profile.verdict == VERDICT
    page = profile._repr_html_()
    for text in ("Profile of job", "57 %", "Data &lt;loading&gt;", "2.30 times as fast", "Use 2 data workers"):
        assert text in page
    assert "data wait 57%, forward 25%" in page
    assert "checkpoint" not in page
    for text in ("8 workers.", "Too few steps.", "One trace is torn.", "profiler-report.html"):
        assert text in page
    assert str(profile) == "Steps wait for data in 57 % of their time.\n- Use 2 data workers: There are 2 cores."


def test_a_profile_without_anything_is_shown_as_well() -> None:
    answer = {**ANSWER, "Verdict": {"summary": "Nothing was recorded."}, "Rules": [], "Phases": [], "Report": ""}
    profile = TrainingJobHandle(RecordingApi(DescribeProfile=answer), "job").profile()
    assert "Nothing was recorded." in profile._repr_html_()
    assert "Advice" not in profile._repr_html_()


def test_a_verdict_of_a_later_version_still_has_its_summary() -> None:
    answer = {**ANSWER, "Verdict": {"summary": "New.", "bottleneck": {"kind": "of_a_later_version"}}}
    assert TrainingJobHandle(RecordingApi(DescribeProfile=answer), "job").profile().verdict.summary == "New."


def test_steps_of_a_running_job_are_profiled_on_request() -> None:
    api = RecordingApi(ProfileJob={"ProfilerOutput": "s3://b/job/profiler-output"})
    assert TrainingJobHandle(api, "job").profile_steps(3) == "s3://b/job/profiler-output"
    assert api.only("ProfileJob") == {"TrainingJobName": "job", "Steps": 3}


def test_the_rules_on_profiles_are_listed_alone_and_with_the_others() -> None:
    debugger, profiler = {"RuleConfigurationName": "Overfit"}, {"RuleConfigurationName": "ProfilerReport"}
    described = {"DebugRuleEvaluationStatuses": [debugger], "ProfilerRuleEvaluationStatuses": [profiler]}
    job = TrainingJobHandle(RecordingApi(DescribeTrainingJob=described), "job")
    assert job.profiler_rule_job_summary() == [profiler]
    assert job.rule_job_summary() == [debugger, profiler]
