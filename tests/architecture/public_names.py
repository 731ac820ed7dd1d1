"""The public names of the SDK: its modules, and what they export."""

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

SOURCE = Path(__file__).resolve().parents[2] / "src" / "trainyard"

# The modules that users import. Their names are those of the sagemaker SDK, as far as it has them.
MODULES = (
    "analytics",
    "data",
    "debugger",
    "estimator",
    "exceptions",
    "hook",
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
    "parameter_server",
    "profiler",
    "pytorch",
    "remote_function",
    "s3",
    "session",
    "sklearn",
    "tensorflow",
    "trial",
    "tuner",
    "utils",
    "xgboost",
)

# Where the SDK itself is written. `hook`, `parameter_server` and `trial` export classes of other packages, which also
# run inside jobs.
SDK_PACKAGES = (*(f"trainyard.{name}" for name in MODULES), "trainyard._sdk.")

_ARGUMENTS = re.compile(r"^(?P<indent> *)Args:\n(?P<body>(?:\1 +.*\n|\n)*)", re.MULTILINE)


def module_files() -> set[str]:
    """Return the names of the modules directly below the package."""
    return {path.stem for path in SOURCE.glob("*.py")} - {"__init__"}


def exports(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield the functions and classes that a module exports."""
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isroutine(value):
            yield name, value


def public_objects() -> Iterator[tuple[str, Any]]:
    """Yield every public function, class, method and property of the SDK with its dotted name."""
    for module_name in MODULES:
        for name, value in exports(import_module(f"trainyard.{module_name}")):
            if not value.__module__.startswith(SDK_PACKAGES):
                continue
            yield f"{module_name}.{name}", value
            if inspect.isclass(value):
                yield from ((f"{module_name}.{name}.{member}", each) for member, each in _members(value))


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    for name, value in inspect.getmembers_static(kind):
        owner = next((each for each in kind.__mro__ if name in vars(each)), object)
        if name.startswith("_") or not owner.__module__.startswith("trainyard"):
            continue
        if isinstance(value, classmethod | staticmethod):
            value = value.__func__
        if inspect.isfunction(value) or isinstance(value, property):
            yield name, getattr(kind, name) if isinstance(value, property) else value


def documented_arguments(value: Any) -> set[str]:
    """Return the arguments that a docstring describes; for a class, also those that its bases describe."""
    texts = [inspect.getdoc(each) or "" for each in inspect.getmro(value)] if inspect.isclass(value) else [_doc(value)]
    return {name for text in texts for name in _argument_names(text)}


def arguments(value: Any) -> set[str]:
    """Return the arguments that a user can pass."""
    if isinstance(value, property):
        return set()
    try:
        parameters = inspect.signature(value).parameters.values()
    except ValueError:
        return set()
    names = {each.name for each in parameters if not each.name.startswith("_")}
    return names - {"self", "cls"}


def _doc(value: Any) -> str:
    return inspect.getdoc(value) or ""


def _argument_names(text: str) -> set[str]:
    section = _ARGUMENTS.search(f"{text}\n")
    return set(re.findall(r"^ +\*{0,2}(\w+):", section["body"], re.MULTILINE)) if section else set()
