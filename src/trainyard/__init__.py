"""A managed training service on machines you own, speaking the Amazon SageMaker API."""

from importlib import import_module
from typing import TYPE_CHECKING

from trainyard.foundation.later_modules import install_finder, refusal_of

if TYPE_CHECKING:
    from trainyard import (
        analytics,
        debugger,
        estimator,
        experiments,
        huggingface,
        image_uris,
        inputs,
        instance_group,
        lineage,
        local,
        model,
        network,
        parameter,
        processing,
        profiler,
        pytorch,
        remote_function,
        s3,
        session,
        sklearn,
        tensorflow,
        tuner,
        utils,
        xgboost,
    )
    from trainyard.analytics import HyperparameterTuningJobAnalytics, TrainingJobAnalytics
    from trainyard.debugger import Profiler, ProfilerConfig
    from trainyard.inputs import TrainingInput, s3_input
    from trainyard.instance_group import InstanceGroup
    from trainyard.session import Session, get_execution_role

__version__ = "0.1.0"

__all__ = [
    "HyperparameterTuningJobAnalytics",
    "InstanceGroup",
    "Profiler",
    "ProfilerConfig",
    "Session",
    "TrainingInput",
    "TrainingJobAnalytics",
    "__version__",
    "analytics",
    "debugger",
    "estimator",
    "experiments",
    "get_execution_role",
    "huggingface",
    "image_uris",
    "inputs",
    "instance_group",
    "lineage",
    "local",
    "model",
    "network",
    "parameter",
    "processing",
    "profiler",
    "pytorch",
    "remote_function",
    "s3",
    "s3_input",
    "session",
    "sklearn",
    "tensorflow",
    "tuner",
    "utils",
    "xgboost",
]

# Imported when first used: everyone imports the package, and few need all of it.
_MODULES = frozenset(
    {
        "analytics",
        "debugger",
        "estimator",
        "experiments",
        "huggingface",
        "image_uris",
        "inputs",
        "instance_group",
        "lineage",
        "local",
        "model",
        "network",
        "parameter",
        "processing",
        "profiler",
        "pytorch",
        "remote_function",
        "s3",
        "session",
        "sklearn",
        "tensorflow",
        "tuner",
        "utils",
        "xgboost",
    }
)
_HOMES = {
    "HyperparameterTuningJobAnalytics": "analytics",
    "InstanceGroup": "instance_group",
    "Profiler": "debugger",
    "ProfilerConfig": "debugger",
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
    if refusal := refusal_of(name):
        raise AttributeError(refusal)
    raise AttributeError(f"module 'trainyard' has no attribute '{name}'")


# `import trainyard.automl` never reaches `__getattr__`.
install_finder()
