"""A managed training service on machines you own, speaking the Amazon SageMaker API."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainyard import (
        analytics,
        debugger,
        estimator,
        image_uris,
        inputs,
        instance_group,
        parameter,
        pytorch,
        session,
        tensorflow,
        tuner,
    )
    from trainyard.analytics import HyperparameterTuningJobAnalytics, TrainingJobAnalytics
    from trainyard.inputs import TrainingInput, s3_input
    from trainyard.instance_group import InstanceGroup
    from trainyard.session import Session, get_execution_role

__version__ = "0.1.0"

__all__ = [
    "HyperparameterTuningJobAnalytics",
    "InstanceGroup",
    "Session",
    "TrainingInput",
    "TrainingJobAnalytics",
    "__version__",
    "analytics",
    "debugger",
    "estimator",
    "get_execution_role",
    "image_uris",
    "inputs",
    "instance_group",
    "parameter",
    "pytorch",
    "s3_input",
    "session",
    "tensorflow",
    "tuner",
]

# Imported when first used: everyone imports the package, and few need all of it.
_MODULES = frozenset(
    {
        "analytics",
        "debugger",
        "estimator",
        "image_uris",
        "inputs",
        "instance_group",
        "parameter",
        "pytorch",
        "session",
        "tensorflow",
        "tuner",
    }
)
_HOMES = {
    "HyperparameterTuningJobAnalytics": "analytics",
    "InstanceGroup": "instance_group",
    "Session": "session",
    "TrainingInput": "inputs",
    "TrainingJobAnalytics": "analytics",
    "get_execution_role": "session",
    "s3_input": "inputs",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f"trainyard.{name}")
    if name in _HOMES:
        return getattr(import_module(f"trainyard.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'trainyard' has no attribute '{name}'")
