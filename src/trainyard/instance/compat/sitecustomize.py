"""Every Python of a job runs this when it starts: it lets the agent see where the process hangs, and the process end.

Where tensors are captured, it also waits for a framework to be imported.

An environment may have a module of this name itself, which is run as well.
"""

import os
import sys
from importlib.machinery import PathFinder
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))


def _call(module: str, function: str) -> None:
    """Run a module of launch/ of this package by its file, since `trainyard` may be another version for the program."""
    source = os.path.join(os.path.dirname(_HERE), "launch", f"{module}.py")
    names: dict[str, Any] = {"__name__": f"trainyard_{module}", "__file__": source}
    with open(source, "rb") as file:
        exec(compile(file.read(), source, "exec"), names)
    names[function]()


def _run_next() -> None:
    """What the interpreter would have found without this folder."""
    spec = PathFinder.find_spec(__name__, [entry for entry in sys.path if os.path.abspath(entry) != _HERE])
    if spec is None or spec.loader is None:
        return
    from importlib.util import module_from_spec

    module = sys.modules[__name__] = module_from_spec(spec)
    spec.loader.exec_module(module)


if os.environ.get("TRAINYARD_STACKS"):
    _call("stacks", "show_on_signal")
_call("settling", "settle_at_exit")
if os.environ.get("TRAINYARD_HOOK"):
    _call("attaching", "attach_on_import")
_run_next()
