"""Changes a torch program for a trial: its data loaders, its threads, and the forwards of its models.

Each change is made where the program would have made it itself, and before it could matter: those of loaders when the
program begins to iterate, those of models when an optimizer for them exists.
"""

import os
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils.data import BatchSampler

from trainyard.formats.profiles.contract import ProgramChange
from trainyard.instance.hook.profiling.timed_calls import has_gpu_driver
from trainyard.instance.hook.profiling.trial import AppliedChanges
from trainyard.instance.hook.pytorch.patches import InertHook
from trainyard.instance.hook.pytorch.roots import Root

_PRECISIONS: Mapping[str, torch.dtype] = {"bfloat16": torch.bfloat16, "float32": torch.float32}
_DEFAULT_PREFETCH = 2
_YES, _NO = ("true", "1", "yes"), ("false", "0", "no")


class TorchChanges:
    """Applies the changes of a trial. A value that makes no sense is refused; what torch refuses, the program sees."""

    def __init__(self, changes: AppliedChanges) -> None:
        self._changes = changes
        self._loaders: weakref.WeakSet[Any] = weakref.WeakSet()
        self._models: weakref.WeakKeyDictionary[nn.Module, _ChangedForward] = weakref.WeakKeyDictionary()

    def change_process(self) -> None:
        """Change what concerns the process. A program may set its threads itself, so this is done again later."""
        threads = self._number(ProgramChange.THREADS, least=1)
        if threads is not None:
            # For libraries that the program has yet to load, and the processes that it starts.
            os.environ["OMP_NUM_THREADS"] = str(threads)
            torch.set_num_threads(threads)
            self._changes.apply(ProgramChange.THREADS, str(torch.get_num_threads()))

    def change_loader(self, loader: Any) -> None:
        """Change a data loader that feeds the training and is about to make an iterator."""
        if loader in self._loaders:
            return
        self._loaders.add(loader)
        if getattr(loader, "_iterator", None) is not None:
            # The workers of a persistent loader run already.
            return
        self._change_workers(loader)
        self._change_pinning(loader)
        self._change_batches(loader)

    def change_models(self, roots: Iterable[Root]) -> None:
        """Change the models that have not been changed yet, or that the program has wrapped since."""
        for root in roots:
            model, outermost = root.model, root.outermost
            if model is None or outermost is None:
                continue
            changed = self._models.get(model)
            if changed is None:
                changed = self._models[model] = self._change_model(root, outermost)
            changed.attach(outermost)

    def _change_workers(self, loader: Any) -> None:
        workers = self._number(ProgramChange.LOADER_WORKERS)
        if workers is not None:
            loader.num_workers = workers
            if not workers:
                loader.prefetch_factor, loader.timeout = None, 0
                _set(loader, "persistent_workers", False)
            elif loader.prefetch_factor is None:
                loader.prefetch_factor = _DEFAULT_PREFETCH
            self._changes.apply(ProgramChange.LOADER_WORKERS, str(workers))
        prefetch = self._number(ProgramChange.PREFETCH_FACTOR, least=1)
        persists = self._flag(ProgramChange.PERSISTENT_WORKERS)
        if not loader.num_workers:
            for change, value in (
                (ProgramChange.PREFETCH_FACTOR, prefetch),
                (ProgramChange.PERSISTENT_WORKERS, persists),
            ):
                if value:
                    self._changes.refuse(change, "the data loader has no workers")
            return
        if prefetch is not None:
            loader.prefetch_factor = prefetch
            self._changes.apply(ProgramChange.PREFETCH_FACTOR, str(prefetch))
        if persists is not None:
            _set(loader, "persistent_workers", persists)
            self._changes.apply(ProgramChange.PERSISTENT_WORKERS, str(persists).lower())

    def _change_pinning(self, loader: Any) -> None:
        pins = self._flag(ProgramChange.PIN_MEMORY)
        if pins and not has_gpu_driver():
            self._changes.refuse(ProgramChange.PIN_MEMORY, "there is no GPU")
        elif pins is not None:
            loader.pin_memory = pins
            self._changes.apply(ProgramChange.PIN_MEMORY, str(pins).lower())

    def _change_batches(self, loader: Any) -> None:
        size = self._number(ProgramChange.BATCH_SIZE, least=1)
        if size is None:
            return
        why = _why_batches_are_fixed(loader, size)
        if why:
            self._changes.refuse(ProgramChange.BATCH_SIZE, why)
            return
        _set(loader, "batch_sampler", BatchSampler(loader.sampler, size, loader.drop_last))
        _set(loader, "batch_size", size)
        self._changes.apply(ProgramChange.BATCH_SIZE, str(size))

    def _change_model(self, root: Root, outermost: nn.Module) -> "_ChangedForward":
        is_channels_last = self._to_channels_last(outermost)
        if self._compile(outermost):
            # The forwards are observed outside of the graph.
            root.attach(outermost)
        return _ChangedForward(self._precision(), self._changes, is_channels_last=is_channels_last)

    def _precision(self) -> torch.dtype | None:
        wanted = self._changes.wanted(ProgramChange.PRECISION)
        if wanted is None:
            return None
        found = _PRECISIONS.get(wanted)
        if found is None:
            self._changes.refuse(ProgramChange.PRECISION, f'"{wanted}" is none of {", ".join(_PRECISIONS)}')
        return found

    def _to_channels_last(self, model: nn.Module) -> bool:
        wanted = self._flag(ProgramChange.CHANNELS_LAST)
        if wanted is None:
            return False
        if not any(parameter.dim() == 4 for parameter in model.parameters()):
            self._changes.refuse(ProgramChange.CHANNELS_LAST, "the model has no two-dimensional convolutions")
            return False
        layout = torch.channels_last if wanted else torch.contiguous_format
        model.to(memory_format=layout)
        self._changes.apply(ProgramChange.CHANNELS_LAST, str(wanted).lower())
        return wanted

    def _compile(self, model: nn.Module) -> bool:
        wanted = self._flag(ProgramChange.COMPILE)
        if wanted is None:
            return False
        self._changes.apply(ProgramChange.COMPILE, str(wanted).lower())
        if not wanted:
            torch.compiler.set_stance("force_eager")
            return False
        if model._compiled_call_impl is not None or type(model).__name__ == "OptimizedModule":
            return False
        model.compile()
        return True

    def _number(self, change: ProgramChange, *, least: int = 0) -> int | None:
        wanted = self._changes.wanted(change)
        if wanted is None:
            return None
        if wanted.isdigit() and int(wanted) >= least:
            return int(wanted)
        self._changes.refuse(change, f'"{wanted}" is not a number of at least {least}')
        return None

    def _flag(self, change: ProgramChange) -> bool | None:
        wanted = self._changes.wanted(change)
        if wanted is None:
            return None
        if wanted.lower() in _YES + _NO:
            return wanted.lower() in _YES
        self._changes.refuse(change, f'"{wanted}" is neither true nor false')
        return None


