import hashlib
import inspect
import io
import json
import re
import tarfile
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.unit.recording import RecordingApi
from trainyard._sdk import rule_configs
from trainyard._sdk.training.options import TrainingOptions
from trainyard.debugger import (
    CollectionConfig,
    DebuggerHookConfig,
    FrameworkProfile,
    ProfilerConfig,
    ProfilerRule,
    Rule,
    TensorBoardOutputConfig,
)
from trainyard.estimator import Estimator
from trainyard.foundation.errors import InvalidRequest
from trainyard.instance_group import InstanceGroup
from trainyard.pytorch import PyTorch
from trainyard.session import Session
from trainyard.tensorflow import TensorFlow
from trainyard.wire.client import CallFailed

IMAGE = "433757028032.dkr.ecr.us-west-2.amazonaws.com/image-classification:1"
ROLE = "arn:aws:iam::123456789012:role/R"
ORDER = [
    "image_uri",
    "role",
    "instance_count",
    "instance_type",
    "keep_alive_period_in_seconds",
    "volume_size",
    "volume_kms_key",
    "max_run",
    "input_mode",
    "output_path",
    "output_kms_key",
    "base_job_name",
    "sagemaker_session",
    "hyperparameters",
    "tags",
    "subnets",
    "security_group_ids",
    "model_uri",
    "model_channel_name",
    "metric_definitions",
    "encrypt_inter_container_traffic",
    "use_spot_instances",
    "max_wait",
    "checkpoint_s3_uri",
    "checkpoint_local_path",
    "enable_network_isolation",
]


@pytest.fixture
def api() -> RecordingApi:
    return RecordingApi()


@pytest.fixture
def session(api: RecordingApi) -> Session:
    return Session(api=api, region="us-west-2")


@pytest.fixture
def source(tmp_path: Path) -> str:
    (tmp_path / "train.py").write_text("print('trains')")
    return str(tmp_path)


def test_the_order_of_the_parameters_is_that_of_the_sagemaker_sdk() -> None:
    parameters = inspect.signature(Estimator).parameters.values()
    by_position = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    assert by_position == ORDER


def test_hyperparameters_of_an_algorithm_are_plain_texts(api: RecordingApi, session: Session) -> None:
    estimator = Estimator(IMAGE, ROLE, 2, "ml.p2.xlarge", sagemaker_session=session, hyperparameters={"layers": 18})
    estimator.set_hyperparameters(image_shape="1,28,28", learning_rate=0.01, augment=True)

    estimator.fit({"train": "s3://b/t"}, wait=False)

    request = api.only("CreateTrainingJob")
    assert request["HyperParameters"] == {
        "layers": "18",
        "image_shape": "1,28,28",
        "learning_rate": "0.01",
        "augment": "True",
    }
    assert request["ResourceConfig"]["InstanceCount"] == 2
    assert estimator.hyperparameters()["layers"] == 18


def test_a_job_is_named_after_its_image_and_the_time(api: RecordingApi, session: Session) -> None:
    estimator = Estimator(IMAGE, ROLE, 1, "ml.m5.large", sagemaker_session=session)

    estimator.fit(wait=False)

    name = api.only("CreateTrainingJob")["TrainingJobName"]
    assert name.startswith(f"image-classification-{datetime.now(UTC):%Y-%m-}")
    assert estimator.latest_training_job is not None
    assert estimator.latest_training_job.name == name


def test_a_job_may_be_named(api: RecordingApi, session: Session) -> None:
    Estimator(IMAGE, ROLE, 1, "ml.m5.large", sagemaker_session=session).fit(wait=False, job_name="mine")
    assert api.only("CreateTrainingJob")["TrainingJobName"] == "mine"


