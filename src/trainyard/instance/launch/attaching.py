"""Waits in a Python of a job for a framework that trains, and then has the tensors of the program captured.

The hook is of the agent's version of this package. A program whose environment has the same version shares it; one that
has another keeps that for itself, and the hook is imported by another name beside it. Where the hook cannot be had, a
note of the job says why, and the program runs as if there were none.
"""

import builtins
import importlib
import os
import sys
from collections.abc import Mapping
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from types import MappingProxyType, ModuleType
from typing import Any

HOOK = "TRAINYARD_HOOK"  # names the process's /opt/ml, where tensors are captured
PACKAGE = "TRAINYARD_PACKAGE"  # and this one the folder in which it sees the agent's version of this package
WORKER, WORKERS = "TRAINYARD_WORKER", "TRAINYARD_WORKERS"  # its number of how many, where no launcher gives it a rank
REPLAY = "TRAINYARD_REPLAY"  # of a job's environment: the step that is to be run again
RECORD_BYTES = "TRAINYARD_RECORD_BYTES"  # of memory that its flight recorder may take

_FRAMEWORKS = frozenset({"torch", "xgboost", "jax", "keras"})
_ATTACHMENT = "instance.judge.attachment"
_NAME = "trainyard"
_OTHER_NAME = "trainyard_of_agent"
_OLDEST = (3, 11)
_VERSION = "__version__ = "
_STAND_INS = "instance/compat"


def attach_on_import(loaded: Mapping[str, ModuleType] = MappingProxyType({})) -> None:
    """From now on, attach to each framework as soon as it is there; to one that is there already at once.

    `loaded` are modules of the agent's version that this process has, though the program has not imported them.
    """
    if not os.environ.get(HOOK):
        return
    there = sorted(_FRAMEWORKS & sys.modules.keys())
    if there and _package_name(os.environ[PACKAGE]) == _NAME:
        _bring_back(loaded, os.environ[PACKAGE])
    for framework in there:
        _attach(framework)
    sys.meta_path.insert(0, _Waiting(_FRAMEWORKS.difference(there)))


class _Waiting:
    """Finds nothing itself, but looks on when one of these is imported."""

    def __init__(self, awaited: frozenset[str]) -> None:
        self._awaited = set(awaited)

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        if name not in self._awaited:
            return None
        self._awaited.discard(name)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            _follow(spec.loader, name)
        return spec


def _follow(loader: Any, name: str) -> None:
    execute = loader.exec_module

    def execute_and_attach(module: ModuleType) -> None:
        del loader.exec_module
        execute(module)
        _attach(name)

    loader.exec_module = execute_and_attach


def _attach(framework: str) -> None:
    """Whatever goes wrong here must not reach the program."""
    try:
        if sys.version_info < _OLDEST:
            raise RuntimeError(f"that takes Python {_OLDEST[0]}.{_OLDEST[1]}, and this is {sys.version.split()[0]}")
        import pathlib

        module: Any = importlib.import_module(f"{_package_name(os.environ[PACKAGE])}.{_ATTACHMENT}")
        module.attach_to(framework, pathlib.Path(os.environ[HOOK]))
    except Exception as error:
        _note(f"The tensors of the program are not captured: {error or type(error).__name__}.")


def _package_name(folder: str) -> str:
    """By which name the agent's version of this package can be imported here, from now on."""
    present = sys.modules.get(_NAME)
    if present is not None and getattr(present, "__file__", None):
        found = os.path.dirname(str(present.__file__))
    else:
        others = [entry for entry in sys.path if not entry.endswith(f"/{_STAND_INS}")]
        spec = PathFinder.find_spec(_NAME, others)
        found = os.path.dirname(spec.origin) if spec is not None and spec.origin else ""
    if not found:
        _load(_NAME, folder)
        return _NAME
    if _version(found) == _version(folder):
        return _NAME
    if _OTHER_NAME not in sys.modules:
        sys.meta_path.insert(0, _Renaming(folder))
    return _OTHER_NAME


def _bring_back(loaded: Mapping[str, ModuleType], folder: str) -> None:
    """Let the program have modules as if it had imported them from a folder."""
    root = importlib.import_module(_NAME)
    for name, module in loaded.items():
        if name == _NAME or name in sys.modules:
            continue
        sys.modules[name] = module
        if hasattr(module, "__path__"):
            module.__path__ = [os.path.join(folder, *name.split(".")[1:])]
        if name.count(".") == 1:
            setattr(root, name.partition(".")[2], module)


def _load(name: str, folder: str) -> None:
    spec = spec_from_file_location(name, f"{folder}/__init__.py", submodule_search_locations=[folder])
    loader = spec.loader if spec is not None else None
    assert spec is not None, "a package that lies in a folder can be loaded"
    assert loader is not None, "and knows how"
    module = sys.modules[name] = module_from_spec(spec)
    loader.exec_module(module)


def _version(folder: str) -> str:
    try:
        with open(f"{folder}/__init__.py", encoding="utf-8") as file:
            return next((line for line in file if line.startswith(_VERSION)), "")
    except OSError:
        return ""


class _Renaming:
    """Imports the package in a folder by another name, by which its modules then know each other as well."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        if name.partition(".")[0] != _OTHER_NAME:
            return None
        place = os.path.join(self._folder, *name.split(".")[1:])
        if os.path.isfile(f"{place}/__init__.py"):
            file, inside = f"{place}/__init__.py", [place]
        elif os.path.isfile(f"{place}.py"):
            file, inside = f"{place}.py", None
        else:
            return None
        return spec_from_file_location(name, file, loader=_Renamed(name, file), submodule_search_locations=inside)


class _Renamed(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        """With an `import` of its own, which functions of the module use too: they have the module's builtins."""
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": _import}
        super().exec_module(module)


def _import(name: str, *arguments: Any, **named: Any) -> Any:
    first, dot, rest = name.partition(".")
    return builtins.__import__(f"{_OTHER_NAME}{dot}{rest}" if first == _NAME else name, *arguments, **named)


def _note(text: str) -> None:
    """Tell the agent with nothing but the standard library: what could do better may be what is missing."""
    import json
    import socket

    try:
        folder = os.open(f"{os.environ[HOOK]}/.trainyard", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(1.0)
                connection.connect(f"/proc/self/fd/{folder}/told")
                connection.sendall(json.dumps({"kind": "note", "payload": {"text": text}}).encode() + b"\n")
        finally:
            os.close(folder)
    except OSError:
        return  # then nobody listens
