"""How a stand-in hands over to the package that it stands in for."""

import importlib
import sys
import warnings
from types import ModuleType


def real_package(name: str, folder: str) -> ModuleType | None:
    """The package of this name that lies elsewhere than in `folder`; None when there is none.

    Called by the stand-in that is just being imported. A package that is found takes its place, and the folder goes to
    the end of the path, behind all that the environment has.
    """
    stand_in = sys.modules.pop(name)
    while folder in sys.path:
        sys.path.remove(folder)
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        sys.modules[name] = stand_in
        return None
    finally:
        sys.path.append(folder)


def working_package(name: str, folder: str) -> ModuleType | None:
    """The package as `real_package` finds it; one that cannot be imported counts as none, and a warning says why."""
    stand_in = sys.modules[name]
    try:
        return real_package(name, folder)
    except Exception as error:  # whatever its modules raise on the versions that the environment has
        for module in [each for each in sys.modules if each == name or each.startswith(f"{name}.")]:
            del sys.modules[module]
        sys.modules[name] = stand_in
        warnings.warn(
            f"The package {name} of the environment cannot be imported ({type(error).__name__}: {error}); Trainyard's "
            "own takes its place.",
            stacklevel=2,
        )
        return None
