"""Raises an explanation for names of smdebug that are not supported."""

from collections.abc import Callable
from typing import NoReturn

_OWN_FORMAT = "Trainyard stores tensors in its own file format, so there is nothing for it to work on"


def unsupported_names(module: str, *names: str, because: str = _OWN_FORMAT) -> Callable[[str], NoReturn]:
    """Return a module's `__getattr__`, which raises an explanation when one of these names is used."""

    def raise_for(name: str) -> NoReturn:
        if name not in names:
            raise AttributeError(f"module '{module}' has no attribute '{name}'")
        raise NotImplementedError(
            f"Trainyard's smdebug does not support {module}.{name}: {because}. Use smdebug.trials.create_trial to read "
            "what hooks have saved, in Trainyard's layout or smdebug's."
        )

    return raise_for
