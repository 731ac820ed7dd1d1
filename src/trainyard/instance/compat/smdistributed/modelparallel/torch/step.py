"""`smp.step`: a function that runs once for each microbatch, pipelined over the partitions of the model."""

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch.utils import _pytree as pytree

from .microbatches import Splitting
from .model import DistributedModel, current_model
from .output import StepOutput, merged
from .pauses import Ended, Pausable
from .pipeline import ModelCall
from .placement import PIPELINE
from .running import MicrobatchRun, within
from .world import World, world

_CPU = torch.device("cpu")


def step(
    function: Any = None,
    non_split_inputs: Sequence[str] = (),
    input_split_axes: Mapping[str, int] | None = None,
    detach_outputs: bool = True,
) -> Any:
    """Decorates the forward and backward pass of a batch, or the forward pass alone.

    Tensors among the arguments are split along their first axis, but for those named in `non_split_inputs`, and but for
    other axes in `input_split_axes`. In a pipeline all ranks work on the arguments of its first one, and all get what
    the function returns.
    """
    if function is not None and not callable(function):  # given as the list of what is not split
        function, non_split_inputs = None, function
    splitting = Splitting(tuple(non_split_inputs), dict(input_split_axes or {}))

    def decorate(decorated: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(decorated)
        def run(*args: Any, **kwargs: Any) -> Any:
            return _run(decorated, splitting, args, kwargs, detach=detach_outputs)

        return run

    return decorate if function is None else decorate(function)


def _run(function: Callable[..., Any], splitting: Splitting, args: Any, kwargs: Any, *, detach: bool) -> Any:
    found, model = world(), current_model()
    if model is None or model.pipeline is None:
        return _run_all(function, splitting.split(function, args, kwargs, found.configuration.microbatches), detach)
    args, kwargs = _shared((args, kwargs), found)
    parts = splitting.split(function, args, kwargs, found.configuration.microbatches)
    result = _run_pipelined(function, parts, model, detach)
    return _returned(result, found)


def _run_all(function: Callable[..., Any], parts: Sequence[Any], detach: bool) -> Any:
    """One after another, with the whole model."""
    runs = [MicrobatchRun(len(parts)) for _ in parts]
    pairs = zip(runs, parts, strict=True)
    model = current_model()
    with nullcontext() if model is None else model.new_gradients():
        results = [within(run, functools.partial(function, *part.args, **part.kwargs)) for run, part in pairs]
        if model is not None and any(run.has_backward for run in runs):
            model.after_backward()
    return merged(results, detach=detach)


def _run_pipelined(function: Callable[..., Any], parts: Sequence[Any], model: DistributedModel, detach: bool) -> Any:
    """Let all functions run to their call of the model; on the last stage they go on from there to their ends."""
    assert model.pipeline is not None, "the caller has asked"
    runs = [_started(function, part, len(parts)) for part in parts]
    try:
        calls = [_asked(run) for run in runs]
        has_backward = model.training and torch.is_grad_enabled()
        with model.new_gradients():
            model.pipeline.run(runs, calls, has_backward=has_backward, factor=model.factor(len(parts)))
            if has_backward:
                model.after_backward()
        return merged([_ended(run) for run in runs], detach=detach) if model.pipeline.is_last else None
    finally:
        for run in runs:
            run.abandon()


def _started(function: Callable[..., Any], part: Any, count: int) -> Pausable:
    run = MicrobatchRun(count)
    run.pausable = Pausable(lambda: within(run, functools.partial(function, *part.args, **part.kwargs)))
    return run.pausable


def _asked(run: Pausable) -> ModelCall:
    request = run.resume()
    if not isinstance(request, ModelCall):
        raise RuntimeError("A function that smp.step decorates must call the smp.DistributedModel, and first of all.")
    return request


def _ended(run: Pausable) -> Any:
    request = run.last if isinstance(run.last, Ended) else run.resume()
    if not isinstance(request, Ended):
        raise RuntimeError("In a pipeline, a step can call the model and model.backward once for each microbatch.")
    return request.value


def _shared(given: Any, found: World) -> Any:
    """The arguments of a step with the tensors that the first stage has."""
    leaves, shape = pytree.tree_flatten(given)
    tensors = [at for at, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    group, source = found.groups[PIPELINE], found.members(PIPELINE)[0]
    told = [[(tuple(leaves[at].shape), leaves[at].dtype) for at in tensors]]
    dist.broadcast_object_list(told, src=source, group=group, device=_CPU)
    for at, (size, dtype) in zip(tensors, told[0], strict=True):
        is_source = found.place.rank == source
        sent = leaves[at].contiguous() if is_source else torch.empty(size, dtype=dtype, device=leaves[at].device)
        dist.broadcast(sent.view(-1).view(torch.uint8) if sent.numel() else sent, src=source, group=group)
        leaves[at] = leaves[at] if is_source else sent
    return pytree.tree_unflatten(leaves, shape)


def _returned(result: Any, found: World) -> Any:
    """What the last stage has, on every one."""
    source = found.members(PIPELINE)[-1]
    is_source = found.place.rank == source
    told = [_moved(result, _CPU)] if is_source else [None]
    dist.broadcast_object_list(told, src=source, group=found.groups[PIPELINE], device=_CPU)
    return result if is_source else _moved(told[0], found.device)


def _moved(value: Any, device: torch.device) -> Any:
    """The same on another device, without a graph."""
    if isinstance(value, StepOutput):
        return StepOutput([each.detach().to(device) for each in value])
    if isinstance(value, dict):
        return {name: _moved(each, device) for name, each in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_moved(each, device) for each in value))
    if isinstance(value, (list, tuple)):
        return type(value)(_moved(each, device) for each in value)
    return value
