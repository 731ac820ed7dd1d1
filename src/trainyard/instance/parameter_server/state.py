"""The share of a model that one server keeps."""

import threading
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from trainyard.foundation.errors import Corrupt, InvalidRequest

OPTIMIZERS = {
    "SGD": torch.optim.SGD,
    "Adam": torch.optim.Adam,
    "AdamW": torch.optim.AdamW,
    "Adagrad": torch.optim.Adagrad,
}


@dataclass(frozen=True, slots=True)
class Pushed:
    """What became of gradients: `staleness` is how many others were applied since the worker pulled."""

    version: int
    staleness: int
    is_applied: bool


class State:
    """Parameters and the optimizer that steps them. Threads may use it at the same time: each step is one of all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun = threading.Event()
        self._parameters: dict[str, torch.Tensor] = {}
        self._optimizer: Any = None
        self._kind: dict[str, Any] = {}
        self.version = 0

    def begin(self, tensors: Mapping[str, torch.Tensor], optimizer: str, options: Mapping[str, Any]) -> None:
        """Take the first values and make the optimizer; where that was done before, or loaded, what is there stays."""
        with self._lock:
            if self._begun.is_set():
                self._require_same(tensors)
                return
            self._make(tensors, optimizer, options)
            self._begun.set()

    def wait(self, timeout_s: float) -> bool:
        """Wait until there are values; whether there are."""
        return self._begun.wait(timeout_s)

    def pull(self) -> tuple[int, dict[str, torch.Tensor]]:
        """The version and a copy of the parameters."""
        with self._lock:
            return self.version, {name: p.detach().clone() for name, p in self._parameters.items()}

    def push(
        self,
        gradients: Mapping[str, torch.Tensor],
        *,
        since: int,
        options: Mapping[str, Any],
        max_staleness: int | None,
    ) -> Pushed:
        """Step with gradients of the version `since`; `options`, such as lr, hold from now on.

        Gradients that are staler than `max_staleness` are dropped.
        """
        with self._lock:
            self._require_known(gradients)
            staleness = self.version - since
            if max_staleness is not None and staleness > max_staleness:
                return Pushed(self.version, staleness, is_applied=False)
            self._step(gradients, options)
            return Pushed(self.version, staleness, is_applied=True)

    def save(self, path: Path) -> None:
        """Write all of it into a file, which is the old one or the new one at any time. For one thread."""
        with self._lock:
            if not self._begun.is_set():
                return
            kept = {
                "version": self.version,
                "kind": self._kind,
                "parameters": {name: p.detach().clone() for name, p in self._parameters.items()},
                "optimizer": deepcopy(self._optimizer.state_dict()),
            }
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.part")
        torch.save(kept, beside)
        beside.replace(path)

    def load(self, path: Path) -> None:
        """Begin with what was saved."""
        try:
            kept = torch.load(path, weights_only=True)
            with self._lock:
                self._make(kept["parameters"], kept["kind"]["optimizer"], kept["kind"]["options"])
                self._optimizer.load_state_dict(kept["optimizer"])
                self.version = kept["version"]
                self._begun.set()
        except (RuntimeError, KeyError, EOFError, ValueError, UnpicklingError) as error:
            raise Corrupt(f"The checkpoint {path} of the parameter server cannot be read; remove it.") from error

    def _make(self, tensors: Mapping[str, torch.Tensor], optimizer: str, options: Mapping[str, Any]) -> None:
        if optimizer not in OPTIMIZERS:
            raise InvalidRequest(f"A parameter server has no optimizer {optimizer}; use {', '.join(OPTIMIZERS)}.")
        self._parameters = {name: each.clone().requires_grad_() for name, each in tensors.items()}
        self._kind = {"optimizer": optimizer, "options": dict(options)}
        try:
            # A share may be empty, where there are more servers than parameters.
            groups = [{"params": list(self._parameters.values())}]
            self._optimizer = OPTIMIZERS[optimizer](groups, **_tuples(options))
        except (TypeError, ValueError) as error:
            raise InvalidRequest(f"The optimizer {optimizer} cannot be made with {dict(options)}: {error}") from error

    def _step(self, gradients: Mapping[str, torch.Tensor], options: Mapping[str, Any]) -> None:
        for group in self._optimizer.param_groups:
            group.update(_tuples(options))
        for name, parameter in self._parameters.items():
            parameter.grad = gradients.get(name)
        self._optimizer.step()
        self.version += 1

    def _require_known(self, gradients: Mapping[str, torch.Tensor]) -> None:
        for name, gradient in gradients.items():
            kept = self._parameters.get(name)
            if kept is None:
                raise InvalidRequest(f'The server keeps no parameter "{name}"; all workers must have the same model.')
            _require_like(name, gradient, kept)

    def _require_same(self, tensors: Mapping[str, torch.Tensor]) -> None:
        if tensors.keys() != self._parameters.keys():
            raise InvalidRequest(
                f"The server keeps {', '.join(self._parameters) or 'nothing'}, but a worker begins with "
                f"{', '.join(tensors) or 'nothing'}; all workers, and the checkpoint, must be of the same model."
            )
        for name, each in tensors.items():
            _require_like(name, each, self._parameters[name])


def _require_like(name: str, given: torch.Tensor, kept: torch.Tensor) -> None:
    if given.shape != kept.shape or given.dtype != kept.dtype:
        raise InvalidRequest(
            f'"{name}" came with shape {tuple(given.shape)} and type {given.dtype}, but the server keeps '
            f"{tuple(kept.shape)} and {kept.dtype}; all workers must have the same model."
        )


def _tuples(options: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no tuples, which options such as betas are."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