def test_missing_arguments_are_detected(api: RecordingApi, session: Session) -> None:
    Estimator(IMAGE, instance_type="ml.m5.large", sagemaker_session=session).fit(wait=False)
    request = api.only("CreateTrainingJob")
    assert request["RoleArn"] == "arn:aws:iam::123456789012:role/path/Trainer"
    assert request["OutputDataConfig"]["S3OutputPath"] == "s3://sagemaker-us-west-2-123456789012/"


def test_the_code_of_a_job_of_the_same_name_is_left_as_it_is(api: RecordingApi, session: Session, source: str) -> None:
    def put(asked: dict[str, Any]) -> dict[str, Any]:
        if "IfNoneMatch" in asked:
            raise CallFailed("PreconditionFailed", "It is there.", status=412)
        return {}

    api.answers["PutObject"] = put
    estimator = PyTorch(
        "train.py", "1.9.0", "py38", source, role=ROLE, instance_type="ml.m5.large", sagemaker_session=session
    )

    estimator.fit("s3://b/d", wait=False, job_name="job")

    written = [asked["Key"] for name, asked in api.asked if name == "PutObject" and "IfNoneMatch" not in asked]
    digest = hashlib.sha256(next(asked["Body"] for name, asked in api.asked if name == "PutObject")).hexdigest()
    assert written == [f"job/source/{digest}/sourcedir.tar.gz"]
    told = api.only("CreateTrainingJob")["HyperParameters"]["sagemaker_submit_directory"]
    assert told == f'"s3://sagemaker-us-west-2-123456789012/{written[0]}"'


def test_a_script_is_uploaded_and_named_in_json_hyperparameters(
    api: RecordingApi, session: Session, source: str
) -> None:
    estimator = PyTorch(
        "train.py",
        "1.9.0",
        "py38",
        source,
        {"batch-size": 64, "name": "x", "flag": False, "none": None},
        role=ROLE,
        instance_type="ml.m5.large",
        sagemaker_session=session,
    )

    estimator.fit("s3://b/d", wait=False, job_name="job")

    upload = api.only("PutObject")
    assert (upload["Bucket"], upload["Key"]) == ("sagemaker-us-west-2-123456789012", "job/source/sourcedir.tar.gz")
    with tarfile.open(fileobj=io.BytesIO(upload["Body"])) as archive:
        assert archive.getnames() == ["train.py"]
    assert api.only("CreateTrainingJob")["HyperParameters"] == {
        "batch-size": "64",
        "name": '"x"',
        "flag": "false",
        "none": "null",
        "sagemaker_submit_directory": f'"s3://{upload["Bucket"]}/{upload["Key"]}"',
        "sagemaker_program": '"train.py"',
        "sagemaker_container_log_level": "20",
        "sagemaker_job_name": '"job"',
        "sagemaker_region": '"us-west-2"',
    }


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"output_path": "s3://out/deep/"}, "s3://out/job/source/sourcedir.tar.gz"),
        ({"code_location": "s3://code/deep"}, "s3://code/deep/job/source/sourcedir.tar.gz"),
    ],
)
def test_code_goes_where_the_sdk_puts_it(
    api: RecordingApi, session: Session, source: str, options: dict[str, Any], place: str
) -> None:
    estimator = Estimator(
        "image:1",
        ROLE,
        1,
        "ml.m5.large",
        sagemaker_session=session,
        entry_point="train.py",
        source_dir=source,
        **options,
    )
    estimator.fit(wait=False, job_name="job")
    assert json.loads(api.only("CreateTrainingJob")["HyperParameters"]["sagemaker_submit_directory"]) == place


def test_code_that_lies_on_s3_is_not_moved(api: RecordingApi, session: Session) -> None:
    estimator = Estimator(
        "image:1",
        ROLE,
        1,
        "ml.m5.large",
        sagemaker_session=session,
        entry_point="train.py",
        source_dir="s3://b/sourcedir.tar.gz",
    )
    estimator.fit(wait=False)
    assert "PutObject" not in {operation for operation, _ in api.asked}
    assert '"s3://b/sourcedir.tar.gz"' in api.only("CreateTrainingJob")["HyperParameters"].values()


