"""Times the functions of torch that belong to one phase of a step: collectives, checkpoints, copies to a GPU.

Where there is a GPU, it also times the calls that wait for it, such as `loss.item()`, which no phase shows.

Each is patched once, and calls the original. Programs that imported a function before torch was completely imported
keep the original, which is not timed.
"""

import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch
from torch.compiler import is_compiling

from trainyard.formats.profiles.contract import StepPhase

# What blocks the caller until the other ranks have called it too. Asynchronous calls return at once.
_COLLECTIVES = (
    *("all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_object", "all_to_all", "all_to_all_single"),
    *(
        "barrier",
        "broadcast",
        "broadcast_object_list",
        "gather",
        "gather_object",
        "monitored_barrier",
        "recv",
        "reduce",
    ),
    *("reduce_scatter", "reduce_scatter_tensor", "scatter", "scatter_object_list", "send"),
    # With which DistributedDataParallel synchronizes buffers before a forward.
    "_broadcast_coalesced",
)
# Methods of a tensor that return when the GPU has computed it.
_WAITING = {
    **{name: name for name in ("item", "cpu", "tolist", "nonzero")},
    "__bool__": "bool",
    "__int__": "int",
    "__float__": "float",
    "__repr__": "print",
    "__format__": "format",
}
# Present where NVIDIA's driver is. Asking torch would initialize the driver, and forked processes could not use it.
_DRIVER = Path("/dev/nvidiactl")


class PhaseTimer(Protocol):
    """Receives the phases of the training thread. No method may raise."""

    def is_ours(self) -> bool:
        """Whether the calling thread is the one whose steps are timed."""

    def enter_phase(self, phase: int) -> int:
        """Enter a phase if the calling thread is timed; return when in nanoseconds, or 0 if it is not timed."""

    def leave_phase(self) -> int: ...

    def count_wait(self, name: str, seconds: float) -> None:
        """Count a call in which the training thread waited for the GPU."""


def has_gpu_driver() -> bool:
    return _DRIVER.exists()


def time_calls(timer: PhaseTimer) -> None:
    """Time the calls of this process by `timer` from now on."""
    global _timer
    _timer = timer
    if not _is_patched:
        _is_patched.append(True)
        _patch_all()


def stop_timing(timer: PhaseTimer) -> None:
    global _timer
    if _timer is timer:
        _timer = None


_timer: PhaseTimer | None = None
_is_patched: list[bool] = []


def _patch_all() -> None:
    _patch(torch, "save", StepPhase.CHECKPOINT)
    if torch.distributed.is_available():
        for name in _COLLECTIVES:
            _patch(torch.distributed, name, StepPhase.COMMUNICATION)
        _patch(torch.distributed.Work, "wait", StepPhase.COMMUNICATION)
    if has_gpu_driver():
        torch.Tensor.to = _timed_copy(torch.Tensor.to)
        _patch(torch.Tensor, "cuda", StepPhase.HOST_TO_DEVICE)
        torch.cuda.synchronize = _counted(torch.cuda.synchronize, "synchronize")
        for name, shown in _WAITING.items():
            setattr(torch.Tensor, name, _counted(getattr(torch.Tensor, name), shown))


def _patch(owner: Any, name: str, phase: StepPhase) -> None:
    original = getattr(owner, name, None)
    if original is not None:
        setattr(owner, name, _timed(original, int(phase)))


def _timed(original: Callable[..., Any], phase: int) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        timer = _timer
        if timer is None or is_compiling() or not timer.enter_phase(phase):
            return original(*args, **kwargs)
        try:
            return original(*args, **kwargs)
        finally:
            timer.leave_phase()

    return call


def _timed_copy(original: Callable[..., Any]) -> Callable[..., Any]:
    """Time copies to the GPU, and count those from it; others are conversions, which belong to their phase."""
    copy_to_gpu, copy_from_gpu = _timed(original, int(StepPhase.HOST_TO_DEVICE)), _counted(original, "cpu")

    @functools.wraps(original)
    def copy(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _timer is None or is_compiling():
            return original(self, *args, **kwargs)
        if not self.is_cuda:
            return copy_to_gpu(self, *args, **kwargs)
        target = kwargs.get("device", args[0] if args else None)
        is_from_gpu = isinstance(target, str | torch.device) and torch.device(target).type == "cpu"
        return (copy_from_gpu if is_from_gpu else original)(self, *args, **kwargs)

    return copy


def _counted(original: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Count calls on tensors of a GPU, and how long they took. A call within another one counts as part of that."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        global _is_counting
        timer = _timer
        is_waiting = not args or not isinstance(args[0], torch.Tensor) or args[0].is_cuda
        if timer is None or not is_waiting or _is_counting or is_compiling() or not timer.is_ours():
            return original(*args, **kwargs)
        _is_counting = True
        began = time.perf_counter()
        try:
            return original(*args, **kwargs)
        finally:
            _is_counting = False
            timer.count_wait(name, time.perf_counter() - began)

    return call


# Only the training thread counts.
_is_counting = False
