"""A model that is split over the ranks."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from . import gradients
from .microbatch_run import current_run
from .parameter_registry import ParameterRegistry, held_tensors, initialize_tensors, release_tensors
from .partition_plan import make_plan
from .pipeline import BackwardCall, Pipeline, make_call
from .placement import DATA, PIPELINE, REDUCED_DATA
from .shards import is_shard, like, local, split_layers, whole
from .stages import all_tensors, find_holders, make_stages
from .world import ModelParallelWorld, world

PARTIAL = "_smp_is_partial"


class LoadResult(NamedTuple):
    """The keys that `load_state_dict` found missing or unexpected."""

    missing_keys: list[str]
    unexpected_keys: list[str]


class DistributedModel(torch.nn.Module):  # type: ignore[misc]  # mypy does not read torch
    """Splits a model in place: its stages over the ranks of a pipeline, its marked layers over tensor parallel ranks.

    Call it, and its `backward`, in a function that `smp.step` decorates; without a pipeline, anywhere. Afterwards the
    gradients are those of the mean loss over all microbatches and data parallel ranks. Options for how the library
    measures a model or overlaps messages have no effect.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        trace_device: str = "gpu",  # noqa: ARG002
        *,
        average_grads_across_microbatches: bool = True,
        **_options: Any,
    ) -> None:
        super().__init__()
        if current_model() is not None:
            raise RuntimeError("A script can have only one smp.DistributedModel, and there already is one.")
        self.module = module
        self.registry = ParameterRegistry()
        self._world = world()
        self._averages = average_grads_across_microbatches
        self.order = [name for name, _ in all_tensors(module)]
        self._saved = list(module.state_dict(keep_vars=True))
        self.pipeline: Pipeline | None = None
        self._optimizer: Any = None
        self._optimizer_state: Mapping[str, Any] | None = None
        self._split()
        _set_current(self)

    @property
    def partitioned(self) -> bool:
        """True: a model is split when it is wrapped."""
        return True

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        run = current_run()
        if self.pipeline is None:
            return self.module(*args, **kwargs)
        if run is None:
            raise RuntimeError(
                "A model in several partitions can only be called in a function that smp.step decorates."
            )
        return run.request(make_call(self.module, args, kwargs))

    def backward(self, tensors: Any, grad_tensors: Any = None) -> None:
        """Run the backward pass, like `loss.backward()` for a model that is not split."""
        run = current_run()
        loss = _as_loss(tensors, grad_tensors)
        if run is None:
            if self.pipeline is not None:
                raise RuntimeError("model.backward can only be called in a function that smp.step decorates.")
            with self.new_gradients():
                loss.backward()
                self.after_backward()
            return
        if self.pipeline is not None:
            run.request(BackwardCall(loss))
            return
        run.has_backward = True
        (loss * self.factor(run.count)).backward()

    def factor(self, count: int) -> float:
        """Return the weight of a microbatch's loss."""
        return 1 / count if self._averages else 1.0

    def after_backward(self) -> None:
        """Combine the gradients of all ranks, after all microbatches of a step."""
        if self._tied:
            own = dict(self.module.named_parameters(remove_duplicate=False))
            mine = [own[name] if name in self._held else None for name in self._tied]
            gradients.sum_tied(mine, self._world, likes=[own[name] for name in self._tied])
        gradients.average(list(self.local_parameters()), self._world)

    @contextmanager
    def new_gradients(self) -> Iterator[None]:
        """Set aside the gradients that are summed over ranks, and add them back afterwards."""
        tied = [each for name, each in self.local_named_parameters() if name in self._tied or is_shard(each)]
        before = {each: each.grad for each in tied if each.grad is not None}
        for each in before:
            each.grad = None
        yield
        for each, old in before.items():
            each.grad = old if each.grad is None else old.add_(each.grad)

    def set_optimizer(self, optimizer: Any) -> None:
        """Set the optimizer of this model, and load the state that a checkpoint had for it."""
        self._optimizer = optimizer
        if self._optimizer_state is not None:
            optimizer.load_state_dict(self._optimizer_state)
            self._optimizer_state = None

    def load_optimizer_state(self, state: Mapping[str, Any]) -> None:
        """Load a state into the optimizer, now or once there is one."""
        if self._optimizer is None:
            self._optimizer_state = state
        else:
            self._optimizer.load_state_dict(state)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """Yield the parameters that this rank holds, under their names in the model."""
        del args, kwargs
        yield from self.local_named_parameters()

    def parameters(self, recurse: bool = True) -> Iterator[torch.nn.Parameter]:  # noqa: ARG002
        """Yield the parameters that this rank holds."""
        yield from self.local_parameters()

    def local_named_parameters(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """Yield the parameters that this rank holds, with their names."""
        names = {name for name, _ in self.module.named_parameters(remove_duplicate=False)}
        yield from held_tensors(self.module, self._held & names)

    def local_parameters(self) -> Iterator[torch.nn.Parameter]:
        """Yield the parameters that this rank holds."""
        yield from (each for _, each in self.local_named_parameters())

    def local_named_buffers(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the buffers that this rank holds, with their names."""
        names = {name for name, _ in self.module.named_buffers(remove_duplicate=False)}
        yield from held_tensors(self.module, self._held & names)

    def local_buffers(self) -> Iterator[torch.Tensor]:
        """Yield the buffers that this rank holds."""
        yield from (each for _, each in self.local_named_buffers())

    def local_named_modules(self) -> Iterator[tuple[str, torch.nn.Module]]:
        """Yield the modules that this rank holds completely."""
        for name, module in self.module.named_modules():
            inner = {f"{name}.{each}" if name else each for each, _ in all_tensors(module)}
            if inner <= self._held:
                yield name, module

    def local_modules(self) -> Iterator[torch.nn.Module]:
        """Yield the modules that this rank holds completely."""
        yield from (each for _, each in self.local_named_modules())

    def distributed_modules(self) -> Iterator[torch.nn.Module]:
        """Yield the modules that are split over tensor parallel ranks."""
        yield from self._split_modules

    def is_distributed_parameter(self, param: torch.nn.Parameter) -> bool:
        """Whether this rank has only a part of a parameter."""
        return is_shard(param)

    def register_post_partition_hook(self, hook: Callable[[torch.nn.Module, Any], Any]) -> None:
        """Call the hook now: a model is split when it is wrapped."""
        hook(self, None)

    def local_state_dict(self, *_args: Any, **_options: Any) -> dict[str, Any]:
        """Return the part of the state that this rank holds."""
        return {name: local(each.detach()) for name, each in self._saved_tensors()} | {PARTIAL: True}

    def state_dict(self, *_args: Any, **_options: Any) -> dict[str, Any]:
        """Return the state of the whole model, as if it were not split. All ranks that share the model call this."""
        own = {name: whole(each.detach()).cpu() for name, each in self._saved_tensors()}
        states: list[Any] = [None] * self._world.length(PIPELINE)
        dist.all_gather_object(states, own, group=self._world.groups[PIPELINE])
        merged = {name: value for each in states for name, value in each.items()}
        return {name: merged[name] for name in self._saved}

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, **_options: Any) -> LoadResult:
        """Load this rank's part of a whole state, or the part that it saved itself."""
        is_partial = bool(state_dict.get(PARTIAL))
        own = dict(self._saved_tensors())
        missing = [name for name in own if name not in state_dict]
        known = own.keys() if is_partial else set(self._saved)
        unexpected = [name for name in state_dict if name not in known and name != PARTIAL]
        if strict and (missing or unexpected):
            raise RuntimeError(f"The state does not fit the model: missing {missing}, unexpected {unexpected}.")
        with torch.no_grad():
            for name in own.keys() & state_dict.keys():
                own[name].copy_(like(own[name], state_dict[name].to(own[name].device), is_partial=is_partial))
        return LoadResult(missing, unexpected)

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> "DistributedModel":
        """Apply `to`, `half` and the like to what this rank holds."""
        super()._apply(lambda tensor: tensor if tensor.is_meta else fn(tensor), recurse)
        return self

    def _saved_tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        tensors = dict(all_tensors(self.module))
        yield from ((name, tensors[name]) for name in self._saved if name in self._held)

    def _split(self) -> None:
        world, model = self._world, self.module
        holders = self._plan_holders()
        number = world.index(PIPELINE)
        self._held = frozenset(name for name, stages in holders.items() if number in stages)
        self._tied = _tied_parameters(model, holders)
        release_tensors(model, [name for name in self.order if name not in self._held], self.registry)
        initialize_tensors(model, self._held, world.device)
        before = dict(model.named_parameters(remove_duplicate=False))
        self._split_modules = split_layers(model, world)
        self._move(world)
        after = dict(model.named_parameters(remove_duplicate=False))
        for name, old in before.items():
            if after[name] is not old and name in self._held:
                self.registry.replace(old, after[name])
        self.registry.names |= {id(each): name for name, each in reversed(after.items()) if name in self._held}
        self._broadcast_weights()

    def _plan_holders(self) -> dict[str, frozenset[int]]:
        count = self._world.configuration.pipeline_degree
        if count == 1:
            return {name: frozenset({0}) for name in self.order}
        plan = make_plan(self.module, self._world.configuration)
        stages = make_stages(self.module, plan, given=())
        self.pipeline = Pipeline(self.module, plan, self._world)
        return find_holders(self.module, stages, default=plan.default)

    def _move(self, world: ModelParallelWorld) -> None:
        """Move what this rank holds to its device."""
        for name, tensor in all_tensors(self.module):
            if name in self._held and tensor.device != world.device:
                tensor.data = tensor.data.to(world.device)

    def _broadcast_weights(self) -> None:
        """Make the weights equal on all ranks that hold them."""
        own = dict(held_tensors(self.module, self._held))
        gradients.broadcast_in_group([each for each in own.values() if not is_shard(each)], self._world, kind=DATA)
        gradients.broadcast_in_group([each for each in own.values() if is_shard(each)], self._world, kind=REDUCED_DATA)
        tensors = dict(all_tensors(self.module))
        for name in self._tied:
            value = tensors[name] if name in self._held else torch.empty_like(tensors[name], device=self._world.device)
            gradients.broadcast_from_stage(value, self._world, first=self._tied[name])


_current: DistributedModel | None = None


def current_model() -> DistributedModel | None:
    """Return the model of this script."""
    return _current


def forget_model() -> None:
    """Forget the model, so that another can be created."""
    _set_current(None)


def _set_current(model: DistributedModel | None) -> None:
    global _current
    _current = model


def _tied_parameters(model: torch.nn.Module, holders: Mapping[str, frozenset[int]]) -> dict[str, int]:
    """Return the parameters that several stages hold, each by one of its names, with the first of those stages."""
    seen: set[int] = set()
    tied: dict[str, int] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if len(holders[name]) > 1 and id(parameter) not in seen:
            seen.add(id(parameter))
            tied[name] = min(holders[name])
    return tied


def _as_loss(tensors: Any, gradients: Any) -> torch.Tensor:
    """Return a scalar whose gradient is that of the tensors with these gradients."""
    if gradients is None and isinstance(tensors, torch.Tensor):
        return tensors
    pairs: Sequence[tuple[Any, Any]]
    several = tensors if isinstance(tensors, (list, tuple)) else [tensors]
    given = gradients if isinstance(gradients, (list, tuple)) else [gradients] * len(several)
    pairs = list(zip(several, given, strict=True))
    return sum((each if gradient is None else (each * gradient).sum()) for each, gradient in pairs)