def test_code_of_an_isolated_job_comes_through_a_channel(api: RecordingApi, session: Session, source: str) -> None:
    estimator = PyTorch(
        "train.py",
        source_dir=source,
        role=ROLE,
        instance_type="ml.m5.large",
        enable_network_isolation=True,
        sagemaker_session=session,
    )
    estimator.fit(wait=False, job_name="job")
    request = api.only("CreateTrainingJob")
    told = json.loads(request["HyperParameters"]["sagemaker_submit_directory"])
    assert told == "/opt/ml/input/data/code/sourcedir.tar.gz"
    assert [channel["ChannelName"] for channel in request["InputDataConfig"]] == ["code"]


def test_the_model_is_asked_for_when_it_is_read(api: RecordingApi, session: Session) -> None:
    estimator = Estimator(IMAGE, ROLE, 1, "ml.m5.large", sagemaker_session=session)
    with pytest.raises(InvalidRequest, match="call fit first"):
        _ = estimator.model_data
    estimator.fit(wait=False, job_name="job")
    api.answers["DescribeTrainingJob"] = description(ModelArtifacts={"S3ModelArtifacts": "s3://b/m.tar.gz"})
    assert estimator.model_data == "s3://b/m.tar.gz"
    api.answers["DescribeTrainingJob"] = description(TrainingJobStatus="Failed", ModelArtifacts={})
    with pytest.raises(InvalidRequest, match='"job-2026-11-15-12-00-00-000" is Failed and has no model'):
        _ = estimator.model_data


def test_attaching_makes_the_estimator_of_a_job(api: RecordingApi, session: Session) -> None:
    api.answers["DescribeTrainingJob"] = description(
        HyperParameters={"layers": "18"},
        InputDataConfig=[
            {"ChannelName": "model", "DataSource": {"S3DataSource": {"S3Uri": "s3://b/old.tar.gz"}}},
        ],
    )
    api.answers["ListTags"] = {"Tags": [{"Key": "a", "Value": "b"}]}

    estimator = Estimator.attach("job", session)

    assert estimator.image_uri == "image:1"
    assert estimator.hyperparameters() == {"layers": "18"}
    assert (estimator.instance_type, estimator.instance_count, estimator.max_run) == ("ml.m5.large", 2, 60)
    assert (estimator.output_path, estimator.output_kms_key) == ("s3://b/out", None)
    assert (estimator.model_uri, estimator.base_job_name) == ("s3://b/old.tar.gz", "job")
    assert estimator.tags == [{"Key": "a", "Value": "b"}]
    assert estimator.latest_training_job is not None


