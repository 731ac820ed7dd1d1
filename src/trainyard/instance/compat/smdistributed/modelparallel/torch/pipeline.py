"""Runs the microbatches of a step through the stages, by the schedules of torch.distributed.pipelining."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from .pauses import Modes, Pausable
from .placement import PIPELINE
from .plan import Plan
from .splitting import Stage, stages_of
from .world import World

_CPU = torch.device("cpu")
_MOST_PREPARED = 8  # kinds of calls whose buffers are kept: training and evaluation, with a last batch or other lengths


@dataclass(frozen=True, slots=True)
class ModelCall:
    """What a step asks for when it calls the model."""

    arguments: Mapping[str, Any]
    given: frozenset[str]  # those that are not at their defaults
    modes: Modes

    @property
    def likeness(self) -> tuple[Any, ...]:
        """What calls have in common that the same tensors go between the stages for."""
        pairs = sorted(self.arguments.items())
        return (self.modes, self.given, *((name, _likeness(value)) for name, value in pairs))


@dataclass(frozen=True, slots=True)
class BackwardCall:
    """What a step asks for when it has its loss."""

    loss: torch.Tensor


def call_of(model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> ModelCall:
    """A call of the model, with its arguments by name."""
    signature = inspect.signature(model.forward)
    arguments = signature.bind(*args, **kwargs).arguments
    given = {name for name, value in arguments.items() if value is not signature.parameters[name].default}
    return ModelCall({name: arguments[name] for name in given}, frozenset(given), Modes.now())


class Pipeline:
    """The stages of a model, of which this rank runs one."""

    def __init__(self, model: torch.nn.Module, plan: Plan, world: World) -> None:
        self._model = model
        self._plan = plan
        self._world = world
        self._number = world.index(PIPELINE)
        self._stages: dict[tuple[Any, ...], Stage] = {}
        self._prepared: dict[tuple[Any, ...], _Prepared] = {}

    @property
    def is_last(self) -> bool:
        return self._number == self._plan.count - 1

    def run(self, runs: Sequence[Pausable], calls: Sequence[ModelCall], *, has_backward: bool, factor: float) -> None:
        """Bring the calls of all microbatches to their results, and these to the last stage, whose runs go on.

        Losses are multiplied by the factor.
        """
        key = (has_backward, self._model.training, len(runs), *calls[0].likeness)
        prepared = self._prepared.pop(key, None) or self._prepare(calls, has_backward=has_backward)
        self._prepared[key] = prepared  # as the last of them
        if len(self._prepared) > _MOST_PREPARED:
            del self._prepared[next(iter(self._prepared))]
        prepared.program.take(runs, calls, factor=factor if has_backward else None)
        try:
            prepared.step(len(runs))
        except RuntimeError as error:  # torch wraps what the program raised
            raise prepared.program.error or error from None
        finally:
            prepared.program.clear()

    def _prepare(self, calls: Sequence[ModelCall], *, has_backward: bool) -> "_Prepared":
        stage = self._stage(calls[0].given)
        program = _Program(stage, is_last=self.is_last)
        program.take([], calls, factor=None)
        received, sent = self._exchanged(program)
        made = PipelineStage(
            program,
            self._number,
            self._plan.count,
            self._world.device,
            input_args=tuple(each.tensor("meta") for each in received),
            output_args=tuple(each.tensor("meta") for each in sent),
            group=self._world.groups[PIPELINE],
        )
        is_interleaved = self._world.configuration.pipeline == "interleaved" and len(calls) >= self._plan.count
        kind = Schedule1F1B if is_interleaved and has_backward else ScheduleGPipe
        loss = _same if has_backward else None
        return _Prepared(program, made, kind(made, len(calls), loss_fn=loss, scale_grads=False))

    def _stage(self, given: frozenset[str]) -> Stage:
        key = (self._model.training, given)
        if key not in self._stages:
            self._stages[key] = stages_of(self._model, self._plan, given=given)[self._number]
        return self._stages[key]

    def _exchanged(self, program: "_Program") -> tuple[list["_Tensor"], list["_Tensor"]]:
        """What stages receive and send: each runs once with nothing in it, when it knows what comes."""
        group, ranks = self._world.groups[PIPELINE], self._world.members(PIPELINE)
        received: list[Any] = [[]]
        if self._number > 0:
            dist.recv_object_list(received, src=ranks[self._number - 1], group=group, device=_CPU)
        if self.is_last:
            return received[0], [_Tensor((1,), torch.float32, False)]
        sent = program.tried([each.tensor(self._world.device) for each in received[0]])
        dist.send_object_list([sent], dst=ranks[self._number + 1], group=group, device=_CPU)
        return received[0], sent


class _Program(torch.nn.Module):  # type: ignore[misc]  # mypy does not read torch
    """The stage of this rank, as torch's schedules call it: with the number of a microbatch."""

    def __init__(self, stage: Stage, *, is_last: bool) -> None:
        super().__init__()
        self.graph = stage.module
        self.error: BaseException | None
        self._stage = stage
        self._is_last = is_last
        self.clear()

    def take(self, runs: Sequence[Pausable], calls: Sequence[ModelCall], *, factor: float | None) -> None:
        """What the numbers of microbatches stand for; without a factor, there is no backward pass."""
        self.error = None
        self._runs = list(runs)
        self._calls = list(calls)
        self._factor = factor

    def clear(self) -> None:
        """Hold nothing of the microbatches any more."""
        self.take([], [], factor=None)

    def forward(self, *received: torch.Tensor, number: torch.Tensor) -> Any:
        try:
            output = self._computed(received, int(number))
            return self._went_on(int(number), output) if self._is_last else self._sendable(output)
        except BaseException as error:
            self.error = error
            raise

    def tried(self, received: Sequence[torch.Tensor]) -> list["_Tensor"]:
        """What it sends, found by a run that leaves no trace in buffers or random numbers."""
        kept = [(buffer, buffer.clone()) for buffer in self.graph.buffers()]
        with torch.random.fork_rng():
            output = self._sendable(self._computed(received, 0))
        for buffer, before in kept:
            buffer.copy_(before)
        return [_Tensor(tuple(each.shape), each.dtype, each.requires_grad) for each in output]

    def _computed(self, received: Sequence[torch.Tensor], number: int) -> Any:
        call = self._calls[number]
        inputs = {name: value for name, value in call.arguments.items() if name in self._stage.inputs}
        with call.modes.set():
            return self.graph(*received, **inputs)

    def _went_on(self, number: int, output: Any) -> torch.Tensor:
        """Give the run of the microbatch what it waits for, and get its loss."""
        request = self._runs[number].resume(output)
        if self._factor is None:
            return torch.zeros(1)
        if not isinstance(request, BackwardCall):
            raise RuntimeError(
                "A step called the model in training, with gradients, but not model.backward(loss), so the partitions "
                "cannot agree on what comes next. Call model.eval() before, or run the step under torch.no_grad()."
            )
        return (request.loss * self._factor).reshape(1)

    def _sendable(self, output: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        for name, value in zip(self._stage.sends, output, strict=True):
            if not isinstance(value, torch.Tensor):
                raise TypeError(
                    f"The value {name} is needed in two partitions and is a {type(value).__name__}; only tensors go "
                    "from one to the next. Compute it where it is used, or put both places into one partition."
                )
        return tuple(each.contiguous() for each in output)


@dataclass(frozen=True, slots=True)
class _Prepared:
    program: _Program
    stage: PipelineStage
    schedule: Any

    def step(self, count: int) -> None:
        numbers = torch.arange(count)
        self.schedule.step(number=numbers, target=numbers if self.stage.is_last else None)
        self.stage.clear_runtime_states()


@dataclass(frozen=True, slots=True)
class _Tensor:
    """What a stage must know of a tensor to receive it."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    has_gradient: bool

    def tensor(self, device: Any) -> torch.Tensor:
        return torch.zeros(self.shape, dtype=self.dtype, device=device).requires_grad_(self.has_gradient)


def _same(loss: torch.Tensor, _number: torch.Tensor) -> torch.Tensor:
    return loss


def _likeness(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.dtype, value.requires_grad
    if isinstance(value, (list, tuple)):
        return tuple(_likeness(each) for each in value)
    return type(value)
