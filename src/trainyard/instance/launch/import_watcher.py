"""Waits in a job's Python until a framework is imported, and then attaches what captures tensors and times steps.

The hook comes from the agent's version of this package. If the program's environment has the same version, both share
it. If it has another, the program keeps its own, and the hook is imported under a second name. If the hook cannot be
imported, a note on the job says why, and the program runs without it.
"""

import builtins
import importlib
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from types import MappingProxyType, ModuleType
from typing import Any

# Environment variables. The process's /opt/ml, if tensors are captured or steps are timed:
HOOK = "TRAINYARD_HOOK"
# The folder in which it sees the agent's version of this package:
PACKAGE = "TRAINYARD_PACKAGE"
# Its number among all workers and how many there are, if no launcher gives it a rank:
WORKER, WORKERS = "TRAINYARD_WORKER", "TRAINYARD_WORKERS"
# The step to replay, set by the job:
REPLAY = "TRAINYARD_REPLAY"
# How much memory the flight recorder may use:
RECORD_BYTES = "TRAINYARD_RECORD_BYTES"

_FRAMEWORKS = frozenset({"torch", "xgboost", "jax", "keras"})
_ATTACHMENT = "instance.rule_evaluation.hook_attachment"
_PROFILER = "instance.hook.profiling.attachment"
# Present if tensors are captured, and if steps are timed; these are the paths of link/event_protocol.py.
_HOOK_CONFIG = "input/config/debughookconfig.json"
_PROFILER_CONFIG = "input/config/profilerconfig.json"
_NAME = "trainyard"
_OTHER_NAME = "trainyard_of_agent"
_OLDEST_PYTHON = (3, 11)
_VERSION = "__version__ = "
_STAND_INS = "instance/compat"


def attach_on_import(environment: Mapping[str, str], loaded: Mapping[str, ModuleType] = MappingProxyType({})) -> None:
    """Attach the hook to each framework as soon as it is imported, and at once to those that already are.

    `environment` is that of the process, which the program may still change. `loaded` are modules of the agent's
    version that are in memory although the program has not imported them.
    """
    if not environment.get(HOOK):
        return
    present = sorted(_FRAMEWORKS & sys.modules.keys())
    if present and _package_name(environment[PACKAGE]) == _NAME:
        _restore_modules(loaded, environment[PACKAGE])
    for framework in present:
        _attach(framework, environment)
    sys.meta_path.insert(0, _ImportWatcher(_FRAMEWORKS.difference(present), environment))


class _ImportWatcher:
    """A finder that leaves finding to the others, and attaches the hook after a framework was imported."""

    def __init__(self, awaited: frozenset[str], environment: Mapping[str, str]) -> None:
        self._awaited = set(awaited)
        self._environment = environment

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        if name not in self._awaited:
            return None
        self._awaited.discard(name)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            _attach_after(spec.loader, name, self._environment)
        return spec


def _attach_after(loader: Any, name: str, environment: Mapping[str, str]) -> None:
    execute = loader.exec_module

    def execute_and_attach(module: ModuleType) -> None:
        del loader.exec_module
        execute(module)
        _attach(name, environment)

    loader.exec_module = execute_and_attach


def _attach(framework: str, environment: Mapping[str, str]) -> None:
    ml = environment[HOOK]
    if os.path.exists(f"{ml}/{_HOOK_CONFIG}"):
        _attach_capture(framework, environment)
    if os.path.exists(f"{ml}/{_PROFILER_CONFIG}"):
        _attach_profiler(framework, environment)


def _attach_profiler(framework: str, environment: Mapping[str, str]) -> None:
    """Time the steps of the program, which nobody has asked for: what cannot be timed is no news."""
    if sys.version_info < _OLDEST_PYTHON:
        return
    with suppress(Exception):
        import pathlib

        module: Any = importlib.import_module(f"{_package_name(environment[PACKAGE])}.{_PROFILER}")
        module.attach_profiler(
            framework,
            pathlib.Path(environment[HOOK]),
            environment,
            note=lambda text: _send_note(text, environment),
        )


def _attach_capture(framework: str, environment: Mapping[str, str]) -> None:
    """Attach the hook that captures tensors. No error may reach the program."""
    try:
        if sys.version_info < _OLDEST_PYTHON:
            oldest = ".".join(map(str, _OLDEST_PYTHON))
            raise RuntimeError(f"the hook needs Python {oldest} or later, this is {sys.version.split()[0]}")
        import pathlib

        module: Any = importlib.import_module(f"{_package_name(environment[PACKAGE])}.{_ATTACHMENT}")
        module.attach_hook(framework, pathlib.Path(environment[HOOK]), environment)
    except Exception as error:
        why = str(error) or type(error).__name__
        if isinstance(error, ModuleNotFoundError) and error.name == "numpy":
            why = f"numpy is not installed for {sys.executable}; install it there, or name it in requirements.txt"
        _send_note(f"The tensors of the program are not captured: {why}.", environment)


def _package_name(folder: str) -> str:
    """Make the agent's version of this package importable, and return the name under which it is."""
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
        sys.meta_path.insert(0, _RenamingFinder(folder))
    return _OTHER_NAME


def _restore_modules(loaded: Mapping[str, ModuleType], folder: str) -> None:
    """Give the program these modules as if it had imported them from a folder."""
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
    assert spec is not None, "a package in a folder has a spec"
    assert loader is not None, "a package in a folder has a loader"
    module = sys.modules[name] = module_from_spec(spec)
    loader.exec_module(module)


def _version(folder: str) -> str:
    try:
        with open(f"{folder}/__init__.py", encoding="utf-8") as file:
            return next((line for line in file if line.startswith(_VERSION)), "")
    except OSError:
        return ""


class _RenamingFinder:
    """Imports the package in a folder under another name, which its modules also use to import each other."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        if name.partition(".")[0] != _OTHER_NAME:
            return None
        path = os.path.join(self._folder, *name.split(".")[1:])
        if os.path.isfile(f"{path}/__init__.py"):
            file, inside = f"{path}/__init__.py", [path]
        elif os.path.isfile(f"{path}.py"):
            file, inside = f"{path}.py", None
        else:
            return None
        loader = _RenamingLoader(name, file)
        return spec_from_file_location(name, file, loader=loader, submodule_search_locations=inside)


class _RenamingLoader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        """Execute the module with its own `__import__`, which its functions use too, through the module's builtins."""
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": _import}
        super().exec_module(module)


def _import(name: str, *arguments: Any, **named: Any) -> Any:
    first, dot, rest = name.partition(".")
    return builtins.__import__(f"{_OTHER_NAME}{dot}{rest}" if first == _NAME else name, *arguments, **named)


def _send_note(text: str, environment: Mapping[str, str]) -> None:
    """Send the agent a note with only the standard library, since our own client may be what cannot be imported."""
    import json
    import socket

    try:
        folder = os.open(f"{environment[HOOK]}/.trainyard", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(1.0)
                connection.connect(f"/proc/self/fd/{folder}/told")
                connection.sendall(json.dumps({"kind": "note", "payload": {"text": text}}).encode() + b"\n")
        finally:
            os.close(folder)
    except OSError:
        # Nobody listens.
        return
