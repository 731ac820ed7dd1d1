"""What the hook asks of others, and what it offers those who know a framework.

A framework's adapter (torch, XGBoost, JAX, Keras) knows when a step begins and ends and which named arrays it has; the
recording knows all else: what is to be saved, statistics, the queue and the thread that writes, rules, the budget.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from numpy.typing import ArrayLike

from trainyard.formats.tensors.contract import Kind, Mode, Probe, StepSubscriber

Tell = Callable[[str, Mapping[str, Any]], None]
"""Tells the agent something: a word of link.told.ToldKind and its payload. Never waits, never raises."""


@dataclass(frozen=True, slots=True)
class Want:
    """Tensors of which somebody wants the statistics of every step, and these numbers of each besides."""

    collections: tuple[str, ...] = ()
    regexes: tuple[str, ...] = ()  # searched anywhere in a name
    probes: tuple[Probe, ...] = ()


class StepObserver(Protocol):
    """Sees the steps of a torch training as they happen, on the thread that trains: what a flight recorder needs.

    Whatever it raises ends its observing and is noted; the training goes on. Its time counts against the budget. A step
    that `begin_step` opened is ended by `end_step` or, when the program ended first, by nothing. `batch` and `loss`
    come once for each forward and each loss between them, several times where gradients are accumulated.
    """

    def begin_step(self, number: int, *, mode: Mode, models: Sequence[Any], optimizers: Sequence[Any]) -> None:
        """A step begins: nothing of it has run, so that weights, state and random numbers are those it starts from.

        `models` and `optimizers` are those that are known by then, in the order in which they were made.
        """

    def batch(self, model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """A model is about to be called with this; the objects are the program's own, to be copied and not changed."""

    def loss(self, name: str, value: Any) -> None:
        """A loss was computed: a tensor without its graph."""

    def end_step(self, number: int) -> None:
        """The optimizer has stepped, or the forward of an evaluation is over."""


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a worker had come when its training was interrupted, which goes on from there in another process."""

    steps: int  # of all modes
    mode_steps: Mapping[Mode, int]


@dataclass(frozen=True, slots=True)
class Audience:
    """Who follows a recording besides the files: rules and recorders, and the agent that is told."""

    subscribers: Sequence[StepSubscriber] = ()
    wants: Sequence[Want] = ()
    observers: Sequence[StepObserver] = ()
    tell: Tell | None = None
    reached: Mapping[str, Reached] = field(default_factory=dict)  # by the worker's name; empty in a first attempt
    needs_all_workers: bool = False  # whether every rank has to write, whatever the configuration says


class StepRecording(Protocol):
    """What an adapter tells of a framework's steps. One thread at a time calls it; nothing of it raises.

    recording.begin(Mode.TRAIN)
    if recording.is_wanted("predictions", Kind.OUTPUT):
        recording.give("predictions", predictions, kind=Kind.OUTPUT)
    recording.give_scalar("train-rmse", 0.31, kind=Kind.LOSS)
    recording.finish()
    """

    def begin(self, mode: Mode) -> None:
        """A step begins; one that was open is finished."""

    def is_wanted(self, name: str, kind: Kind) -> bool:
        """Whether anything of this tensor is taken in the open step: an adapter makes nothing that is not."""

    def give(self, name: str, value: ArrayLike, *, kind: Kind = Kind.CUSTOM, module: str = "") -> None:
        """A tensor of the open step, at once reduced and, where it is to be saved, copied."""

    def give_scalar(self, name: str, value: float, *, kind: Kind = Kind.SCALAR) -> None:
        """A number of the open step, which is always taken."""

    def finish(self) -> None:
        """The step is over; its numbers go to the writer."""

    def close(self) -> None:
        """No step comes any more: what waits is written, and the end is marked. Waits for that a few seconds."""
