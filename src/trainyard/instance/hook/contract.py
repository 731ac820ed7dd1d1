"""The interfaces of the hook: what it needs from the job, and what it offers to framework adapters.

One tensor passes four stages, each with one name. The hook *attaches* to a framework; an adapter *observes* a tensor;
a reducer *reduces* it to statistics; a recording *writes* the step.

An adapter (torch, XGBoost, JAX, Keras) knows when a step begins and ends and which named arrays it has. The recording
knows the rest: what to save, statistics, the writer's queue and thread, rules, the budget.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from numpy.typing import ArrayLike

from trainyard.formats.tensors.contract import Kind, Mode, Probe, StepSubscriber

SendEvent = Callable[[str, Mapping[str, Any]], None]
"""Sends the agent an event: a link.event_protocol.AgentEventKind and its payload. Never blocks, never raises."""


@dataclass(frozen=True, slots=True)
class TensorRequest:
    """Tensors whose statistics a rule needs at every step, with the probes to measure on each of them."""

    collections: tuple[str, ...] = ()
    # Each one is searched for anywhere in a tensor's name.
    regexes: tuple[str, ...] = ()
    probes: tuple[Probe, ...] = ()


class StepObserver(Protocol):
    """Follows the steps of a torch training as they happen, on the training thread: what a flight recorder needs.

    An observer that raises is noted and removed; the training continues. Its time counts against the budget. A step
    that `begin_step` opened is closed by `end_step`, unless the program ends first. `batch` and `loss` are called once
    for each forward and each loss in between, so several times if gradients are accumulated.
    """

    def begin_step(self, number: int, *, mode: Mode, models: Sequence[Any], optimizers: Sequence[Any]) -> None:
        """Begin a step. None of it has run yet: weights, state and random numbers are those it starts from.

        `models` and `optimizers` are those known by then, in the order of their creation.
        """

    def batch(self, model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Observe the arguments of a model about to be called. They are the program's own: copy, never change them."""

    def loss(self, name: str, value: Any) -> None:
        """Observe a loss, as a tensor detached from its graph."""

    def end_step(self, number: int) -> None:
        """End the step: the optimizer has stepped, or the forward of an evaluation has finished."""


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """How many steps a worker had taken when its training was interrupted; the next attempt counts from there."""

    # All modes together.
    steps: int
    mode_steps: Mapping[Mode, int]


@dataclass(frozen=True, slots=True)
class HookContext:
    """What a job connects to its hook: rules, recorders, the agent, and where an earlier attempt stopped."""

    subscribers: Sequence[StepSubscriber] = ()
    requests: Sequence[TensorRequest] = ()
    observers: Sequence[StepObserver] = ()
    send_event: SendEvent | None = None
    # By the worker's name; empty in a first attempt.
    resume_points: Mapping[str, ResumePoint] = field(default_factory=dict)
    # Makes every rank write, whatever the configuration says.
    needs_all_workers: bool = False


class StepRecording(Protocol):
    """Receives the steps of a framework from its adapter. Called by one thread at a time; never raises.

    recording.begin(Mode.TRAIN)
    if recording.is_wanted("predictions", Kind.OUTPUT):
        recording.observe("predictions", predictions, kind=Kind.OUTPUT)
    recording.observe_scalar("train-rmse", 0.31, kind=Kind.LOSS)
    recording.finish()
    """

    def begin(self, mode: Mode) -> None:
        """Begin a step, after finishing the one that is open."""

    def is_wanted(self, name: str, kind: Kind) -> bool:
        """Whether the open step needs this tensor. An adapter computes only what is wanted."""

    def observe(self, name: str, value: ArrayLike, *, kind: Kind = Kind.CUSTOM, module: str = "") -> None:
        """Observe a tensor of the open step: reduce it at once, and copy it if it is to be saved."""

    def observe_scalar(self, name: str, value: float, *, kind: Kind = Kind.SCALAR) -> None:
        """Observe a number of the open step. Numbers are always recorded."""

    def finish(self) -> None:
        """Finish the open step and hand its numbers to the writer."""

    def close(self) -> None:
        """Write the queued steps and mark the end of the recording. Blocks for a few seconds at most."""
