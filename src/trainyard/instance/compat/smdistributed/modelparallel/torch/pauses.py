"""A function that waits in its middle for what its caller brings, on a thread of its own."""

import contextvars
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch


class Abandoned(BaseException):
    """Raised where a function waits that nobody will go on with."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What the function has returned."""

    value: Any


class Pausable:
    """One run of a function, of which one thread at a time runs a piece: the caller's, or its own.

    In the function, `pause` hands a request to the caller and returns what the next `resume` brings.
    """

    def __init__(self, function: Callable[[], Any]) -> None:
        self._turn, self._answer = threading.Semaphore(0), threading.Semaphore(0)
        self.last: Any = None  # what it asked for last, or Ended
        self._is_over = False
        self._brought: Any = None
        self._error: BaseException | None = None
        context, modes = contextvars.copy_context(), Modes.now()
        target = lambda: context.run(self._run, function, modes)  # noqa: E731
        self._thread = threading.Thread(target=target, name="smp microbatch", daemon=True)
        self._thread.start()

    def resume(self, brought: Any = None) -> Any:
        """Let it run to its next pause, and get what that asks for; or Ended. What it raises is raised here."""
        self._brought = brought
        self._turn.release()
        self._answer.acquire()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return self.last

    def pause(self, request: Any) -> Any:
        """Called in the function: wait for the caller."""
        self.last = request
        self._answer.release()
        self._turn.acquire()
        if isinstance(self._brought, Abandoned):
            raise self._brought
        return self._brought

    def abandon(self) -> None:
        """End it where it waits; one that has ended stays as it is."""
        if self._is_over:
            return
        self._brought = Abandoned()
        self._turn.release()
        self._thread.join()

    def _run(self, function: Callable[[], Any], modes: "Modes") -> None:
        self._turn.acquire()
        try:
            if not isinstance(self._brought, Abandoned):
                with modes.set():
                    self.last = Ended(function())
        except Abandoned:
            pass  # nobody waits for it
        except BaseException as error:
            self._error = error
        self._is_over = True
        self._answer.release()


@dataclass(frozen=True, slots=True)
class Modes:
    """What torch keeps for each thread: whether gradients are kept, and in which types it computes."""

    has_gradients: bool
    casts: tuple[tuple[str, bool, torch.dtype], ...]
    device: int | None

    @classmethod
    def now(cls) -> "Modes":
        """Those of this thread."""
        kinds = ["cpu", "cuda"]
        casts = tuple((kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds)
        device = torch.cuda.current_device() if torch.cuda.is_available() else None
        return cls(torch.is_grad_enabled(), casts, device)

    @contextmanager
    def set(self) -> Iterator[None]:
        """Have them on this thread."""
        with ExitStack() as stack:
            stack.enter_context(torch.set_grad_enabled(self.has_gradients))
            for kind, is_on, dtype in self.casts:
                if is_on or torch.is_autocast_enabled(kind):
                    stack.enter_context(torch.autocast(kind, dtype=dtype, enabled=is_on))
            if self.device is not None:
                stack.enter_context(torch.cuda.device(self.device))
            yield
