"""Runs the function of a microbatch as a coroutine on its own thread, which pauses where it needs the pipeline."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from typing import Any

import torch


class Abandoned(BaseException):
    """Raised inside a paused function that will not be resumed."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The return value of the function."""

    value: Any


class ThreadCoroutine:
    """Runs a function as a coroutine: either the caller's thread or its own runs, never both.

    In the function, `pause` passes a request to the caller and returns the argument of the next `resume`.
    """

    def __init__(self, function: Callable[[], Any]) -> None:
        self._turn, self._answer = threading.Semaphore(0), threading.Semaphore(0)
        # The last request, or Finished.
        self.last: Any = None
        self._is_over = False
        self._resumed_with: Any = None
        self._error: BaseException | None = None
        context, modes = copy_context(), TorchModes.now()
        target = lambda: context.run(self._run, function, modes)  # noqa: E731
        self._thread = threading.Thread(target=target, name="smp microbatch", daemon=True)
        self._thread.start()

    def resume(self, value: Any = None) -> Any:
        """Run the function to its next pause and return the request, or Finished. Raises what the function raises."""
        self._resumed_with = value
        self._turn.release()
        self._answer.acquire()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return self.last

    def pause(self, request: Any) -> Any:
        """Wait for the caller. Called in the function."""
        self.last = request
        self._answer.release()
        self._turn.acquire()
        if isinstance(self._resumed_with, Abandoned):
            raise self._resumed_with
        return self._resumed_with

    def abandon(self) -> None:
        """End the function where it waits. Has no effect if it has finished."""
        if self._is_over:
            return
        self._resumed_with = Abandoned()
        self._turn.release()
        self._thread.join()

    def _run(self, function: Callable[[], Any], modes: "TorchModes") -> None:
        self._turn.acquire()
        try:
            if not isinstance(self._resumed_with, Abandoned):
                with modes.set():
                    self.last = Finished(function())
        except Abandoned:
            # Nobody waits for a result.
            pass
        except BaseException as error:
            self._error = error
        self._is_over = True
        self._answer.release()


@dataclass(frozen=True, slots=True)
class TorchModes:
    """torch's thread-local modes: whether gradients are recorded, and autocast."""

    has_gradients: bool
    casts: tuple[tuple[str, bool, torch.dtype], ...]
    device: int | None

    @classmethod
    def now(cls) -> "TorchModes":
        """Return the modes of this thread."""
        kinds = ["cpu", "cuda"]
        casts = tuple((kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds)
        device = torch.cuda.current_device() if torch.cuda.is_available() else None
        return cls(torch.is_grad_enabled(), casts, device)

    @contextmanager
    def set(self) -> Iterator[None]:
        """Set the modes on this thread."""
        with ExitStack() as stack:
            stack.enter_context(torch.set_grad_enabled(self.has_gradients))
            for kind, is_on, dtype in self.casts:
                if is_on or torch.is_autocast_enabled(kind):
                    stack.enter_context(torch.autocast(kind, dtype=dtype, enabled=is_on))
            if self.device is not None:
                stack.enter_context(torch.cuda.device(self.device))
            yield


@dataclass(slots=True)
class MicrobatchRun:
    """One of `count` microbatches. In a pipeline, it passes the function's requests to the pipeline."""

    count: int
    coroutine: ThreadCoroutine | None = None
    has_backward: bool = False

    def request(self, request: Any) -> Any:
        assert self.coroutine is not None, "only a pipeline takes requests"
        return self.coroutine.pause(request)


_current: ContextVar[MicrobatchRun | None] = ContextVar("smp_microbatch", default=None)


def current_run() -> MicrobatchRun | None:
    """Return the microbatch that runs now, or None outside of a step."""
    return _current.get()


def run_within(run: MicrobatchRun, function: Callable[[], Any]) -> Any:
    """Call a function as part of a microbatch."""
    token = _current.set(run)
    try:
        return function()
    finally:
        _current.reset(token)