# The options that a description contains, each with the options that it needs.
TOLD: dict[str, dict[str, Any]] = {
    "role": {"role": "arn:aws:iam::123456789012:role/Other"},
    "instance_count": {"instance_count": 3},
    "instance_type": {"instance_type": "ml.c5.xlarge"},
    "instance_groups": {"instance_groups": [InstanceGroup("a", "ml.m5.large", 2)], "instance_type": None},
    "keep_alive_period_in_seconds": {"keep_alive_period_in_seconds": 60},
    "volume_size": {"volume_size": 31},
    "volume_kms_key": {"volume_kms_key": "key"},
    "max_run": {"max_run": 61},
    "input_mode": {"input_mode": "Pipe"},
    "output_path": {"output_path": "s3://b/out"},
    "output_kms_key": {"output_kms_key": "key"},
    "tags": {"tags": {"a": "b"}},
    "subnets": {"subnets": ["s"], "security_group_ids": ["g"]},
    "security_group_ids": {"subnets": ["s"], "security_group_ids": ["other"]},
    "model_uri": {"model_uri": "s3://b/model"},
    "model_channel_name": {"model_uri": "s3://b/model", "model_channel_name": "start"},
    "metric_definitions": {"metric_definitions": [{"Name": "a", "Regex": "a=(.*)"}]},
    "encrypt_inter_container_traffic": {"encrypt_inter_container_traffic": True},
    "use_spot_instances": {"use_spot_instances": True, "max_wait": 90_000},
    "max_wait": {"use_spot_instances": True, "max_wait": 90_001},
    "checkpoint_s3_uri": {"checkpoint_s3_uri": "s3://b/checkpoints"},
    "checkpoint_local_path": {"checkpoint_s3_uri": "s3://b/checkpoints", "checkpoint_local_path": "/opt/ml/state"},
    "enable_network_isolation": {"enable_network_isolation": True},
    "rules": {
        "rules": [
            Rule.sagemaker(rule_configs.loss_not_decreasing(), actions=rule_configs.StopTraining()),
            Rule.sagemaker(
                rule_configs.overfit(),
                actions=rule_configs.ActionList(rule_configs.StopTraining("other"), rule_configs.Email("a@b.example")),
            ),
            Rule.custom("own", "image:2", "ml.t3.medium", 3, "s3://b/rule.py", "Own", "/opt/ml/rule", "s3://b/rules"),
            ProfilerRule.sagemaker(rule_configs.StepOutlier(stddev=5), name="Steps", s3_output_path="s3://b/steps"),
        ]
    },
    "debugger_hook_config": {
        "debugger_hook_config": DebuggerHookConfig(
            "s3://b/tensors", "/opt/ml/tensors", {"save_interval": "7"}, [CollectionConfig("losses")]
        )
    },
    "tensorboard_output_config": {"tensorboard_output_config": TensorBoardOutputConfig("s3://b/tb", "/opt/ml/tb")},
    "profiler_config": {
        "profiler_config": ProfilerConfig("s3://b/profiles", 500, FrameworkProfile(start_step=3)),
        "rules": [ProfilerRule.sagemaker(rule_configs.ProfilerReport(StepOutlier_stddev=4))],
    },
    "disable_profiler": {"disable_profiler": True},
    "enable_sagemaker_metrics": {"enable_sagemaker_metrics": True},
    "environment": {"environment": {"A": "b"}},
    "max_retry_attempts": {"max_retry_attempts": 2},
    "container_log_level": {"container_log_level": 10},
    "container_entry_point": {"container_entry_point": ["run"]},
    "container_arguments": {"container_arguments": ["--fast"]},
    "disable_output_compression": {"disable_output_compression": True},
    "engine": {"engine": "ray", "tags": {"a": "b"}},
}
# Options that only affect how a job is created: its name, its session, and the upload of its code.
NOT_TOLD = {"base_job_name", "sagemaker_session", "code_location", "dependencies", "include_local_modules"}


def test_every_option_is_in_a_description_or_in_the_request_of_a_job() -> None:
    assert {field.name for field in fields(TrainingOptions)} == TOLD.keys() | NOT_TOLD


@pytest.mark.parametrize("option", TOLD)
def test_an_attached_estimator_asks_for_the_same_again(api: RecordingApi, session: Session, option: str) -> None:
    plain: dict[str, Any] = {"role": ROLE, "instance_type": "ml.m5.large", "source_dir": "s3://b/sourcedir.tar.gz"}

    def asked(**options: Any) -> dict[str, Any]:
        return Estimator(IMAGE, **(plain | options), entry_point="train.py", sagemaker_session=session).request_of(
            "job"
        )

    request = asked(**TOLD[option])
    assert TOLD[option][option] != getattr(TrainingOptions, option), "the option says what it does by default"
    assert request != asked(), "the option asks for nothing"
    told = {name: value for name, value in request.items() if name != "Tags"}
    api.answers["DescribeTrainingJob"] = description(**told)
    api.answers["ListTags"] = {"Tags": request.get("Tags", [])}

    attached = Estimator.attach("job", session, TOLD[option].get("model_channel_name", "model"))

    assert attached.request_of("job") == request
    assert attached.request_of("next")["HyperParameters"]["sagemaker_job_name"] == '"next"'


