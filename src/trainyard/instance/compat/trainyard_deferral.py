"""How a stand-in hands over to the package that it stands in for."""

import importlib
import sys
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
