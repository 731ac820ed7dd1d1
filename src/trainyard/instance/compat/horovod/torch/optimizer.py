"""An optimizer that steps with the gradients of all ranks."""

import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from .buckets import Bucket, in_buckets
from .compression import Compression, Compressor
from .mpi_ops import Average, ReduceOp, reduction
from .process_sets import ProcessSet, global_process_set, require_global
from .world import world


def DistributedOptimizer(  # noqa: N802  # a function in Horovod too
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
    """The same optimizer, of a class of its own that reduces gradients over all ranks before it steps.

    Gradients are sent while the backward pass goes on, fused in the reverse order of the parameters; `num_groups` and
    `groups` would say how to fuse them, and have no effect. HOROVOD_FUSION_THRESHOLD is how many bytes make a piece.
    After `backward_passes_per_step` passes the sums of the gradients are sent: divide the loss for their mean.
    """
    require_global(process_set)
    if gradient_predivide_factor != 1.0 and op is not Average:
        raise ValueError("gradient_predivide_factor splits the division of an average; it needs op=hvd.Average.")
    _require_names(optimizer, named_parameters)
    how = reduction(op, None)
    options = _Options(
        compression,
        backward_passes_per_step,
        op,
        before=1.0 / gradient_predivide_factor,
        after=gradient_predivide_factor / how.divisor,
        sparse_as_dense=sparse_as_dense,
    )
    kind = type(optimizer.__class__.__name__, (_Distributed, optimizer.__class__), {})
    made: _Distributed = object.__new__(kind)
    made._take_over(optimizer, options)
    return made


@dataclass(frozen=True, slots=True)
class _Options:
    compression: type[Compressor]
    passes: int
    op: ReduceOp
    before: float
    after: float
    sparse_as_dense: bool


class _Distributed:
    """What comes before the methods of the optimizer's own class."""

    param_groups: list[dict[str, Any]]
    _options: _Options
    _is_to_synchronize = True
    _is_synchronized = False

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Step with the gradients of all ranks. With a closure, they are those that it leaves."""
        if closure is not None:
            return super().step(self._synchronized_after(closure))  # type: ignore[misc]
        if self._is_to_synchronize:
            if self._is_synchronized:
                warnings.warn(
                    "optimizer.step() reduces the gradients again after optimizer.synchronize(); step within "
                    "optimizer.skip_synchronize() instead.",
                    stacklevel=3,
                )
            self.synchronize()
        self._is_synchronized = False
        return super().step()  # type: ignore[misc]

    # torch would otherwise wrap this method too when a state is loaded, and call the hooks of a step twice.
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
        """Within it, `step` takes the gradients as they are, because `synchronize` was called before."""
        self._is_to_synchronize = False
        try:
            yield
        finally:
            self._is_to_synchronize = True

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Change how many backward passes come before a step."""
        self._options = replace(self._options, passes=passes)

    def zero_grad(self, *arguments: Any, **options: Any) -> None:
        """Clear the gradients, none of which may be under way."""
        if any(bucket.waiting < len(bucket.parameters) for bucket in self._buckets):
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
                "optimizer.synchronize(), while gradients are being reduced. Call it before the backward pass."
            )
        self._passes.clear()
        super().zero_grad(*arguments, **options)  # type: ignore[misc]

    def add_param_group(self, group: dict[str, Any]) -> None:
        """Add parameters, whose gradients are reduced too."""
        super().add_param_group(group)  # type: ignore[misc]
        self._arrange()

    def _take_over(self, optimizer: torch.optim.Optimizer, options: _Options) -> None:
        """Become what the optimizer is: its parameters, its state and its hooks are shared."""
        # A scheduler that was made before has put a step of the other object there.
        self.__dict__.update({key: value for key, value in vars(optimizer).items() if key != "step"})
        self._options = options
        self._lane: Any = None if world().place.is_alone else world().add_lane()
        self._buckets: list[Bucket] = []
        self._bucket_of: dict[torch.Tensor, Bucket] = {}
        self._hooks: list[Any] = []
        self._arrange()

    def _arrange(self) -> None:
        """Put the parameters into buckets, and be told of each gradient."""
        for hook in self._hooks:
            hook.remove()
        self._passes = Counter[torch.Tensor]()
        self._next = 0
        if self._lane is None:
            return
        trained = [p for group in self.param_groups for p in group["params"] if p.requires_grad]
        self._buckets = in_buckets(trained, _fusion_threshold())
        self._bucket_of = {p: bucket for bucket in self._buckets for p in bucket.parameters}
        self._hooks = [p.register_post_accumulate_grad_hook(self._gradient_is_there) for p in trained]

    def _gradient_is_there(self, parameter: torch.Tensor) -> None:
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

    def _send(self, buckets: list[Bucket]) -> None:
        """Send those of the buckets that are not under way; all ranks do so in the same order."""
        for bucket in buckets:
            if bucket.is_sent:
                continue
            if self._options.sparse_as_dense:
                _make_dense(bucket)
            bucket.send(
                self._lane, op=self._options.op, factor=self._options.before, compression=self._options.compression
            )
            self._next += 1

    def _synchronized_after(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        def evaluate() -> Any:
            with torch.enable_grad():
                loss = closure()
            self.synchronize()
            self._is_synchronized = False
            return loss

        return evaluate


def _require_names(optimizer: torch.optim.Optimizer, named: Iterable[tuple[str, torch.Tensor]] | None) -> None:
    """Check names as Horovod does, so that a script with wrong ones fails in the same place."""
    if named is None:
        return
    pairs = list(named)
    if any(not isinstance(pair, tuple) for pair in pairs):
        raise ValueError("named_parameters must be pairs of a name and a parameter, as model.named_parameters() has.")
    twice = [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]
    if twice:
        raise ValueError(f"Parameter names in named_parameters must be unique; there are several {', '.join(twice)}.")
    known = {id(parameter) for _, parameter in pairs}
    unnamed = sum(id(p) not in known for group in optimizer.param_groups for p in group["params"])
    if pairs and unnamed:
        raise ValueError(f"named_parameters lacks {unnamed} of the optimizer's parameters; name all or none.")


def _fusion_threshold() -> int | None:
    given = os.environ.get("HOROVOD_FUSION_THRESHOLD")
    return int(given) if given else None


def _make_dense(bucket: Bucket) -> None:
    for parameter in bucket.parameters:
        if parameter.grad is not None and parameter.grad.layout != torch.strided:
            parameter.grad = parameter.grad.to_dense()
