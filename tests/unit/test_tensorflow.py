import inspect
from typing import Any

import pytest

from tests.unit.recording import RecordingApi
from trainyard.session import Session
from trainyard.tensorflow import TensorFlow


def hyperparameters(**options: Any) -> dict[str, str]:
    api = RecordingApi()
    estimator = TensorFlow(
        entry_point="a.py",
        source_dir="s3://b/sourcedir.tar.gz",
        role="arn:aws:iam::1:role/R",
        instance_type="ml.p3.16xlarge",
        sagemaker_session=Session(api=api, region="us-east-1"),
        **options,
    )
    estimator.fit(wait=False, job_name="job")
    sent: dict[str, str] = api.only("CreateTrainingJob")["HyperParameters"]
    return sent


def test_the_first_parameters_are_in_the_order_of_the_sagemaker_sdk() -> None:
    names = list(inspect.signature(TensorFlow).parameters)
    assert names[:5] == ["py_version", "framework_version", "model_dir", "image_uri", "distribution"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"output_path": "s3://b/out/"}, '"s3://b/out/job/model"'),
        ({"output_path": "s3://b/out"}, '"s3://b/out/job/model"'),
        ({}, '"s3://sagemaker-us-east-1-123456789012/job/model"'),
        ({"model_dir": "/mine"}, '"/mine"'),
        ({"distribution": {"mpi": {"enabled": True}}}, '"/opt/ml/model"'),
    ],
)
def test_a_script_learns_where_to_keep_its_model(options: dict[str, Any], told: str) -> None:
    assert hyperparameters(**options)["model_dir"] == told


def test_a_script_may_get_no_model_folder() -> None:
    assert "model_dir" not in hyperparameters(model_dir=False)


def test_without_a_version_the_one_that_the_yard_has_is_meant() -> None:
    session = Session(api=RecordingApi(), region="us-east-1")
    image = TensorFlow(entry_point="a.py", instance_type="ml.m5.large", sagemaker_session=session).training_image_uri()
    assert image == "tensorflow-training:latest"
