"""Lets a replacement package defer to the real one."""

import importlib
import sys
import warnings
from types import ModuleType


def real_package(name: str, folder: str) -> ModuleType | None:
    """Import the package of this name from outside `folder`; return None if there is none.

    Called by the replacement while it is being imported. The real package takes its place, and the folder moves to the
    end of the path, after everything in the environment.
    """
    replacement = sys.modules.pop(name)
    while folder in sys.path:
        sys.path.remove(folder)
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        sys.modules[name] = replacement
        return None
    finally:
        sys.path.append(folder)


def working_package(name: str, folder: str) -> ModuleType | None:
    """Like `real_package`, but a package that cannot be imported counts as missing, and a warning says why."""
    replacement = sys.modules[name]
    try:
        return real_package(name, folder)
    # Its modules may raise anything with the versions in the environment.
    except Exception as error:
        for module in [each for each in sys.modules if each == name or each.startswith(f"{name}.")]:
            del sys.modules[module]
        sys.modules[name] = replacement
        warnings.warn(
            f"The package {name} of the environment cannot be imported ({type(error).__name__}: {error}); using "
            "Trainyard's own instead.",
            stacklevel=2,
        )
        return None
