"""Estimators of the frameworks that share the machinery of PyTorch's."""

import inspect
from typing import Any

import pytest

from tests.unit.recording import RecordingApi
from trainyard.estimator import Framework
from trainyard.foundation.errors import InvalidRequest
from trainyard.huggingface import HuggingFace
from trainyard.session import Session
from trainyard.sklearn import SKLearn
from trainyard.xgboost import XGBoost

REGISTRY = "763104351884.dkr.ecr.us-east-1.amazonaws.com"


def image(kind: type[Framework], **options: Any) -> str:
    session = Session(api=RecordingApi(), region="us-east-1")
    return kind(
        entry_point="a.py", instance_type="ml.m5.large", sagemaker_session=session, **options
    ).training_image_uri()


@pytest.mark.parametrize(
    ("kind", "first"),
    [
        (HuggingFace, ["py_version", "entry_point", "transformers_version", "tensorflow_version", "pytorch_version"]),
        (SKLearn, ["entry_point", "framework_version", "py_version", "source_dir", "hyperparameters"]),
        (XGBoost, ["entry_point", "framework_version", "source_dir", "hyperparameters", "py_version"]),
    ],
)
def test_the_first_parameters_are_in_the_order_of_the_sagemaker_sdk(kind: type[Framework], first: list[str]) -> None:
    assert list(inspect.signature(kind).parameters)[:5] == first


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (HuggingFace, "huggingface-pytorch-training:latest"),
        (SKLearn, "sagemaker-scikit-learn:latest"),
        (XGBoost, "sagemaker-xgboost:latest"),
    ],
)
def test_without_a_version_the_one_that_the_yard_has_is_meant(kind: type[Framework], name: str) -> None:
    assert image(kind) == name


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"transformers_version": "4.56.2"}, "pytorch-training:2.8.0-transformers4.56.2-gpu-py312-cu129-ubuntu22.04"),
        (
            {"transformers_version": "4.36", "pytorch_version": "2.1", "py_version": "py310"},
            "pytorch-training:2.1-transformers4.36-gpu-py310-cu121-ubuntu20.04",
        ),
        (
            {"transformers_version": "4.17.0", "tensorflow_version": "2.6.3"},
            "tensorflow-training:2.6.3-transformers4.17.0-gpu-py38-cu112-ubuntu20.04",
        ),
    ],
)
def test_an_image_with_transformers_has_the_versions_of_both(options: dict[str, str], name: str) -> None:
    assert image(HuggingFace, **options) == f"{REGISTRY}/huggingface-{name}"


def test_versions_of_transformers_without_an_image_are_refused_with_those_that_have_one() -> None:
    with pytest.raises(InvalidRequest, match=r"no image with transformers 3\.0; the known versions are 4\.56\.2, "):
        image(HuggingFace, transformers_version="3.0")
    with pytest.raises(
        InvalidRequest, match=r"transformers 4\.36\.0 and pytorch1\.13; that version comes with pytorch2\.1"
    ):
        image(HuggingFace, transformers_version="4.36", pytorch_version="1.13")


@pytest.mark.parametrize(
    ("kind", "options", "complaint"),
    [
        (HuggingFace, {"compiler_config": object()}, "which AWS has discontinued"),
        (HuggingFace, {"pytorch_version": "2.1", "tensorflow_version": "2.6"}, "either PyTorch or TensorFlow"),
        (SKLearn, {"instance_count": 2}, "one instance"),
    ],
)
def test_what_a_framework_cannot_do_is_refused(kind: type[Framework], options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidRequest, match=complaint):
        image(kind, **options)
