"""Hooks that modules may carry away: a copy or a saved model has them too, but there they do nothing."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

# Takes any arguments, returns None, and can be unpickled by a Python that knows neither torch nor us.
_NOTHING: Callable[..., None] = nullcontext().__exit__


class Inert:
    """What is called for a module, and replaced by nothing in a pickle or a deep copy of that module.

    A model saved whole (`torch.save(model)`), copied (for a moving average) or sent to another process must stay what
    it is, and must load where Trainyard is not installed.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (nullcontext(), "__exit__")

    def __deepcopy__(self, memo: dict[int, Any]) -> Callable[..., None]:
        return _NOTHING
