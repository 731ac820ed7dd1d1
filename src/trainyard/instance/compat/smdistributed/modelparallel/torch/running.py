"""The microbatch whose function runs now."""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from .pauses import Pausable


@dataclass(slots=True)
class MicrobatchRun:
    """One of so many; where there is a pipeline, it asks that for what the function wants of the model."""

    count: int
    pausable: Pausable | None = None
    has_backward: bool = False

    def ask(self, request: Any) -> Any:
        assert self.pausable is not None, "only pipelines are asked"
        return self.pausable.pause(request)


_current: ContextVar[MicrobatchRun | None] = ContextVar("smp_microbatch", default=None)


def current_run() -> MicrobatchRun | None:
    """None outside of a step."""
    return _current.get()


def within(run: MicrobatchRun, function: Callable[[], Any]) -> Any:
    """Call a function as part of that microbatch."""
    token = _current.set(run)
    try:
        return function()
    finally:
        _current.reset(token)
