"""Runs the microbatches of a step through the stages, with the schedules of torch.distributed.pipelining."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from .microbatch_run import ThreadCoroutine, TorchModes
from .partition_plan import PartitionPlan
from .placement import PIPELINE
from .stages import Stage, make_stages
from .world import ModelParallelWorld

_CPU = torch.device("cpu")
# Kinds of calls whose buffers are kept: training and evaluation, with a last batch or other lengths.
_MAX_PREPARED = 8


@dataclass(frozen=True, slots=True)
class ModelCall:
    """The request of a step that calls the model."""

    arguments: Mapping[str, Any]
    # The arguments that differ from their defaults.
    given: frozenset[str]
    modes: TorchModes

    @property
    def signature(self) -> tuple[Any, ...]:
        """A key: calls with the same signature send the same tensors between the stages."""
        pairs = sorted(self.arguments.items())
        return (self.modes, self.given, *((name, _signature(value)) for name, value in pairs))


@dataclass(frozen=True, slots=True)
class BackwardCall:
    """The request of a step that has its loss."""

    loss: torch.Tensor


def make_call(model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> ModelCall:
    """Return a call of the model, with its arguments by name."""
    signature = inspect.signature(model.forward)
    arguments = signature.bind(*args, **kwargs).arguments
    given = {name for name, value in arguments.items() if value is not signature.parameters[name].default}
    return ModelCall({name: arguments[name] for name in given}, frozenset(given), TorchModes.now())


class Pipeline:
    """The stages of a model, of which this rank runs one."""

    def __init__(self, model: torch.nn.Module, plan: PartitionPlan, world: ModelParallelWorld) -> None:
        self._model = model
        self._plan = plan
        self._world = world
        self._number = world.index(PIPELINE)
        self._stages: dict[tuple[Any, ...], Stage] = {}
        self._prepared: dict[tuple[Any, ...], _PreparedSchedule] = {}

    @property
    def is_last(self) -> bool:
        return self._number == self._plan.count - 1

    def run(
        self, runs: Sequence[ThreadCoroutine], calls: Sequence[ModelCall], *, has_backward: bool, factor: float
    ) -> None:
        """Run the calls of all microbatches, and resume their functions on the last stage with the results.

        Losses are multiplied by `factor`.
        """
        key = (has_backward, self._model.training, len(runs), *calls[0].signature)
        prepared = self._prepared.pop(key, None) or self._prepare(calls, has_backward=has_backward)
        # The most recently used is last.
        self._prepared[key] = prepared
        if len(self._prepared) > _MAX_PREPARED:
            del self._prepared[next(iter(self._prepared))]
        prepared.program.set_calls(runs, calls, factor=factor if has_backward else None)
        try:
            prepared.step(len(runs))
        # torch wraps the stage's own error.
        except RuntimeError as error:
            raise prepared.program.error or error from None
        finally:
            prepared.program.clear()

    def _prepare(self, calls: Sequence[ModelCall], *, has_backward: bool) -> "_PreparedSchedule":
        stage = self._stage(calls[0].given)
        program = _StageModule(stage, is_last=self.is_last)
        program.set_calls([], calls, factor=None)
        received, sent = self._exchange_specs(program)
        pipeline_stage = PipelineStage(
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
        loss = _identity if has_backward else None
        return _PreparedSchedule(
            program, pipeline_stage, kind(pipeline_stage, len(calls), loss_fn=loss, scale_grads=False)
        )

    def _stage(self, given: frozenset[str]) -> Stage:
        key = (self._model.training, given)
        if key not in self._stages:
            self._stages[key] = make_stages(self._model, self._plan, given=given)[self._number]
        return self._stages[key]

    def _exchange_specs(self, program: "_StageModule") -> tuple[list["_TensorSpec"], list["_TensorSpec"]]:
        """Return the tensors that this stage receives and sends. A stage runs once on zeros to learn its outputs."""
        group, ranks = self._world.groups[PIPELINE], self._world.members(PIPELINE)
        received: list[Any] = [[]]
        if self._number > 0:
            dist.recv_object_list(received, src=ranks[self._number - 1], group=group, device=_CPU)
        if self.is_last:
            return received[0], [_TensorSpec((1,), torch.float32, False)]
        sent = program.probe_outputs([each.tensor(self._world.device) for each in received[0]])
        dist.send_object_list([sent], dst=ranks[self._number + 1], group=group, device=_CPU)
        return received[0], sent


class _StageModule(torch.nn.Module):  # type: ignore[misc]  # mypy does not read torch
    """The stage of this rank, which torch's schedules call with the number of a microbatch."""

    def __init__(self, stage: Stage, *, is_last: bool) -> None:
        super().__init__()
        self.graph = stage.module
        self.error: BaseException | None
        self._stage = stage
        self._is_last = is_last
        self.clear()

    def set_calls(self, runs: Sequence[ThreadCoroutine], calls: Sequence[ModelCall], *, factor: float | None) -> None:
        """Set the runs and calls of the microbatches. Without a factor, there is no backward pass."""
        self.error = None
        self._runs = list(runs)
        self._calls = list(calls)
        self._factor = factor

    def clear(self) -> None:
        """Drop the microbatches."""
        self.set_calls([], [], factor=None)

    def forward(self, *received: torch.Tensor, number: torch.Tensor) -> Any:
        try:
            output = self._run_stage(received, int(number))
            return self._resume_run(int(number), output) if self._is_last else self._sendable(output)
        except BaseException as error:
            self.error = error
            raise

    def probe_outputs(self, received: Sequence[torch.Tensor]) -> list["_TensorSpec"]:
        """Return the tensors that it sends, from a run that leaves buffers and random state unchanged."""
        saved = [(buffer, buffer.clone()) for buffer in self.graph.buffers()]
        with torch.random.fork_rng():
            output = self._sendable(self._run_stage(received, 0))
        for buffer, before in saved:
            buffer.copy_(before)
        return [_TensorSpec(tuple(each.shape), each.dtype, each.requires_grad) for each in output]

    def _run_stage(self, received: Sequence[torch.Tensor], number: int) -> Any:
        call = self._calls[number]
        inputs = {name: value for name, value in call.arguments.items() if name in self._stage.inputs}
        with call.modes.set():
            return self.graph(*received, **inputs)

    def _resume_run(self, number: int, output: Any) -> torch.Tensor:
        """Resume the microbatch's function with the output, and return its loss."""
        request = self._runs[number].resume(output)
        if self._factor is None:
            return torch.zeros(1)
        if not isinstance(request, BackwardCall):
            raise RuntimeError(
                "A step called the model in training mode, with gradients, but not model.backward(loss), so the other "
                "partitions wait for a backward pass. Call model.eval() first, or run the step under torch.no_grad()."
            )
        return (request.loss * self._factor).reshape(1)

    def _sendable(self, output: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        for name, value in zip(self._stage.sends, output, strict=True):
            if not isinstance(value, torch.Tensor):
                raise TypeError(
                    f"Two partitions need the value {name}, which is a {type(value).__name__}; only tensors can be "
                    "sent between partitions. Compute it where it is used, or put both uses into one partition."
                )
        return tuple(each.contiguous() for each in output)


@dataclass(frozen=True, slots=True)
class _PreparedSchedule:
    program: _StageModule
    stage: PipelineStage
    schedule: Any

    def step(self, count: int) -> None:
        numbers = torch.arange(count)
        self.schedule.step(number=numbers, target=numbers if self.stage.is_last else None)
        self.stage.clear_runtime_states()


@dataclass(frozen=True, slots=True)
class _TensorSpec:
    """What a stage must know of a tensor to receive it."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    has_gradient: bool

    def tensor(self, device: Any) -> torch.Tensor:
        return torch.zeros(self.shape, dtype=self.dtype, device=device).requires_grad_(self.has_gradient)


def _identity(loss: torch.Tensor, _number: torch.Tensor) -> torch.Tensor:
    return loss


def _signature(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.dtype, value.requires_grad
    if isinstance(value, (list, tuple)):
        return tuple(_signature(each) for each in value)
    return type(value)
