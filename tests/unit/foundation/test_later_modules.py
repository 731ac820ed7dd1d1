"""Modules and names of the sagemaker SDK that Trainyard does not have, and those that it has elsewhere."""

import copy
import importlib

import pytest

import trainyard
from trainyard.estimator import Estimator
from trainyard.foundation.later_modules import FRAMEWORK_MODULES, INSTEAD


@pytest.mark.parametrize("name", ["automl", "predictor", "workflow", "feature_store"])
def test_importing_one_says_what_to_use_instead(name: str) -> None:
    sentence = rf"Trainyard {trainyard.__version__} has no counterpart of sagemaker\.{name}\. Instead, \w+"
    with pytest.raises(ModuleNotFoundError, match=sentence):
        importlib.import_module(f"trainyard.{name}")
    with pytest.raises(ModuleNotFoundError, match=sentence):
        exec(f"from trainyard import {name}")
    with pytest.raises(AttributeError, match=sentence):
        getattr(trainyard, name)


def test_a_module_below_one_is_refused_in_the_same_way() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"sagemaker\.workflow"):
        importlib.import_module("trainyard.workflow.pipeline")


@pytest.mark.parametrize(
    "statement",
    [
        "from trainyard import Model",
        "from trainyard import KMeans",
        "from trainyard.huggingface import HuggingFaceModel",
        "from trainyard.pytorch import PyTorchPredictor",
        "from trainyard.xgboost.processing import XGBoostProcessor",
        "from trainyard.huggingface import HuggingFaceProcessor",
        "from trainyard.xgboost.model import XGBoostModel",
        "import trainyard.tensorflow.serving",
        "from trainyard.inputs import TransformInput",
        "from trainyard.amazon.linear_learner import LinearLearner",
    ],
)
def test_names_of_later_kinds_are_refused_where_sagemaker_has_them(statement: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=r"has no counterpart of sagemaker\.\w+"):
        exec(statement)


@pytest.mark.parametrize("framework", FRAMEWORK_MODULES)
def test_the_estimator_of_a_framework_is_also_where_sagemaker_has_it(framework: str) -> None:
    module = importlib.import_module(f"trainyard.{framework}")
    below = importlib.import_module(f"trainyard.{framework}.estimator")
    assert [getattr(below, name) for name in below.__all__] == [getattr(module, name) for name in module.__all__]


def test_the_processor_of_a_framework_is_also_where_sagemaker_has_it() -> None:
    for framework, name in (("sklearn", "SKLearnProcessor"), ("pytorch", "PyTorchProcessor")):
        below = importlib.import_module(f"trainyard.{framework}.processing")
        assert getattr(below, name) is getattr(importlib.import_module(f"trainyard.{framework}"), name)


def test_a_name_that_sagemaker_does_not_have_either_is_pythons_own_error() -> None:
    with pytest.raises(ImportError, match=r"cannot import name 'Nothing' from 'trainyard\.sklearn'"):
        exec("from trainyard.sklearn import Nothing")
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'trainyard\.sklearn\.nothing'"):
        importlib.import_module("trainyard.sklearn.nothing")


def test_members_of_later_kinds_are_refused_and_others_do_not_exist() -> None:
    estimator = Estimator(image_uri="mine:1", instance_type="ml.m5.large")
    with pytest.raises(AttributeError, match=r"no counterpart of Estimator\.deploy of sagemaker\. Instead"):
        getattr(estimator, "deploy")  # noqa: B009 - a type checker knows that there is none
    with pytest.raises(AttributeError, match="'Estimator' object has no attribute 'depoly'"):
        getattr(estimator, "depoly")  # noqa: B009
    assert not hasattr(estimator, "transformer")
    assert copy.copy(estimator).image_uri == "mine:1"


def test_a_module_that_nobody_has_is_pythons_own_error() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'trainyard\.nothing'"):
        importlib.import_module("trainyard.nothing")


def test_no_module_that_exists_is_refused() -> None:
    assert set(INSTEAD).isdisjoint(trainyard.__all__)
