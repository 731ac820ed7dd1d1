import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.recording import RecordingApi
from trainyard.debugger import CollectionConfig, DebuggerHookConfig, ProfilerRule, Rule, TensorBoardOutputConfig
from trainyard.debugger import rule_configs as configs
from trainyard.foundation.errors import InvalidRequest
from trainyard.pytorch import PyTorch
from trainyard.session import Session

ROLE = "arn:aws:iam::123456789012:role/R"
NO_ACTION: Any = "stop"


def asked_by(api: RecordingApi, tmp_path: Path, **options: Any) -> dict[str, Any]:
    estimator(api, tmp_path, **options).fit(wait=False, job_name="mnist")
    return api.only("CreateTrainingJob")


def estimator(api: RecordingApi, tmp_path: Path, **options: Any) -> PyTorch:
    (tmp_path / "train.py").write_text("")
    return PyTorch(
        str(tmp_path / "train.py"),
        "2.3.0",
        role=ROLE,
        instance_type="ml.m5.large",
        output_path="s3://bucket/out",
        sagemaker_session=Session(api=api, region="us-west-2"),
        **options,
    )


def test_a_job_that_nobody_wants_watched_asks_for_nothing(tmp_path: Path) -> None:
    request = asked_by(RecordingApi(), tmp_path)
    assert not {"DebugHookConfig", "DebugRuleConfigurations", "TensorBoardOutputConfig"} & request.keys()


def test_a_hook_that_is_only_wanted_saves_to_the_output_path(tmp_path: Path) -> None:
    request = asked_by(RecordingApi(), tmp_path, debugger_hook_config=True)
    assert request["DebugHookConfig"] == {"S3OutputPath": "s3://bucket/out", "CollectionConfigurations": []}


def test_collections_of_rules_and_of_the_user_are_asked_for_once_each(tmp_path: Path) -> None:
    rules = [Rule.sagemaker(configs.loss_not_decreasing()), Rule.sagemaker(configs.loss_not_decreasing(), name="Again")]
    hook = DebuggerHookConfig(collection_configs=[CollectionConfig("losses", {"save_interval": "1"})])
    request = asked_by(RecordingApi(), tmp_path, rules=rules, debugger_hook_config=hook)
    assert request["DebugHookConfig"]["CollectionConfigurations"] == [
        {"CollectionName": "losses", "CollectionParameters": {"save_interval": "500"}},
        {"CollectionName": "losses", "CollectionParameters": {"save_interval": "1"}},
    ]


def test_a_stop_means_the_job_that_is_made_at_every_fit(tmp_path: Path) -> None:
    rule = Rule.sagemaker(
        configs.overfit(), actions=configs.ActionList(configs.StopTraining(), configs.Slack("https://h"))
    )
    api = RecordingApi()
    trained = estimator(api, tmp_path, rules=[rule])
    for name in ("first", "second"):
        trained.fit(wait=False, job_name=name)
        told = api.asked[-1][1]["DebugRuleConfigurations"][0]["RuleParameters"]["action_json"]
        assert told.startswith('[{\\"name\\": \\"stoptraining\\"')
        assert json.loads(json.loads(f'"{told}"')) == [
            {"name": "stoptraining", "training_job_prefix": name},
            {"name": "slack", "endpoint": "https://h"},
        ]


def test_the_file_of_a_custom_rule_is_uploaded_to_s3(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("class Mine: ...")
    source = str(tmp_path / "mine.py")
    api = RecordingApi()
    rule = Rule.custom("Mine", "mine:1", "ml.m5.large", 30, source=source, rule_to_invoke="Mine")
    (asked,) = asked_by(api, tmp_path, rules=[rule])["DebugRuleConfigurations"]
    keys = [f"s3://{params['Bucket']}/{params['Key']}" for name, params in api.asked if name == "PutObject"]
    assert asked["RuleParameters"]["source_s3_uri"] in keys
    assert asked["RuleParameters"]["source_s3_uri"].endswith("/mine.py")
    # Unchanged, so that the next job uploads it again.
    assert rule.source == source


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Rule.custom("R", "i", "t", 1, source="a.py"), "both a source"),
        (lambda: Rule.sagemaker(configs.overfit(), rule_parameters={"rule_to_invoke": "X"}), "rule_to_invoke"),
        (lambda: Rule.sagemaker(configs.overfit(), actions=NO_ACTION), "ActionList"),
        (lambda: configs.ActionList(NO_ACTION), "takes actions"),
        (lambda: configs.StopTraining("a_b"), "letters, digits and hyphens"),
        (lambda: configs.Email("anna"), "you@example.com"),
        (lambda: configs.SMS("0151"), r"\+49"),
        (lambda: ProfilerRule.sagemaker(NO_ACTION), "profiler rule, such as"),
    ],
)
def test_invalid_arguments_are_refused_where_they_are_written(make: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        make()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rules": ["Overfit"]}, "rules has a str"),
        ({"rules": [Rule.sagemaker(configs.overfit())], "debugger_hook_config": False}, "leave one of them out"),
    ],
)
def test_rules_that_could_judge_nothing_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        asked_by(RecordingApi(), tmp_path, **options)


def test_the_output_of_a_job_is_found_where_its_description_says(tmp_path: Path) -> None:
    described = {
        "TrainingJobName": "mnist",
        "DebugHookConfig": {"S3OutputPath": "s3://bucket/debug/"},
        "TensorBoardOutputConfig": {"S3OutputPath": "s3://bucket/board"},
        "DebugRuleEvaluationStatuses": [{"RuleConfigurationName": "Overfit", "RuleEvaluationStatus": "InProgress"}],
    }
    trained = estimator(
        RecordingApi(DescribeTrainingJob=described),
        tmp_path,
        tensorboard_output_config=TensorBoardOutputConfig("s3://b"),
    )
    trained.fit(wait=False, job_name="mnist")
    assert trained.latest_job_debugger_artifacts_path() == "s3://bucket/debug/mnist/debug-output"
    assert trained.latest_job_tensorboard_artifacts_path() == "s3://bucket/board/mnist/tensorboard-output"
    assert trained.latest_training_job is not None
    assert trained.latest_training_job.rule_job_summary() == described["DebugRuleEvaluationStatuses"]


def test_the_tensors_of_a_job_that_saved_none_are_nowhere(tmp_path: Path) -> None:
    trained = estimator(RecordingApi(DescribeTrainingJob={"TrainingJobName": "mnist"}), tmp_path)
    trained.fit(wait=False, job_name="mnist")
    with pytest.raises(InvalidRequest, match="created without debugger_hook_config"):
        trained.latest_job_debugger_artifacts_path()


def test_every_built_in_rule_can_be_asked_for_by_its_name() -> None:
    from trainyard.insight.rules.catalog import RULES

    functions = [getattr(configs, name) for name in dir(configs) if name.islower() and not name.startswith("_")]
    made = [each() for each in functions if getattr(each, "__annotations__", {}) == {"return": configs.RuleConfig}]
    assert {config["DebugRuleConfiguration"]["RuleConfigurationName"] for config in made} >= set(RULES)
