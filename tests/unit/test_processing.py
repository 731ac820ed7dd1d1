"""Processors: the requests that they make of what they are given."""

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.unit.recording import RecordingApi
from trainyard.exceptions import UnexpectedStatusException
from trainyard.foundation.errors import InvalidRequest
from trainyard.network import NetworkConfig
from trainyard.processing import FrameworkProcessor, ProcessingInput, ProcessingJob, ProcessingOutput, Processor
from trainyard.pytorch import PyTorch, PyTorchProcessor
from trainyard.session import Session
from trainyard.sklearn import SKLearnProcessor

ROLE = "arn:aws:iam::123456789012:role/R"
BUCKET = "sagemaker-eu-west-3-123456789012"
ENDED: dict[str, Any] = {
    "ProcessingJobName": "clean",
    "ProcessingJobStatus": "Completed",
    "CreationTime": None,
    "ProcessingResources": {"ClusterConfig": {"InstanceCount": 1}},
}


@pytest.fixture
def api() -> RecordingApi:
    return RecordingApi(DescribeProcessingJob=ENDED, DescribeJob={"Artifacts": []})


def session_of(api: RecordingApi) -> Session:
    return Session(api=api, region="eu-west-3")


def uploaded(api: RecordingApi) -> dict[str, bytes]:
    return {params["Key"]: params["Body"] for name, params in api.asked if name == "PutObject"}


def test_a_processor_sends_what_it_was_given_and_leaves_out_what_it_was_not(api: RecordingApi) -> None:
    processor = Processor(ROLE, "image:1", 2, "ml.c5.xlarge", ["run", "it"], sagemaker_session=session_of(api))
    processor.run(job_name="clean", wait=False)
    assert api.only("CreateProcessingJob") == {
        "ProcessingJobName": "clean",
        "RoleArn": ROLE,
        "ProcessingResources": {
            "ClusterConfig": {"InstanceType": "ml.c5.xlarge", "InstanceCount": 2, "VolumeSizeInGB": 30}
        },
        "AppSpecification": {"ImageUri": "image:1", "ContainerEntrypoint": ["run", "it"]},
    }
    assert processor.latest_job is not None
    assert processor.jobs == [processor.latest_job]
    assert processor.latest_job.job_name == "clean"


def test_every_option_has_its_place_in_the_request(api: RecordingApi) -> None:
    processor = Processor(
        ROLE,
        "image:1",
        volume_kms_key="disk-key",
        output_kms_key="key",
        max_runtime_in_seconds=60,
        sagemaker_session=session_of(api),
        env={"N": "1"},
        tags={"team": "a"},
        network_config=NetworkConfig(True, ["sg"], ["subnet"], encrypt_inter_container_traffic=False),
    )
    request = processor.request_of(
        "clean",
        [ProcessingInput("s3://data/in", "/opt/ml/processing/in"), ProcessingInput("s3://data/m", "/m", "named")],
        [ProcessingOutput("/opt/ml/processing/out"), ProcessingOutput("/o", "s3://data/o", "own", "Continuous")],
        ["--all", 3],  # type: ignore[list-item]
    )
    assert request["ProcessingResources"]["ClusterConfig"]["VolumeKmsKeyId"] == "disk-key"
    assert request["AppSpecification"]["ContainerArguments"] == ["--all", "3"]
    assert [each["InputName"] for each in request["ProcessingInputs"]] == ["input-1", "named"]
    assert request["ProcessingInputs"][0]["S3Input"] == {
        "S3Uri": "s3://data/in",
        "LocalPath": "/opt/ml/processing/in",
        "S3DataType": "S3Prefix",
        "S3InputMode": "File",
        "S3DataDistributionType": "FullyReplicated",
        "S3CompressionType": "None",
    }
    config = request["ProcessingOutputConfig"]
    assert [(each["OutputName"], each["S3Output"]["S3Uri"]) for each in config["Outputs"]] == [
        ("output-1", f"s3://{BUCKET}/clean/output/output-1"),
        ("own", "s3://data/o"),
    ]
    assert (config["KmsKeyId"], config["Outputs"][1]["S3Output"]["S3UploadMode"]) == ("key", "Continuous")
    assert request["StoppingCondition"] == {"MaxRuntimeInSeconds": 60}
    assert (request["Environment"], request["Tags"]) == ({"N": "1"}, [{"Key": "team", "Value": "a"}])
    assert request["NetworkConfig"] == {
        "EnableNetworkIsolation": True,
        "EnableInterContainerTrafficEncryption": False,
        "VpcConfig": {"SecurityGroupIds": ["sg"], "Subnets": ["subnet"]},
    }


