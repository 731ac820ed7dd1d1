"""Runs at the start of every Python process of a job.

It lets the agent see where the process hangs, and makes the process exit cleanly. If tensors are captured, it also
attaches the hook when a framework is imported. If the environment has a sitecustomize of its own, it runs that as well.
"""

import os
import sys
from importlib.machinery import PathFinder
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))


def _call(module: str, function: str, *arguments: Any) -> None:
    """Run a function of a module in launch/, by its file: the program's `trainyard` may be another version."""
    source = os.path.join(os.path.dirname(_HERE), "launch", f"{module}.py")
    names: dict[str, Any] = {"__name__": f"trainyard_{module}", "__file__": source}
    with open(source, "rb") as file:
        exec(compile(file.read(), source, "exec"), names)
    names[function](*arguments)


def _boot(module: str) -> list[str]:
    """Return the command that runs the main function of a module of the agent's version of this package."""
    package = os.path.dirname(os.path.dirname(_HERE))
    names: dict[str, Any] = {"__file__": os.path.join(package, "foundation", "interpreter.py")}
    with open(names["__file__"], "rb") as file:
        exec(file.read(), names)
    return [sys.executable, "-I", "-S", "-c", names["boot_code"](module), package]


def _run_next() -> None:
    """Run the sitecustomize that the interpreter would have found without this folder."""
    spec = PathFinder.find_spec(__name__, [entry for entry in sys.path if os.path.abspath(entry) != _HERE])
    if spec is None or spec.loader is None:
        return
    from importlib.util import module_from_spec

    module = sys.modules[__name__] = module_from_spec(spec)
    spec.loader.exec_module(module)


if os.environ.get("TRAINYARD_STACKS"):
    _call("stacks", "dump_stacks_on_signal", os.environ["TRAINYARD_STACKS"])
_call("gloo_exit", "wait_for_gloo_at_exit")
_call("user_packages", "find_user_packages")
if os.environ.get("SM_MASTER_PORT"):
    _call("sdk_drivers", "adapt_driver", os.environ, _boot)
if os.environ.get("TRAINYARD_HOOK"):
    _call("import_watcher", "attach_on_import", os.environ)
_run_next()
