from dataclasses import replace
from typing import Any

import pytest

from tests.unit.foundation.sample_jobs import seconds
from tests.unit.server.services.accounts import Accounts, As
from tests.unit.server.services.sagemaker.requests import create, describe
from tests.unit.server.services.sagemaker.training.test_description import load, remember
from trainyard.foundation.jobs.attempts import Attempt, InstanceState
from trainyard.foundation.jobs.status import SecondaryStatus
from trainyard.foundation.jobs.training.plan import ProfilerPlan
from trainyard.foundation.jobs.training.transitions import advance
from trainyard.server.records.contract import Change, Resource
from trainyard.wire.fault import Fault

S = SecondaryStatus
RULES_IMAGE = "895741380848.dkr.ecr.us-west-2.amazonaws.com/sagemaker-debugger-rules:latest"
REPORT = {
    "RuleConfigurationName": "ProfilerReport-1",
    "RuleEvaluatorImage": RULES_IMAGE,
    "RuleParameters": {"rule_to_invoke": "ProfilerReport"},
}

# What a description has for a rule without a volume.
NO_VOLUME = {"VolumeSizeInGB": 0}


def update(user: As, name: str = "mnist", **changed: Any) -> dict[str, Any]:
    return user("sagemaker", "UpdateTrainingJob", TrainingJobName=name, **changed)


def keep(user: As, keep_s: int) -> None:
    update(user, ResourceConfig={"KeepAlivePeriodInSeconds": keep_s})


def resources(**changed: Any) -> dict[str, Any]:
    return {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1, **changed}


def reach(user: As, *statuses: SecondaryStatus, at: float = 1) -> None:
    attempt = Attempt(1, seconds(at), "KEY", (InstanceState("algo-1"),), is_started=True)
    job = replace(load(user), attempts=load(user).attempts or (attempt,))
    for status in statuses:
        job = advance(job, status, at=seconds(at))
    remember(user, job)


def test_profiling_is_changed_described_and_switched_off(anna: As) -> None:
    create(anna, ProfilerConfig={"S3OutputPath": "s3://data/profile"})
    arn = describe(anna)["TrainingJobArn"]
    assert update(anna, ProfilerConfig={"ProfilingIntervalInMilliseconds": 100}) == {"TrainingJobArn": arn}
    told = describe(anna)
    assert told["ProfilerConfig"] == {
        "S3OutputPath": "s3://data/profile",
        "ProfilingIntervalInMilliseconds": 100,
        "DisableProfiler": False,
    }
    assert told["ProfilingStatus"] == "Enabled"
    update(anna, ProfilerConfig={"DisableProfiler": True})
    assert describe(anna)["ProfilingStatus"] == "Disabled"
    update(anna, ProfilerConfig={"ProfilingIntervalInMilliseconds": 500})
    assert describe(anna)["ProfilingStatus"] == "Enabled"


def profiler(user: As) -> ProfilerPlan:
    plan = load(user).plan.profiler
    assert plan is not None
    return plan


def test_an_update_of_the_profiler_changes_the_plan_under_the_next_version(anna: As) -> None:
    create(anna)
    assert (profiler(anna).version, profiler(anna).interval_ms, profiler(anna).is_exported) == (0, 1000, False)
    windows = {"DetailedProfilingConfig": '{"StartStep": 9, "NumSteps": 2, }'}
    config = {"S3OutputPath": "s3://data/profile", "ProfilingIntervalInMilliseconds": 100}
    update(anna, ProfilerConfig=config | {"ProfilingParameters": windows})
    told = profiler(anna)
    assert (told.version, told.interval_ms, told.is_exported) == (1, 100, True)
    assert (told.uri, told.parameters) == ("s3://data/profile/mnist/profiler-output", windows)
    update(anna, ProfilerConfig={"ProfilingParameters": {}})
    assert profiler(anna) == replace(told, version=2, parameters={})


def test_an_update_that_changes_nothing_of_the_profiler_has_no_new_version(anna: As) -> None:
    create(anna, ProfilerConfig={"S3OutputPath": "s3://data/profile"})
    for _ in range(2):
        update(anna, ProfilerConfig={"ProfilingIntervalInMilliseconds": 200})
    assert profiler(anna).version == 1


