"""The public modules of the SDK, and the documentation of every public name and argument."""

import enum
import inspect
from importlib import import_module
from typing import Any

from tests.architecture.public_names import MODULES, arguments, documented_arguments, module_files, public_objects


def test_only_the_public_modules_lie_at_the_top() -> None:
    assert module_files() == set(MODULES)


def test_every_public_module_has_a_docstring_and_exports_what_it_lists() -> None:
    modules = [import_module(f"trainyard.{name}") for name in MODULES]
    assert [module.__name__ for module in modules if not module.__doc__] == []
    exported = [(module, name) for module in modules for name in module.__all__]
    assert [f"{module.__name__}.{name}" for module, name in exported if not hasattr(module, name)] == []


def test_every_public_name_has_a_docstring() -> None:
    assert [name for name, value in public_objects() if not inspect.getdoc(value)] == []


def test_every_argument_of_a_public_name_is_described() -> None:
    missing = {
        name: sorted(arguments(value) - documented_arguments(value))
        for name, value in public_objects()
        if not is_value(value)
    }
    assert {name: names for name, names in missing.items() if names} == {}


def is_value(value: Any) -> bool:
    """Whether a name is an enumeration or an error, which users do not construct."""
    return inspect.isclass(value) and issubclass(value, enum.Enum | Exception)
