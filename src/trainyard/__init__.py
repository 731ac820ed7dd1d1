"""A managed training service on machines you own, speaking the Amazon SageMaker API."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainyard import debugger, estimator, image_uris, inputs, instance_group, pytorch, session, tensorflow
    from trainyard.inputs import TrainingInput, s3_input
    from trainyard.instance_group import InstanceGroup
    from trainyard.session import Session, get_execution_role

__version__ = "0.1.0"

__all__ = [
    "InstanceGroup",
    "Session",
    "TrainingInput",
    "__version__",
    "debugger",
    "estimator",
    "get_execution_role",
    "image_uris",
    "inputs",
    "instance_group",
    "pytorch",
    "s3_input",
    "session",
    "tensorflow",
]

# Imported when first used: everyone imports the package, and few need all of it.
_MODULES = frozenset(
    {"debugger", "estimator", "image_uris", "inputs", "instance_group", "pytorch", "session", "tensorflow"}
)
_HOMES = {
    "InstanceGroup": "instance_group",
    "Session": "session",
    "TrainingInput": "inputs",
    "get_execution_role": "session",
    "s3_input": "inputs",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f"trainyard.{name}")
    if name in _HOMES:
        return getattr(import_module(f"trainyard.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'trainyard' has no attribute '{name}'")