def test_a_rule_that_stopped_the_described_job_stops_the_next(api: RecordingApi, session: Session) -> None:
    made = Estimator(IMAGE, ROLE, 1, "ml.m5.large", sagemaker_session=session, rules=TOLD["rules"]["rules"])
    api.answers["DescribeTrainingJob"] = description(**made.request_of("job"))
    api.answers["ListTags"] = {"Tags": []}

    rules = Estimator.attach("job", session).request_of("next")["DebugRuleConfigurations"]

    prefixes = [
        re.findall(r"training_job_prefix[^a-z]+([a-z]+)", rule["RuleParameters"].get("action_json", ""))
        for rule in rules
    ]
    assert prefixes == [["next"], ["other"], []]


@pytest.mark.parametrize("model_dir", ["s3://b/elsewhere", False, None])
def test_an_attached_tensorflow_estimator_has_its_place_for_the_model_again(
    api: RecordingApi, session: Session, model_dir: str | Literal[False] | None
) -> None:
    plain: dict[str, Any] = {"entry_point": "train.py", "source_dir": "s3://b/sourcedir.tar.gz", "role": ROLE}
    made = TensorFlow("py310", "2.13", model_dir, instance_type="ml.m5.large", sagemaker_session=session, **plain)
    api.answers["DescribeTrainingJob"] = description(**made.request_of("job"))
    api.answers["ListTags"] = {"Tags": []}

    attached = TensorFlow.attach("job", session)

    assert attached.request_of("next")["HyperParameters"] == made.request_of("next")["HyperParameters"]


def test_attaching_to_a_script_finds_its_code_again(api: RecordingApi, session: Session) -> None:
    texts = {
        "epochs": "3",
        "name": '"x"',
        "sagemaker_program": '"train.py"',
        "sagemaker_submit_directory": '"s3://b/sourcedir.tar.gz"',
        "sagemaker_region": '"us-west-2"',
    }
    api.answers["DescribeTrainingJob"] = description(HyperParameters=texts)
    api.answers["ListTags"] = {"Tags": []}

    estimator = PyTorch.attach("job", session)
    estimator.fit(wait=False, job_name="again")

    assert (estimator.entry_point, estimator.source_dir) == ("train.py", "s3://b/sourcedir.tar.gz")
    assert estimator.hyperparameters() == {"epochs": "3", "name": '"x"'}
    sent = api.only("CreateTrainingJob")["HyperParameters"]
    assert {name: sent[name] for name in ("epochs", "name", "sagemaker_program")} == {
        "epochs": "3",
        "name": '"x"',
        "sagemaker_program": '"train.py"',
    }


def test_the_image_of_groups_of_instances_is_for_gpus_when_a_group_has_some(session: Session, source: str) -> None:
    def image(*types: str) -> str:
        groups = [InstanceGroup(f"group-{number}", kind, 1) for number, kind in enumerate(types)]
        job = PyTorch("train.py", "2.0", "py310", source, instance_groups=groups, sagemaker_session=session)
        return job.training_image_uri()

    assert "-gpu-" in image("ml.c5.xlarge", "ml.g4dn.xlarge")
    assert "-cpu-" in image("ml.c5.xlarge", "ml.m5.large")


def test_attaching_to_a_job_whose_hyperparameters_are_no_json(api: RecordingApi, session: Session) -> None:
    texts = {"name": "x y", "sagemaker_program": "train.py", "sagemaker_submit_directory": "s3://b/sourcedir.tar.gz"}
    api.answers["DescribeTrainingJob"] = description(HyperParameters=texts)
    api.answers["ListTags"] = {"Tags": []}

    estimator = PyTorch.attach("job", session)

    assert (estimator.entry_point, estimator.source_dir) == ("train.py", "s3://b/sourcedir.tar.gz")
    assert estimator.hyperparameters() == {"name": '"x y"'}