def test_profiling_can_be_switched_on_later_with_rules(anna: As) -> None:
    create(anna, ProfilerConfig={"DisableProfiler": True})
    assert describe(anna)["ProfilingStatus"] == "Disabled"
    update(anna, ProfilerConfig={"S3OutputPath": "s3://data/profile"}, ProfilerRuleConfigurations=[REPORT])
    told = describe(anna)
    assert (told["ProfilingStatus"], told["ProfilerRuleConfigurations"]) == ("Enabled", [NO_VOLUME | REPORT])
    assert [state["RuleConfigurationName"] for state in told["ProfilerRuleEvaluationStatuses"]] == ["ProfilerReport-1"]
    assert profiler(anna).is_enabled


def test_switching_the_profiler_off_keeps_its_rules(anna: As) -> None:
    create(anna, ProfilerRuleConfigurations=[REPORT])
    update(anna, ProfilerConfig={"DisableProfiler": True})
    assert not profiler(anna).is_enabled
    assert len(describe(anna)["ProfilerRuleEvaluationStatuses"]) == 1
    with pytest.raises(Fault, match="has DisableProfiler; set that to false"):
        update(anna, ProfilerRuleConfigurations=[REPORT | {"RuleConfigurationName": "another"}])


def test_profiles_stay_where_they_are(anna: As) -> None:
    create(anna, ProfilerConfig={"S3OutputPath": "s3://data/profile/"})
    update(anna, ProfilerConfig={"S3OutputPath": "s3://data/profile"})
    with pytest.raises(Fault, match=r"cannot be changed: profiles .* s3://data/profile/mnist/profiler-output"):
        update(anna, ProfilerConfig={"S3OutputPath": "s3://data/other"})


def test_the_folder_of_profiles_is_the_one_with_which_the_program_started(anna: As) -> None:
    create(anna)
    update(anna, ProfilerConfig={"ProfilingParameters": {"LocalPath": "/opt/ml/output/elsewhere"}})
    assert profiler(anna).path == "/opt/ml/output/profiler"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"ProfilingIntervalInMilliseconds": 150}, "is 150; it must be one of 100, 200, 500, 1000, 5000, 60000"),
        ({"S3OutputPath": "s3://nowhere/profile"}, 'bucket "nowhere" of ProfilerConfig.S3OutputPath does not exist'),
        ({"ProfilingParameters": {"StartStep": "5"}}, 'has the unknown parameter "StartStep"'),
    ],
)
def test_an_invalid_update_of_the_profiler_is_refused_and_changes_nothing(
    anna: As, config: dict[str, Any], message: str
) -> None:
    create(anna)
    with pytest.raises(Fault, match=message):
        update(anna, ProfilerConfig=config)
    assert profiler(anna).version == 0
    assert "ProfilerConfig" not in describe(anna)


def test_a_job_of_a_yard_without_a_profiler_stays_as_it_is(anna: As) -> None:
    create(anna)
    remember(anna, replace(load(anna), plan=replace(load(anna).plan, profiler=None)))
    update(anna, ProfilerConfig={"ProfilingIntervalInMilliseconds": 100})
    assert load(anna).plan.profiler is None
    assert any("version of the yard without a profiler" in note for note in load(anna).notes)
    assert describe(anna)["ProfilingStatus"] == "Disabled"


def test_a_profiler_without_an_interval_is_described_with_the_default(anna: As) -> None:
    create(anna, ProfilerConfig={"S3OutputPath": "s3://data/profile"})
    assert describe(anna)["ProfilerConfig"]["ProfilingIntervalInMilliseconds"] == 500
    create(anna, "unprofiled", ProfilerConfig={"DisableProfiler": True})
    assert describe(anna, "unprofiled")["ProfilerConfig"] == {"DisableProfiler": True}


def test_a_rule_replaces_the_one_of_its_name(anna: As) -> None:
    create(anna, ProfilerRuleConfigurations=[REPORT])
    other = REPORT | {"RuleConfigurationName": "other"}
    changed = REPORT | {"VolumeSizeInGB": 5}
    update(anna, ProfilerRuleConfigurations=[other, changed])
    assert describe(anna)["ProfilerRuleConfigurations"] == [changed, NO_VOLUME | other]


def test_updates_add_rules_up_to_the_limit(anna: As) -> None:
    create(anna, ProfilerRuleConfigurations=[REPORT | {"RuleConfigurationName": f"r{number}"} for number in range(20)])
    with pytest.raises(Fault, match="has 21 rules; a job can have at most 20"):
        update(anna, ProfilerRuleConfigurations=[REPORT])


