"""A model of which every rank has a part."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from . import gradients
from .holding import Registry, held, initialize, let_go
from .pipeline import BackwardCall, Pipeline, call_of
from .placement import DATA, PIPELINE, REDUCED_DATA
from .plan import plan_for
from .running import current_run
from .shards import is_shard, like, local, split_layers, whole
from .splitting import all_tensors, holders_of, stages_of
from .world import World, world

PARTIAL = "_smp_is_partial"


class Loaded(NamedTuple):
    """What `load_state_dict` found missing, and what was too much."""

    missing_keys: list[str]
    unexpected_keys: list[str]


class DistributedModel(torch.nn.Module):  # type: ignore[misc]  # mypy does not read torch
    """Splits a model, in place: its stages over the ranks of a pipeline, its marked layers over tensor parallel ones.

    It is called, and `backward` is, in a function that `smp.step` decorates; where there is no pipeline, elsewhere too.
    Afterwards the gradients are those of the mean loss of all microbatches and data parallel ranks. Options that say
    how the library measures a model or overlaps messages have no effect.
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
            raise RuntimeError("One model of a script can be a smp.DistributedModel, and there is one already.")
        self.module = module
        self.registry = Registry()
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
        """A model is split when it is wrapped."""
        return True

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        run = current_run()
        if self.pipeline is None:
            return self.module(*args, **kwargs)
        if run is None:
            raise RuntimeError(
                "A model in several partitions can only be called in a function that smp.step decorates."
            )
        return run.ask(call_of(self.module, args, kwargs))

    def backward(self, tensors: Any, grad_tensors: Any = None) -> None:
        """What `loss.backward()` is for a model that is not split."""
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
            run.ask(BackwardCall(loss))
            return
        run.has_backward = True
        (loss * self.factor(run.count)).backward()

    def factor(self, count: int) -> float:
        """What the loss of a microbatch counts for."""
        return 1 / count if self._averages else 1.0

    def after_backward(self) -> None:
        """Called after all microbatches of a step: bring the gradients together."""
        if self._tied:
            own = dict(self.module.named_parameters(remove_duplicate=False))
            mine = [own[name] if name in self._held else None for name in self._tied]
            gradients.sum_tied(mine, self._world, likes=[own[name] for name in self._tied])
        gradients.average(list(self.local_parameters()), self._world)

    @contextmanager
    def new_gradients(self) -> Iterator[None]:
        """Let those be new that are added up over ranks, and add to them afterwards what they were before."""
        tied = [each for name, each in self.local_named_parameters() if name in self._tied or is_shard(each)]
        before = {each: each.grad for each in tied if each.grad is not None}
        for each in before:
            each.grad = None
        yield
        for each, old in before.items():
            each.grad = old if each.grad is None else old.add_(each.grad)

    def take_optimizer(self, optimizer: Any) -> None:
        """Know the optimizer of this model, and give it the state that a checkpoint had for it."""
        self._optimizer = optimizer
        if self._optimizer_state is not None:
            optimizer.load_state_dict(self._optimizer_state)
            self._optimizer_state = None

    def give_optimizer_state(self, state: Mapping[str, Any]) -> None:
        """Load a state into the optimizer, now or when there is one."""
        if self._optimizer is None:
            self._optimizer_state = state
        else:
            self._optimizer.load_state_dict(state)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """Those that this rank holds, under the names that they have in the model."""
        del args, kwargs
        yield from self.local_named_parameters()

    def parameters(self, recurse: bool = True) -> Iterator[torch.nn.Parameter]:  # noqa: ARG002
        """Those that this rank holds."""
        yield from self.local_parameters()

    def local_named_parameters(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """Those that this rank holds."""
        names = {name for name, _ in self.module.named_parameters(remove_duplicate=False)}
        yield from held(self.module, self._held & names)

    def local_parameters(self) -> Iterator[torch.nn.Parameter]:
        """Those that this rank holds."""
        yield from (each for _, each in self.local_named_parameters())

    def local_named_buffers(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Those that this rank holds."""
        names = {name for name, _ in self.module.named_buffers(remove_duplicate=False)}
        yield from held(self.module, self._held & names)

    def local_buffers(self) -> Iterator[torch.Tensor]:
        """Those that this rank holds."""
        yield from (each for _, each in self.local_named_buffers())

    def local_named_modules(self) -> Iterator[tuple[str, torch.nn.Module]]:
        """Those of which this rank holds all."""
        for name, module in self.module.named_modules():
            inner = {f"{name}.{each}" if name else each for each, _ in all_tensors(module)}
            if inner <= self._held:
                yield name, module

    def local_modules(self) -> Iterator[torch.nn.Module]:
        """Those of which this rank holds all."""
        yield from (each for _, each in self.local_named_modules())

    def distributed_modules(self) -> Iterator[torch.nn.Module]:
        """Those that are split over tensor parallel ranks."""
        yield from self._split_modules

    def is_distributed_parameter(self, param: torch.nn.Parameter) -> bool:
        """Whether this rank has only a part of it."""
        return is_shard(param)

    def register_post_partition_hook(self, hook: Callable[[torch.nn.Module, Any], Any]) -> None:
        """Call it now: a model is split when it is wrapped."""
        hook(self, None)

    def local_state_dict(self, *_args: Any, **_options: Any) -> dict[str, Any]:
        """What this rank holds: parts of its stage."""
        return {name: local(each.detach()) for name, each in self._saved_tensors()} | {PARTIAL: True}

    def state_dict(self, *_args: Any, **_options: Any) -> dict[str, Any]:
        """The whole model, as one that was never split has it; all ranks that have one model together call this."""
        own = {name: whole(each.detach()).cpu() for name, each in self._saved_tensors()}
        found: list[Any] = [None] * self._world.length(PIPELINE)
        dist.all_gather_object(found, own, group=self._world.groups[PIPELINE])
        merged = {name: value for each in found for name, value in each.items()}
        return {name: merged[name] for name in self._saved}

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, **_options: Any) -> Loaded:
        """Take what this rank holds of a whole state, or the part that it saved itself."""
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
        return Loaded(missing, unexpected)

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> "DistributedModel":
        """What `to`, `half` and the like do, done to what this rank holds."""
        super()._apply(lambda tensor: tensor if tensor.is_meta else fn(tensor), recurse)
        return self

    def _saved_tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        tensors = dict(all_tensors(self.module))
        yield from ((name, tensors[name]) for name in self._saved if name in self._held)

    def _split(self) -> None:
        found, model = self._world, self.module
        holders = self._planned()
        number = found.index(PIPELINE)
        self._held = frozenset(name for name, stages in holders.items() if number in stages)
        self._tied = _tied(model, holders)
        let_go(model, [name for name in self.order if name not in self._held], self.registry)
        initialize(model, self._held, found.device)
        before = dict(model.named_parameters(remove_duplicate=False))
        self._split_modules = split_layers(model, found)
        self._move(found)
        after = dict(model.named_parameters(remove_duplicate=False))
        for name, old in before.items():
            if after[name] is not old and name in self._held:
                self.registry.replace(old, after[name])
        self.registry.names |= {id(each): name for name, each in reversed(after.items()) if name in self._held}
        self._make_equal()

    def _planned(self) -> dict[str, frozenset[int]]:
        count = self._world.configuration.pipeline_degree
        if count == 1:
            return {name: frozenset({0}) for name in self.order}
        plan = plan_for(self.module, self._world.configuration)
        stages = stages_of(self.module, plan, given=())
        self.pipeline = Pipeline(self.module, plan, self._world)
        return holders_of(self.module, stages, default=plan.default)

    def _move(self, found: World) -> None:
        """Have what is held on the device of this rank."""
        for name, tensor in all_tensors(self.module):
            if name in self._held and tensor.device != found.device:
                tensor.data = tensor.data.to(found.device)

    def _make_equal(self) -> None:
        """Start from the same weights on all ranks that hold them."""
        own = dict(held(self.module, self._held))
        gradients.spread([each for each in own.values() if not is_shard(each)], self._world, kind=DATA)
        gradients.spread([each for each in own.values() if is_shard(each)], self._world, kind=REDUCED_DATA)
        tensors = dict(all_tensors(self.module))
        for name in self._tied:
            value = tensors[name] if name in self._held else torch.empty_like(tensors[name], device=self._world.device)
            gradients.share(value, self._world, first=self._tied[name])


_current: DistributedModel | None = None


def current_model() -> DistributedModel | None:
    """The one of this script."""
    return _current


def forget_model() -> None:
    """Let another be made."""
    _set_current(None)


def _set_current(model: DistributedModel | None) -> None:
    global _current
    _current = model


def _tied(model: torch.nn.Module, holders: Mapping[str, frozenset[int]]) -> dict[str, int]:
    """The parameters that several stages hold, each by one of its names, with the first of those stages."""
    seen: set[int] = set()
    found: dict[str, int] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if len(holders[name]) > 1 and id(parameter) not in seen:
            seen.add(id(parameter))
            found[name] = min(holders[name])
    return found


def _as_loss(tensors: Any, gradients: Any) -> torch.Tensor:
    """One number whose gradient is that of the tensors with these gradients."""
    if gradients is None and isinstance(tensors, torch.Tensor):
        return tensors
    pairs: Sequence[tuple[Any, Any]]
    several = tensors if isinstance(tensors, (list, tuple)) else [tensors]
    given = gradients if isinstance(gradients, (list, tuple)) else [gradients] * len(several)
    pairs = list(zip(several, given, strict=True))
    return sum((each if gradient is None else (each * gradient).sum()) for each, gradient in pairs)
