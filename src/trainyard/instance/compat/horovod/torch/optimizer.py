"""An optimizer that steps with the gradients of all ranks."""

import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from .buckets import GradientBucket, make_buckets
from .compression import Compression, Compressor
from .mpi_ops import Average, ReduceOp, reduction
from .world import ProcessSet, global_process_set, require_global, world


def DistributedOptimizer(  # noqa: N802
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    compression: type[Compressor] = Compression.none,
    backward_passes_per_step: int = 1,
    op: ReduceOp = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,  # noqa: ARG001
    groups: Any = None,  # noqa: ARG001
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> torch.optim.Optimizer:
    """Return the optimizer as a subclass that reduces gradients over all ranks before it steps.

    Gradients are sent during the backward pass, fused in reverse order of the parameters. `num_groups` and `groups`,
    which control the fusion in Horovod, have no effect. HOROVOD_FUSION_THRESHOLD sets the size of a bucket in bytes.
    After `backward_passes_per_step` passes, the sums of the gradients are sent: divide the loss to get their mean.
    """
    require_global(process_set)
    if gradient_predivide_factor != 1.0 and op is not Average:
        raise ValueError("gradient_predivide_factor splits the division of an average; it needs op=hvd.Average.")
    _require_names(optimizer, named_parameters)
    scaled = reduction(op, None)
    options = _ReductionOptions(
        compression,
        backward_passes_per_step,
        op,
        before=1.0 / gradient_predivide_factor,
        after=gradient_predivide_factor / scaled.divisor,
        sparse_as_dense=sparse_as_dense,
    )
    kind = type(optimizer.__class__.__name__, (_ReducingOptimizer, optimizer.__class__), {})
    reducing: _ReducingOptimizer = object.__new__(kind)
    reducing._adopt(optimizer, options)
    return reducing


@dataclass(frozen=True, slots=True)
class _ReductionOptions:
    compression: type[Compressor]
    passes: int
    op: ReduceOp
    before: float
    after: float
    sparse_as_dense: bool


class _ReducingOptimizer:
    """Overrides methods of the optimizer's own class."""

    param_groups: list[dict[str, Any]]
    _options: _ReductionOptions
    _synchronizes_in_step = True
    _is_synchronized = False

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Step with the gradients of all ranks, which a closure may compute."""
        if closure is not None:
            return super().step(self._with_synchronization(closure))  # type: ignore[misc]
        if self._synchronizes_in_step:
            if self._is_synchronized:
                warnings.warn(
                    "optimizer.step() reduces the gradients again after optimizer.synchronize(); step within "
                    "optimizer.skip_synchronize() instead.",
                    stacklevel=3,
                )
            self.synchronize()
        self._is_synchronized = False
        return super().step()  # type: ignore[misc]

    # Otherwise torch would also wrap this method when a state is loaded, and call the hooks of a step twice.
    step.hooked = True  # type: ignore[attr-defined]

    def synchronize(self) -> None:
        """Wait until the gradients of the parameters are those of all ranks."""
        self._send(self._buckets)
        for bucket in self._buckets:
            bucket.receive(factor=self._options.after, compression=self._options.compression)
        self._passes.clear()
        self._next = 0
        self._is_synchronized = True

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Let `step` use the gradients as they are, because `synchronize` was already called."""
        self._synchronizes_in_step = False
        try:
            yield
        finally:
            self._synchronizes_in_step = True

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Set how many backward passes precede a step."""
        self._options = replace(self._options, passes=passes)

    def zero_grad(self, *arguments: Any, **options: Any) -> None:
        """Clear the gradients. Raises if any are being reduced."""
        if any(bucket.waiting < len(bucket.parameters) for bucket in self._buckets):
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
                "optimizer.synchronize(), while gradients are being reduced. Call it before the backward pass."
            )
        self._passes.clear()
        super().zero_grad(*arguments, **options)  # type: ignore[misc]

    def add_param_group(self, group: dict[str, Any]) -> None:
        """Add parameters, and reduce their gradients too."""
        super().add_param_group(group)  # type: ignore[misc]
        self._make_buckets()

    def _adopt(self, optimizer: torch.optim.Optimizer, options: _ReductionOptions) -> None:
        """Share the parameters, state and hooks of the optimizer."""
        # A scheduler that was created earlier has set `step` to a method of the other object.
        self.__dict__.update({key: value for key, value in vars(optimizer).items() if key != "step"})
        self._options = options
        self._group: Any = None if world().position.is_alone else world().add_group()
        self._buckets: list[GradientBucket] = []
        self._bucket_of: dict[torch.Tensor, GradientBucket] = {}
        self._hooks: list[Any] = []
        self._make_buckets()

    def _make_buckets(self) -> None:
        """Put the parameters into buckets, and register a hook for each gradient."""
        for hook in self._hooks:
            hook.remove()
        self._passes = Counter[torch.Tensor]()
        self._next = 0
        if self._group is None:
            return
        trained = [p for group in self.param_groups for p in group["params"] if p.requires_grad]
        self._buckets = make_buckets(trained, _fusion_threshold())
        self._bucket_of = {p: bucket for bucket in self._buckets for p in bucket.parameters}
        self._hooks = [p.register_post_accumulate_grad_hook(self._handle_gradient) for p in trained]

    def _handle_gradient(self, parameter: torch.Tensor) -> None:
        self._passes[parameter] += 1
        passes = self._passes[parameter]
        if passes < self._options.passes:
            return
        bucket = self._bucket_of[parameter]
        if passes > self._options.passes or bucket.is_sent:
            raise AssertionError(
                "Gradients were computed more than backward_passes_per_step times before call to step(). Increase "
                "backward_passes_per_step to accumulate gradients locally."
            )
        bucket.waiting -= 1
        ready = self._next
        while ready < len(self._buckets) and self._buckets[ready].waiting == 0:
            ready += 1
        self._send(self._buckets[self._next : ready])

    def _send(self, buckets: list[GradientBucket]) -> None:
        """Send the buckets that are not being reduced yet. All ranks do so in the same order."""
        for bucket in buckets:
            if bucket.is_sent:
                continue
            if self._options.sparse_as_dense:
                _make_dense(bucket)
            bucket.send(
                self._group, op=self._options.op, factor=self._options.before, compression=self._options.compression
            )
            self._next += 1

    def _with_synchronization(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        def evaluate() -> Any:
            with torch.enable_grad():
                loss = closure()
            self.synchronize()
            self._is_synchronized = False
            return loss

        return evaluate


def _require_names(optimizer: torch.optim.Optimizer, named: Iterable[tuple[str, torch.Tensor]] | None) -> None:
    """Check names like Horovod, so that a script with wrong ones fails in the same place."""
    if named is None:
        return
    pairs = list(named)
    if any(not isinstance(pair, tuple) for pair in pairs):
        raise ValueError("named_parameters must be pairs of a name and a parameter, as from model.named_parameters().")
    duplicates = [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]
    if duplicates:
        raise ValueError(f"Parameter names in named_parameters must be unique; duplicates: {', '.join(duplicates)}.")
    known = {id(parameter) for _, parameter in pairs}
    unnamed = sum(id(p) not in known for group in optimizer.param_groups for p in group["params"])
    if pairs and unnamed:
        raise ValueError(f"named_parameters lacks {unnamed} of the optimizer's parameters; name all or none.")


def _fusion_threshold() -> int | None:
    given = os.environ.get("HOROVOD_FUSION_THRESHOLD")
    return int(given) if given else None


def _make_dense(bucket: GradientBucket) -> None:
    for parameter in bucket.parameters:
        if parameter.grad is not None and parameter.grad.layout != torch.strided:
            parameter.grad = parameter.grad.to_dense()