def test_an_unsupported_update_is_refused_and_changes_nothing(anna: As) -> None:
    create(anna)
    rule = REPORT | {"RuleEvaluatorImage": "mine:latest"}
    with pytest.raises(Fault, match="a profiler rule must be one of the built-in ones"):
        update(anna, ProfilerRuleConfigurations=[rule], ProfilerConfig={"DisableProfiler": False})
    with pytest.raises(Fault, match=r"RemoteDebugConfig\.EnableRemoteDebug opens shells through AWS"):
        update(anna, RemoteDebugConfig={"EnableRemoteDebug": True})
    assert "ProfilerConfig" not in describe(anna)


@pytest.mark.parametrize("status", [S.STOPPING, S.COMPLETED, S.FAILED])
def test_profiling_is_changed_only_while_the_job_is_in_progress(anna: As, status: SecondaryStatus) -> None:
    create(anna)
    reach(anna, S.STARTING, status)
    with pytest.raises(Fault, match="rejected because the training job is in status") as caught:
        update(anna, ProfilerConfig={"DisableProfiler": True})
    assert caught.value.code == "ValidationException"


def test_remote_debugging_is_changed_while_a_program_can_be_reached(anna: As) -> None:
    create(anna)
    with pytest.raises(Fault, match="secondary status Pending"):
        update(anna, RemoteDebugConfig={"EnableRemoteDebug": False})
    reach(anna, S.STARTING, S.TRAINING)
    update(anna, RemoteDebugConfig={"EnableRemoteDebug": False})
    assert describe(anna)["RemoteDebugConfig"] == {"EnableRemoteDebug": False}


def test_the_time_of_a_warm_pool_is_changed_while_the_job_runs(anna: As) -> None:
    create(anna, ResourceConfig=resources(KeepAlivePeriodInSeconds=60))
    keep(anna, 600)
    assert describe(anna)["ResourceConfig"] == resources(KeepAlivePeriodInSeconds=600)
    assert load(anna).plan.keep_alive_s == 600


def test_a_warm_pool_is_extended_or_ended_after_the_job(anna: As) -> None:
    create(anna, ResourceConfig=resources(KeepAlivePeriodInSeconds=60))
    reach(anna, S.STARTING, S.COMPLETED, at=10)
    keep(anna.at(seconds(40)), 600)
    later = anna.at(seconds(110))
    assert describe(later)["WarmPoolStatus"] == {"Status": "Available", "ResourceRetainedBillableTimeInSeconds": 100}
    keep(later, 0)
    told = describe(anna.at(seconds(500)))
    assert told["WarmPoolStatus"] == {"Status": "Terminated", "ResourceRetainedBillableTimeInSeconds": 100}
    assert told["TrainingJobStatus"] == "Completed"
    with pytest.raises(Fault, match="has a warm pool that is Terminated"):
        keep(anna.at(seconds(501)), 600)


def test_a_time_that_is_over_already_ends_the_pool_now(anna: As) -> None:
    create(anna, ResourceConfig=resources(KeepAlivePeriodInSeconds=600))
    reach(anna, S.STARTING, S.COMPLETED, at=10)
    keep(anna.at(seconds(60)), 30)
    told = describe(anna.at(seconds(61)))
    assert told["WarmPoolStatus"] == {"Status": "Terminated", "ResourceRetainedBillableTimeInSeconds": 50}


def test_a_job_without_a_warm_pool_gets_none_after_its_end(anna: As) -> None:
    create(anna)
    reach(anna, S.STARTING, S.COMPLETED)
    with pytest.raises(Fault, match="has no warm pool"):
        keep(anna, 600)


def test_an_empty_update_is_refused_with_the_possible_members(anna: As) -> None:
    create(anna)
    with pytest.raises(Fault, match="changes nothing; give one of ProfilerConfig"):
        update(anna)


def test_an_update_is_a_modification(anna: As) -> None:
    create(anna)
    keep(anna.at(seconds(30)), 60)
    assert describe(anna)["LastModifiedTime"] == seconds(30)


def test_others_cannot_update_a_job(accounts: Accounts, anna: As) -> None:
    create(anna)
    with pytest.raises(Fault, match=r"Requested resource not found\."):
        keep(accounts.ben, 60)


def test_an_update_wins_over_whoever_was_quicker(anna: As, monkeypatch: pytest.MonkeyPatch) -> None:
    create(anna)
    records = anna.yard.records
    apply = records.apply

    def apply_second(resource: Resource, change: Change, **more: Any) -> Resource | None:
        monkeypatch.setattr(records, "apply", apply)
        reach(anna, S.STARTING, S.TRAINING)  # the controller, in between
        return apply(resource, change, **more)

    monkeypatch.setattr(records, "apply", apply_second)
    keep(anna, 600)
    assert (load(anna).secondary, load(anna).plan.keep_alive_s) == (S.TRAINING, 600)