@pytest.mark.parametrize(
    ("logs", "shown"),
    [
        ("All", True),
        (True, True),
        (False, False),
        ("None", False),
        ("Training", True),
        ("Rules", False),
        (["Rules", "Training"], True),
    ],
)
def test_which_lines_are_shown_is_said_as_in_the_sagemaker_sdk(
    api: RecordingApi, session: Session, logs: str | bool | list[str], shown: bool
) -> None:
    api.answers["DescribeTrainingJob"] = description(CreationTime=datetime(2026, 11, 15, tzinfo=UTC))
    api.answers["DescribeJob"] = {"Artifacts": [], "Cost": 0.0}
    Estimator(IMAGE, ROLE, 1, "ml.m5.large", sagemaker_session=session).fit(logs=logs)
    assert api.only("FollowJob")["Logs"] is shown


def test_unknown_lines_are_refused_before_a_job_is_made(api: RecordingApi, session: Session) -> None:
    with pytest.raises(
        InvalidRequest, match='logs names "Everything"; the kinds of logs are All, Training, Rules, None'
    ):
        Estimator(IMAGE, ROLE, 1, "ml.m5.large", sagemaker_session=session).fit(logs="Everything")
    assert "CreateTrainingJob" not in [operation for operation, _ in api.asked]


def test_profiling_of_a_running_job_is_changed(api: RecordingApi, session: Session) -> None:
    estimator = Estimator(IMAGE, ROLE, 1, "ml.m5.large", output_path="s3://b/out", sagemaker_session=session)
    estimator.fit(wait=False)

    estimator.disable_profiling()
    estimator.enable_default_profiling()
    estimator.update_profiler(system_monitor_interval_millis=500, disable_framework_metrics=True)
    estimator.update_profiler([ProfilerRule.sagemaker(rule_configs.IOBottleneck())])

    asked = [params for operation, params in api.asked if operation == "UpdateTrainingJob"]
    assert [params["ProfilerConfig"] for params in asked] == [
        {"DisableProfiler": True},
        {"S3OutputPath": "s3://b/out", "DisableProfiler": False},
        {"ProfilingIntervalInMilliseconds": 500, "ProfilingParameters": {}, "DisableProfiler": False},
        {"DisableProfiler": False},
    ]
    rules = [
        [rule["RuleConfigurationName"] for rule in params.get("ProfilerRuleConfigurations", ())] for params in asked
    ]
    assert [len(names) for names in rules] == [0, 1, 0, 1]
    assert re.fullmatch(r"ProfilerReport-\d+", rules[1][0])
    assert rules[3] == ["IOBottleneck"]


def test_a_change_of_the_profiling_that_changes_nothing_or_contradicts_itself_is_refused(
    api: RecordingApi, session: Session
) -> None:
    estimator = Estimator(IMAGE, ROLE, 1, "ml.m5.large", output_path="s3://b/out", sagemaker_session=session)
    estimator.fit(wait=False)
    with pytest.raises(InvalidRequest, match="nothing to change"):
        estimator.update_profiler()
    with pytest.raises(InvalidRequest, match="contradict"):
        estimator.update_profiler(framework_profile_params=FrameworkProfile(), disable_framework_metrics=True)
    with pytest.raises(InvalidRequest, match="takes profiler rules"):
        estimator.update_profiler(rules=TOLD["rules"]["rules"][:1])
    api.answers["DescribeTrainingJob"] = description(ProfilingStatus="Enabled")
    with pytest.raises(InvalidRequest, match="profiled already"):
        estimator.enable_default_profiling()
    api.answers["DescribeTrainingJob"] = description(ProfilingStatus="Disabled")
    with pytest.raises(InvalidRequest, match="not profiled"):
        estimator.disable_profiling()