def test_a_script_is_uploaded_below_the_name_of_its_job_and_run_from_there(api: RecordingApi, tmp_path: Path) -> None:
    script = tmp_path / "clean.py"
    script.write_text("print()")
    processor = SKLearnProcessor("1.2-1", ROLE, sagemaker_session=session_of(api))
    processor.run(str(script), arguments=["-x"], job_name="clean", wait=False)
    request = api.only("CreateProcessingJob")
    assert request["AppSpecification"]["ImageUri"].endswith("/sagemaker-scikit-learn:1.2-1-cpu-py3")
    entrypoint = ["python3", "/opt/ml/processing/input/code/clean.py"]
    assert request["AppSpecification"]["ContainerEntrypoint"] == entrypoint
    assert request["ProcessingInputs"][0]["S3Input"]["S3Uri"] == f"s3://{BUCKET}/clean/input/code/clean.py"
    assert uploaded(api) == {"clean/input/code/clean.py": b"print()"}
    with pytest.raises(InvalidRequest, match="There is no script"):
        processor.run("missing.py")


def test_a_framework_processor_packs_the_folder_and_starts_it_by_a_shell_script(
    api: RecordingApi, tmp_path: Path
) -> None:
    (tmp_path / "say.py").write_text("print()")
    (tmp_path / "requirements.txt").write_text("small")
    processor = PyTorchProcessor("2.6", ROLE, sagemaker_session=session_of(api))
    assert isinstance(processor, FrameworkProcessor)
    assert processor.estimator_cls is PyTorch
    processor.run("say.py", str(tmp_path), job_name="say", wait=False)
    request = api.only("CreateProcessingJob")
    assert "pytorch-training:2.6-cpu-py312" in request["AppSpecification"]["ImageUri"]
    started = ["/bin/bash", "/opt/ml/processing/input/entrypoint/runproc.sh"]
    assert request["AppSpecification"]["ContainerEntrypoint"] == started
    bodies = uploaded(api)
    with tarfile.open(fileobj=io.BytesIO(bodies["say/source/sourcedir.tar.gz"])) as archive:
        assert sorted(archive.getnames()) == ["requirements.txt", "say.py"]
    assert 'exec python say.py "$@"' in bodies["say/source/runproc.sh"].decode()


def test_a_job_that_failed_raises_with_its_reason_and_card(capsys: pytest.CaptureFixture[str]) -> None:
    card = {"Class": "user error", "Summary": "no rows", "ExitCode": 3, "Advice": ["Correct the program."]}
    failed = ENDED | {"ProcessingJobStatus": "Failed", "FailureReason": "AlgorithmError: exit code: 3"}
    api = RecordingApi(DescribeProcessingJob=failed, DescribeJob={"FailureCard": card, "Artifacts": []})
    job = ProcessingJob.from_processing_arn(session_of(api), "arn:aws:sagemaker:eu-west-3:1:processing-job/clean")
    with pytest.raises(UnexpectedStatusException) as caught:
        job.wait()
    message = str(caught.value)
    assert 'Processing job "clean" is Failed.' in message
    assert "exit code: 3" in message
    assert "try: Correct the program." in message
    assert api.only("FollowJob") == {"TrainingJobName": "clean", "Kind": "processing", "Logs": True}
    assert capsys.readouterr().out == ""
