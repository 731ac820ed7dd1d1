import sys
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.foundation.sample_jobs import seconds
from tests.unit.server.services.accounts import As
from tests.unit.server.services.sagemaker.requests import create, describe, fill_bucket
from tests.unit.server.services.sagemaker.rules import EVALUATOR, actions, rule
from tests.unit.server.services.sagemaker.training.test_debugger import with_gateways
from tests.unit.server.services.sagemaker.training.test_description import load, remember
from trainyard.foundation.jobs.attempts import RuleState
from trainyard.foundation.jobs.status import RuleStatus, SecondaryStatus
from trainyard.foundation.jobs.training.plan import ProfilerPlan
from trainyard.foundation.jobs.training.transitions import advance
from trainyard.server.services.sagemaker.training import profiler
from trainyard.wire.fault import Fault

# As AWS's SDK writes it.
FRAMEWORK_PROFILE = {
    "LocalPath": "/opt/ml/output/profiler/",
    "RotateMaxFileSizeInBytes": "10485760",
    "DetailedProfilingConfig": '{"StartStep": 5, "NumSteps": 1, }',
    "PythonProfilingConfig": '{"StartStep": 9, "NumSteps": 3, "ProfilerName": "cprofile", "cProfileTimer": "default"}',
}


def plan_of(user: As, name: str = "mnist") -> ProfilerPlan:
    plan = load(user, name).plan.profiler
    assert plan is not None
    return plan


def profiled(**config: Any) -> dict[str, Any]:
    return {"ProfilerConfig": config}


def test_every_job_is_profiled_on_the_yard_alone_unless_it_says_otherwise(anna: As) -> None:
    create(anna)
    plan = plan_of(anna)
    assert (plan.is_enabled, plan.is_exported, plan.interval_ms) == (True, False, 1000)
    assert (plan.uri, plan.path) == ("s3://data/output/mnist/profiler-output", "/opt/ml/output/profiler")
    told = describe(anna)
    assert told["ProfilingStatus"] == "Enabled"
    assert not {"ProfilerConfig", "ProfilerRuleEvaluationStatuses"} & told.keys()


def test_a_profiler_config_says_where_how_often_and_what(anna: As) -> None:
    config = {"S3OutputPath": "s3://data/profile/", "ProfilingParameters": FRAMEWORK_PROFILE}
    create(anna, **profiled(**config, ProfilingIntervalInMilliseconds=100))
    plan = plan_of(anna)
    assert (plan.is_exported, plan.interval_ms) == (True, 100)
    assert (plan.uri, plan.path) == ("s3://data/profile/mnist/profiler-output", "/opt/ml/output/profiler")
    assert plan.parameters == FRAMEWORK_PROFILE
    create(anna, "default", **profiled(S3OutputPath="s3://data/profile/"))
    assert plan_of(anna, "default").interval_ms == 500


def test_a_job_with_a_disabled_profiler_is_not_profiled(anna: As) -> None:
    create(anna, **profiled(DisableProfiler=True))
    assert not plan_of(anna).is_enabled
    assert describe(anna)["ProfilingStatus"] == "Disabled"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"ProfilingIntervalInMilliseconds": 300}, "is 300; it must be one of 100, 200, 500, 1000, 5000, 60000"),
        ({"S3OutputPath": "s3://nowhere/x"}, 'The bucket "nowhere" of ProfilerConfig.S3OutputPath does not exist'),
        ({"ProfilingParameters": {"Detailed": "{}"}}, 'ProfilingParameters has the unknown parameter "Detailed"'),
        ({"ProfilingParameters": {"LocalPath": "/etc/profiles"}}, 'LocalPath is "/etc/profiles"; it must be a folder'),
        ({"ProfilingParameters": {"LocalPath": "/opt/ml/input/../code"}}, r'a path cannot contain "\.\."'),
    ],
)
def test_an_invalid_profiler_config_is_refused(anna: As, config: dict[str, Any], message: str) -> None:
    with pytest.raises(Fault, match=message):
        create(anna, **profiled(**config))


def test_profiles_are_not_stored_in_the_bucket_of_another_account(anna: As, accounts: Any) -> None:
    fill_bucket(anna.yard, accounts.ben.account, {}, bucket="bens")
    with pytest.raises(Fault, match=r'bucket "bens" of ProfilerConfig.S3OutputPath does not exist'):
        create(anna, **profiled(S3OutputPath="s3://bens/profile"))


def test_a_rule_is_in_progress_from_the_create_on_until_the_yard_stores_its_state(anna: As) -> None:
    report = rule("ProfilerReport", CPUBottleneck_cpu_threshold="80") | {"RuleConfigurationName": "ProfilerReport-1"}
    create(anna, ProfilerRuleConfigurations=[report, rule("BatchSize", cpu_threshold_p95="60")])
    first, second = describe(anna)["ProfilerRuleEvaluationStatuses"]
    assert (first["RuleConfigurationName"], first["RuleEvaluationStatus"]) == ("ProfilerReport-1", "InProgress")
    assert first["RuleEvaluationJobArn"].startswith(f"arn:aws:sagemaker:eu-west-3:{anna.account}:processing-job/mnist-")
    found = RuleState("BatchSize", RuleStatus.ISSUES_FOUND, seconds(60), details="The batches are small.")
    remember(anna, replace(load(anna), profiler_rules=(found,)))
    first, second = describe(anna)["ProfilerRuleEvaluationStatuses"]
    assert first["RuleEvaluationStatus"] == "InProgress"
    assert second == second | {
        "RuleEvaluationStatus": "IssuesFound",
        "StatusDetails": "The batches are small.",
        "LastModifiedTime": seconds(60),
    }