def test_profiling_that_is_on_again_stores_where_it_did(api: RecordingApi, session: Session) -> None:
    estimator = Estimator(IMAGE, ROLE, 1, "ml.m5.large", output_path="s3://b/out", sagemaker_session=session)
    estimator.fit(wait=False)
    told = {"S3OutputPath": "s3://b/profiles", "DisableProfiler": True}
    api.answers["DescribeTrainingJob"] = description(ProfilingStatus="Disabled", ProfilerConfig=told)
    estimator.enable_default_profiling()
    assert api.only("UpdateTrainingJob")["ProfilerConfig"]["S3OutputPath"] == "s3://b/profiles"
    job = description()["TrainingJobName"]
    assert estimator.latest_job_profiler_artifacts_path() == f"s3://b/profiles/{job}/profiler-output"


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, None),
        ({"profiler_config": ProfilerConfig()}, [r"ProfilerReport-\d+"]),
        ({"profiler_config": ProfilerConfig(), "rules": []}, None),
        ({"profiler_config": ProfilerConfig(disable_profiler=True)}, None),
        ({"profiler_config": ProfilerConfig(), "rules": TOLD["rules"]["rules"][:1]}, [r"ProfilerReport-\d+"]),
        ({"rules": [ProfilerRule.sagemaker(rule_configs.BatchSize())]}, ["BatchSize"]),
    ],
)
def test_a_job_whose_profile_is_wanted_has_a_report_unless_rules_say_otherwise(
    session: Session, options: dict[str, Any], names: list[str] | None
) -> None:
    request = Estimator(IMAGE, ROLE, 1, "ml.m5.large", sagemaker_session=session, **options).request_of("job")
    if names is None:
        assert "ProfilerRuleConfigurations" not in request
        return
    (rule,) = request["ProfilerRuleConfigurations"]
    assert re.fullmatch(names[0], rule["RuleConfigurationName"])
    assert request["ProfilerConfig"]["S3OutputPath"] == request["OutputDataConfig"]["S3OutputPath"]


def test_profiler_rules_alone_capture_no_tensors(session: Session) -> None:
    rules = [ProfilerRule.sagemaker(rule_configs.BatchSize())]
    estimator = Estimator(
        IMAGE, ROLE, 1, "ml.m5.large", sagemaker_session=session, rules=rules, debugger_hook_config=False
    )
    assert not {"DebugHookConfig", "DebugRuleConfigurations"} & estimator.request_of("job").keys()


@pytest.mark.parametrize(
    "options",
    [{"profiler_config": ProfilerConfig()}, {"rules": [ProfilerRule.sagemaker(rule_configs.BatchSize())]}],
)
def test_profiling_that_is_wanted_and_disabled_is_refused(session: Session, options: dict[str, Any]) -> None:
    estimator = Estimator(IMAGE, ROLE, 1, "ml.m5.large", sagemaker_session=session, disable_profiler=True, **options)
    with pytest.raises(InvalidRequest, match="leave one"):
        estimator.request_of("job")


def test_making_an_estimator_asks_nobody() -> None:
    estimator = PyTorch("train.py", role=ROLE, instance_count=1, instance_type="ml.m5.large")
    assert estimator.sagemaker_session is None


def description(**more: Any) -> dict[str, Any]:
    return {
        "TrainingJobName": "job-2026-11-15-12-00-00-000",
        "TrainingJobArn": "arn:aws:sagemaker:us-west-2:1:training-job/job",
        "TrainingJobStatus": "Completed",
        "RoleArn": ROLE,
        "AlgorithmSpecification": {"TrainingImage": "image:1", "TrainingInputMode": "File"},
        "OutputDataConfig": {"S3OutputPath": "s3://b/out", "KmsKeyId": ""},
        "ResourceConfig": {"InstanceCount": 2, "InstanceType": "ml.m5.large", "VolumeSizeInGB": 30},
        "StoppingCondition": {"MaxRuntimeInSeconds": 60},
    } | more
