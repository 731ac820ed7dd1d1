import inspect

import pytest

from tests.unit.recording import RecordingApi
from trainyard.foundation.errors import InvalidRequest
from trainyard.pytorch import PyTorch
from trainyard.session import Session


def test_the_first_parameters_are_in_the_order_of_the_sagemaker_sdk() -> None:
    names = list(inspect.signature(PyTorch).parameters)
    assert names[:7] == [
        "entry_point",
        "framework_version",
        "py_version",
        "source_dir",
        "hyperparameters",
        "image_uri",
        "distribution",
    ]


def test_the_image_is_that_of_version_and_instance() -> None:
    session = Session(api=RecordingApi(), region="us-east-1")
    estimator = PyTorch("a.py", "1.9.0", "py3", instance_type="ml.g4dn.xlarge", sagemaker_session=session)
    assert estimator.training_image_uri().endswith("us-east-1.amazonaws.com/pytorch-training:1.9.0-gpu-py38")


def test_an_image_of_ones_own_is_taken_as_it_is() -> None:
    assert PyTorch("a.py", image_uri="mine:1").training_image_uri() == "mine:1"


def test_without_a_script_there_is_nothing_to_train() -> None:
    with pytest.raises(InvalidRequest, match="PyTorch needs an entry_point"):
        PyTorch(framework_version="2.0")


def test_a_launcher_is_named_in_hyperparameters() -> None:
    api = RecordingApi()
    estimator = PyTorch(
        "a.py",
        "1.12",
        source_dir="s3://b/sourcedir.tar.gz",
        distribution={"mpi": {"enabled": True, "processes_per_host": 4}},
        role="arn:aws:iam::1:role/R",
        instance_type="ml.g4dn.12xlarge",
        sagemaker_session=Session(api=api, region="us-east-1"),
    )
    estimator.fit(wait=False)
    sent = api.only("CreateTrainingJob")["HyperParameters"]
    assert sent["sagemaker_mpi_enabled"] == "true"
    assert sent["sagemaker_mpi_num_of_processes_per_host"] == "4"
