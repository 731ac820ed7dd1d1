"""`smp.step`: runs a function once for each microbatch, pipelined over the partitions of the model."""

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch.utils import _pytree as pytree

from .microbatch_run import Finished, MicrobatchRun, ThreadCoroutine, run_within
from .microbatches import BatchSplit, StepOutput, merge_outputs
from .model import DistributedModel, current_model
from .pipeline import ModelCall
from .placement import PIPELINE
from .world import ModelParallelWorld, world

_CPU = torch.device("cpu")


def step(
    function: Any = None,
    non_split_inputs: Sequence[str] = (),
    input_split_axes: Mapping[str, int] | None = None,
    detach_outputs: bool = True,
) -> Any:
    """Decorate the forward and backward pass of a batch, or the forward pass alone.

    Tensors in the arguments are split along their first axis, or the one in `input_split_axes`, except those named in
    `non_split_inputs`. In a pipeline, all ranks use the arguments of the first one, and all get the function's result.
    """
    # The first argument may also be the list of inputs that are not split.
    if function is not None and not callable(function):
        function, non_split_inputs = None, function
    batch_split = BatchSplit(tuple(non_split_inputs), dict(input_split_axes or {}))

    def decorate(decorated: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(decorated)
        def run(*args: Any, **kwargs: Any) -> Any:
            return _run(decorated, batch_split, args, kwargs, detach=detach_outputs)

        return run

    return decorate if function is None else decorate(function)


def _run(function: Callable[..., Any], batch_split: BatchSplit, args: Any, kwargs: Any, *, detach: bool) -> Any:
    current, model = world(), current_model()
    if model is None or model.pipeline is None:
        return _run_all(function, batch_split.split(function, args, kwargs, current.configuration.microbatches), detach)
    args, kwargs = _broadcast_arguments((args, kwargs), current)
    parts = batch_split.split(function, args, kwargs, current.configuration.microbatches)
    result = _run_pipelined(function, parts, model, detach)
    return _broadcast_result(result, current)


def _run_all(function: Callable[..., Any], parts: Sequence[Any], detach: bool) -> Any:
    """Run the microbatches one after another, with the whole model."""
    runs = [MicrobatchRun(len(parts)) for _ in parts]
    pairs = zip(runs, parts, strict=True)
    model = current_model()
    with nullcontext() if model is None else model.new_gradients():
        results = [run_within(run, functools.partial(function, *part.args, **part.kwargs)) for run, part in pairs]
        if model is not None and any(run.has_backward for run in runs):
            model.after_backward()
    return merge_outputs(results, detach=detach)


def _run_pipelined(function: Callable[..., Any], parts: Sequence[Any], model: DistributedModel, detach: bool) -> Any:
    """Run all functions up to their call of the model. On the last stage, they continue from there to the end."""
    assert model.pipeline is not None, "checked by the caller"
    runs = [_start_run(function, part, len(parts)) for part in parts]
    try:
        calls = [_first_call(run) for run in runs]
        has_backward = model.training and torch.is_grad_enabled()
        with model.new_gradients():
            model.pipeline.run(runs, calls, has_backward=has_backward, factor=model.factor(len(parts)))
            if has_backward:
                model.after_backward()
        return merge_outputs([_result_of(run) for run in runs], detach=detach) if model.pipeline.is_last else None
    finally:
        for run in runs:
            run.abandon()


def _start_run(function: Callable[..., Any], part: Any, count: int) -> ThreadCoroutine:
    run = MicrobatchRun(count)
    run.coroutine = ThreadCoroutine(lambda: run_within(run, functools.partial(function, *part.args, **part.kwargs)))
    return run.coroutine


def _first_call(run: ThreadCoroutine) -> ModelCall:
    request = run.resume()
    if not isinstance(request, ModelCall):
        raise RuntimeError("A function that smp.step decorates must first call the smp.DistributedModel.")
    return request


def _result_of(run: ThreadCoroutine) -> Any:
    request = run.last if isinstance(run.last, Finished) else run.resume()
    if not isinstance(request, Finished):
        raise RuntimeError("In a pipeline, a step can call the model and model.backward only once for each microbatch.")
    return request.value


def _broadcast_arguments(given: Any, world: ModelParallelWorld) -> Any:
    """Return the arguments of a step with the tensors of the first stage."""
    leaves, shape = pytree.tree_flatten(given)
    tensors = [at for at, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    group, source = world.groups[PIPELINE], world.members(PIPELINE)[0]
    shared = [[(tuple(leaves[at].shape), leaves[at].dtype) for at in tensors]]
    dist.broadcast_object_list(shared, src=source, group=group, device=_CPU)
    for at, (size, dtype) in zip(tensors, shared[0], strict=True):
        is_source = world.position.rank == source
        sent = leaves[at].contiguous() if is_source else torch.empty(size, dtype=dtype, device=leaves[at].device)
        dist.broadcast(sent.view(-1).view(torch.uint8) if sent.numel() else sent, src=source, group=group)
        leaves[at] = leaves[at] if is_source else sent
    return pytree.tree_unflatten(leaves, shape)


def _broadcast_result(result: Any, world: ModelParallelWorld) -> Any:
    """Return the result of the last stage on every stage."""
    source = world.members(PIPELINE)[-1]
    is_source = world.position.rank == source
    shared = [_move(result, _CPU)] if is_source else [None]
    dist.broadcast_object_list(shared, src=source, group=world.groups[PIPELINE], device=_CPU)
    return result if is_source else _move(shared[0], world.device)


def _move(value: Any, device: torch.device) -> Any:
    """Return a value on another device, detached from its graph."""
    if isinstance(value, StepOutput):
        return StepOutput([each.detach().to(device) for each in value])
    if isinstance(value, dict):
        return {name: _move(each, device) for name, each in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_move(each, device) for each in value))
    if isinstance(value, (list, tuple)):
        return type(value)(_move(each, device) for each in value)
    return value
