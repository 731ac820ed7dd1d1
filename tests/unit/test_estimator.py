import inspect
import io
import json
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.unit.recording import RecordingApi
from trainyard.estimator import Estimator
from trainyard.foundation.errors import InvalidRequest
from trainyard.instance_group import InstanceGroup
from trainyard.pytorch import PyTorch
from trainyard.session import Session

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


def test_what_is_not_told_is_found_out(api: RecordingApi, session: Session) -> None:
    Estimator(IMAGE, instance_type="ml.m5.large", sagemaker_session=session).fit(wait=False)
    request = api.only("CreateTrainingJob")
    assert request["RoleArn"] == "arn:aws:iam::123456789012:role/path/Trainer"
    assert request["OutputDataConfig"]["S3OutputPath"] == "s3://sagemaker-us-west-2-123456789012/"


def test_a_script_is_uploaded_and_told_in_json(api: RecordingApi, session: Session, source: str) -> None:
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
    with pytest.raises(InvalidRequest, match="logs has Everything; it can have All, Training, Rules, None"):
        Estimator(IMAGE, ROLE, 1, "ml.m5.large", sagemaker_session=session).fit(logs="Everything")
    assert "CreateTrainingJob" not in [operation for operation, _ in api.asked]


def test_profiling_of_a_running_job_is_changed(api: RecordingApi, session: Session) -> None:
    estimator = Estimator(IMAGE, ROLE, 1, "ml.m5.large", output_path="s3://b/out", sagemaker_session=session)
    estimator.fit(wait=False)

    estimator.disable_profiling()
    estimator.enable_default_profiling()
    estimator.update_profiler(system_monitor_interval_millis=500, disable_framework_metrics=True)

    asked = [params["ProfilerConfig"] for operation, params in api.asked if operation == "UpdateTrainingJob"]
    assert asked == [
        {"DisableProfiler": True},
        {"S3OutputPath": "s3://b/out", "DisableProfiler": False},
        {"ProfilingIntervalInMilliseconds": 500, "ProfilingParameters": {}},
    ]
    with pytest.raises(InvalidRequest, match="nothing to change"):
        estimator.update_profiler()


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
