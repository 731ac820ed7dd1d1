"""How a name says that it is not served here."""

from collections.abc import Callable
from typing import NoReturn

_NEXT = "Trainyard keeps tensors in files of its own kind, so that there is nothing for it to work on"


def not_served(module: str, *names: str, because: str = _NEXT) -> Callable[[str], NoReturn]:
    """What a module has as `__getattr__`, so that these names of the original raise a sentence when they are used."""

    def raise_for(name: str) -> NoReturn:
        if name not in names:
            raise AttributeError(f"module '{module}' has no attribute '{name}'")
        raise NotImplementedError(
            f"{module}.{name} is not served by Trainyard's stand-in: {because}. smdebug.trials.create_trial reads what "
            "hooks have saved, here and in the original's layout."
        )

    return raise_for