def test_the_rules_of_a_job_that_never_ran_are_stopped(anna: As) -> None:
    create(anna, ProfilerRuleConfigurations=[rule("ProfilerReport")])
    remember(
        anna,
        advance(advance(load(anna), SecondaryStatus.STOPPING, at=seconds(1)), SecondaryStatus.STOPPED, at=seconds(2)),
    )
    (told,) = describe(anna)["ProfilerRuleEvaluationStatuses"]
    assert (told["RuleEvaluationStatus"], told["LastModifiedTime"]) == ("Stopped", seconds(2))


def test_parameters_for_the_yard_are_not_passed_to_the_rule(anna: As) -> None:
    stop = actions({"name": "stoptraining"}, {"name": "email", "endpoint": "anna@example.com"})
    given = rule("lowgpuutilization", threshold_p95="60", action_json=stop, dry_run="true")
    create(with_gateways(anna), ProfilerRuleConfigurations=[given | {"S3OutputPath": "s3://data/rules"}])
    (planned,) = plan_of(anna).rules
    assert (planned.name, planned.rule) == ("lowgpuutilization", "LowGPUUtilization")
    assert planned.parameters == {"threshold_p95": "60"}
    assert [action["name"] for action in planned.actions] == ["stoptraining", "email"]
    assert planned.is_dry
    assert planned.output_path == "s3://data/rules"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([rule("LowGpuUtilisation")], r'The rule "LowGpuUtilisation" is invalid: .*LowGPUUtilization'),
        ([rule("BatchSize", treshold="1")], r'The rule "BatchSize" is invalid: .*treshold'),
        ([rule("BatchSize", cpu_threshold_p95="many")], r'The rule "BatchSize" is invalid: .*cpu_threshold_p95'),
        ([rule("ProfilerReport", CPUBottleneck_treshold="1")], r'"ProfilerReport" is invalid: .*treshold'),
        ([rule("") | {"RuleConfigurationName": "mine"}], 'The rule "mine" needs the parameter rule_to_invoke'),
        ([rule("BatchSize")] * 2, 'has the RuleConfigurationName "BatchSize" twice'),
        ([rule("Mine", image=EVALUATOR, source_s3_uri="s3://data/mine.py")], "must be one of the built-in ones"),
        ([rule("BatchSize", image=EVALUATOR)], "must be one of the built-in ones"),
        ([rule("BatchSize", action_json=actions({"name": "dance"}))], 'has the unknown action "dance"'),
        ([rule("BatchSize", action_json=actions({"name": "checkpointthenstop"}))], "only rules of the debugger"),
        ([rule("BatchSize", dry_run="maybe")], 'dry_run is "maybe"'),
        ([rule("BatchSize") | {"S3OutputPath": "s3://nowhere/x"}], 'The bucket "nowhere" of The rule "BatchSize"'),
    ],
)
def test_a_rule_that_cannot_be_evaluated_is_refused(anna: As, given: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(Fault, match=message):
        create(anna, ProfilerRuleConfigurations=given)


def test_rules_need_a_profile(anna: As) -> None:
    with pytest.raises(Fault, match="read the profile of the job, and its ProfilerConfig has DisableProfiler"):
        create(anna, **profiled(DisableProfiler=True), ProfilerRuleConfigurations=[rule("ProfilerReport")])


def test_a_yard_without_numpy_accepts_the_report_and_says_why_it_is_not_made(
    anna: As, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Stands for a Python without the extra.
    monkeypatch.setitem(sys.modules, "msgspec", None)
    create(anna, ProfilerRuleConfigurations=[rule("ProfilerReport", CPUBottleneck_cpu_threshold="80")])
    (told,) = describe(anna)["ProfilerRuleEvaluationStatuses"]
    assert told["RuleEvaluationStatus"] == "Error"
    assert "pip install 'trainyard[profiler]'" in told["StatusDetails"]
    with pytest.raises(Fault, match=r"pip install 'trainyard\[profiler\]'"):
        create(anna, "other", ProfilerRuleConfigurations=[rule("BatchSize")])


def test_settings_without_an_effect_are_noted(anna: As) -> None:
    given = rule("ProfilerReport") | {"InstanceType": "ml.m5.xlarge", "VolumeSizeInGB": 5}
    config = {"ProfilingParameters": {"CPUProfilingDuration": "60"}}
    create(anna, **profiled(**config), ProfilerRuleConfigurations=[given])
    notes = " ".join(load(anna).notes)
    assert "CPUProfilingDuration, which only SageMaker Profiler" in notes
    assert "of a profiler rule are not used" in notes


def test_the_default_interval_is_one_that_can_be_asked_for() -> None:
    assert {profiler.DEFAULT_INTERVAL_MS, profiler.UNCONFIGURED_INTERVAL_MS} <= set(profiler.INTERVALS_MS)