class _ChangedForward:
    """What is done before and after each forward of a model, at the outermost module that the program calls."""

    def __init__(self, precision: torch.dtype | None, changes: AppliedChanges, *, is_channels_last: bool) -> None:
        self._precision, self._is_channels_last = precision, is_channels_last
        self._changes = changes
        self._attached: weakref.ref[nn.Module] | None = None
        self._handles: list[Any] = []
        self._open: list[Any] = []

    def attach(self, module: nn.Module) -> None:
        if (self._attached is not None and self._attached() is module) or not self._changes_anything:
            return
        for handle in self._handles:
            handle.remove()
        self._attached = weakref.ref(module)
        if module._compiled_call_impl is not None:
            # Hooks would be in the graph.
            module._compiled_call_impl = self._around(module._compiled_call_impl)
            return
        self._handles = [
            module.register_forward_pre_hook(_Before(self), with_kwargs=True, prepend=True),
            module.register_forward_hook(_After(self), prepend=True, always_call=True),
        ]

    @property
    def _changes_anything(self) -> bool:
        return self._precision is not None or self._is_channels_last

    def begin(self, module: nn.Module | None, args: Any, kwargs: Any) -> tuple[Any, Any]:
        if self._precision is not None:
            self._open.append(self._enter_precision(module, self._precision))
        if self._is_channels_last:
            args, kwargs = _to_channels_last(args), _to_channels_last(kwargs)
        return args, kwargs

    def end(self, output: Any) -> Any:
        if not self._open:
            return output
        self._open.pop().__exit__(None, None, None)
        # Losses and metrics of the program expect what they got before.
        return _to_float32(output)

    def _enter_precision(self, module: nn.Module | None, precision: torch.dtype) -> Any:
        first = next(module.parameters(), None) if module is not None else None
        is_lower = precision is not torch.float32
        if first is not None and not is_lower and first.dtype is not torch.float32:
            self._changes.refuse(ProgramChange.PRECISION, f"the parameters of the model are {first.dtype}")
        context = torch.autocast(
            "cpu" if first is None else first.device.type, precision if is_lower else None, enabled=is_lower
        )
        context.__enter__()
        self._changes.apply(ProgramChange.PRECISION, str(precision).removeprefix("torch."))
        return context

    def _around(self, call: Any) -> Any:
        def call_changed(*args: Any, **kwargs: Any) -> Any:
            args, kwargs = self.begin(None if self._attached is None else self._attached(), args, kwargs)
            output = None
            try:
                output = call(*args, **kwargs)
            finally:
                output = self.end(output)
            return output

        return call_changed


class _Before(InertHook):
    def __init__(self, changed: _ChangedForward) -> None:
        self._changed = changed

    def __call__(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        return (args, kwargs) if torch.compiler.is_compiling() else self._changed.begin(module, args, kwargs)


class _After(InertHook):
    def __init__(self, changed: _ChangedForward) -> None:
        self._changed = changed

    def __call__(self, _module: nn.Module, _args: Any, output: Any) -> Any:
        return output if torch.compiler.is_compiling() else self._changed.end(output)


def _why_batches_are_fixed(loader: Any, size: int) -> str:
    if loader.batch_size is None:
        return "the data loader does not make batches itself, or has a batch sampler of its own"
    if type(loader.batch_sampler) is not BatchSampler:
        return f"the batches of the data loader are made by {type(loader.batch_sampler).__name__}"
    try:
        available = len(loader.sampler)
    except TypeError:
        return ""
    return f"there are only {available} samples" if available < size else ""


def _set(loader: Any, name: str, value: object) -> None:
    """Set what a loader does not let a program set after it was made."""
    object.__setattr__(loader, name, value)


def _to_channels_last(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(memory_format=torch.channels_last) if value.dim() == 4 else value
    return _mapped(value, _to_channels_last)


def _to_float32(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype in (torch.bfloat16, torch.float16) else value
    return _mapped(value, _to_float32)


def _mapped(value: Any, change: Any) -> Any:
    if type(value) in (list, tuple):
        return type(value)(change(each) for each in value)
    if isinstance(value, dict):
        for key in value:
            value[key] = change(value[key])
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(change(each) for each in value))
    return value
