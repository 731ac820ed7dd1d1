"""The part of a model that one server holds."""

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
class PushResult:
    """What happened to gradients; `staleness` is how many others were applied since the worker pulled."""

    version: int
    staleness: int
    is_applied: bool


class ParameterState:
    """Parameters and their optimizer. Safe to share between threads; steps are atomic."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun = threading.Event()
        self._parameters: dict[str, torch.Tensor] = {}
        self._optimizer: Any = None
        self._kind: dict[str, Any] = {}
        self.version = 0

    def begin(self, tensors: Mapping[str, torch.Tensor], optimizer: str, options: Mapping[str, Any]) -> None:
        """Set the initial values and make the optimizer, unless that was already done or loaded from a checkpoint."""
        with self._lock:
            if self._begun.is_set():
                self._require_same(tensors)
                return
            self._make(tensors, optimizer, options)
            self._begun.set()

    def wait(self, timeout_s: float) -> bool:
        """Wait until there are values; return False if time runs out first."""
        return self._begun.wait(timeout_s)

    def pull(self) -> tuple[int, dict[str, torch.Tensor]]:
        """Return the version and a copy of the parameters."""
        with self._lock:
            return self.version, {name: p.detach().clone() for name, p in self._parameters.items()}

    def push(
        self,
        gradients: Mapping[str, torch.Tensor],
        *,
        since: int,
        options: Mapping[str, Any],
        max_staleness: int | None,
    ) -> PushResult:
        """Apply gradients that were computed for version `since`; `options`, such as lr, apply from now on.

        Gradients that are staler than `max_staleness` are dropped.
        """
        with self._lock:
            self._require_known(gradients)
            staleness = self.version - since
            if max_staleness is not None and staleness > max_staleness:
                return PushResult(self.version, staleness, is_applied=False)
            self._step(gradients, options)
            return PushResult(self.version, staleness, is_applied=True)

    def save(self, path: Path) -> None:
        """Write the state to a file atomically. Not for several threads at once."""
        with self._lock:
            if not self._begun.is_set():
                return
            checkpoint = {
                "version": self.version,
                "kind": self._kind,
                "parameters": {name: p.detach().clone() for name, p in self._parameters.items()},
                "optimizer": deepcopy(self._optimizer.state_dict()),
            }
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.part")
        torch.save(checkpoint, partial)
        partial.replace(path)

    def load(self, path: Path) -> None:
        """Restore the state from a file."""
        try:
            checkpoint = torch.load(path, weights_only=True)
            kind = checkpoint["kind"]
            with self._lock:
                self._make(checkpoint["parameters"], kind["optimizer"], kind["options"])
                self._optimizer.load_state_dict(checkpoint["optimizer"])
                self.version = checkpoint["version"]
                self._begun.set()
        except (RuntimeError, KeyError, EOFError, ValueError, UnpicklingError) as error:
            raise Corrupt(f"The parameter server cannot read its checkpoint {path}; remove it.") from error

    def _make(self, tensors: Mapping[str, torch.Tensor], optimizer: str, options: Mapping[str, Any]) -> None:
        if optimizer not in OPTIMIZERS:
            raise InvalidRequest(
                f"A parameter server does not support the optimizer {optimizer}; use {', '.join(OPTIMIZERS)}."
            )
        self._parameters = {name: each.clone().requires_grad_() for name, each in tensors.items()}
        self._kind = {"optimizer": optimizer, "options": dict(options)}
        try:
            # If there are more servers than parameters, some hold none.
            groups = [{"params": list(self._parameters.values())}]
            self._optimizer = OPTIMIZERS[optimizer](groups, **_tuples(options))
        except (TypeError, ValueError) as error:
            raise InvalidRequest(f"Invalid options for the optimizer {optimizer}, {dict(options)}: {error}") from error

    def _step(self, gradients: Mapping[str, torch.Tensor], options: Mapping[str, Any]) -> None:
        for group in self._optimizer.param_groups:
            group.update(_tuples(options))
        for name, parameter in self._parameters.items():
            parameter.grad = gradients.get(name)
        self._optimizer.step()
        self.version += 1

    def _require_known(self, gradients: Mapping[str, torch.Tensor]) -> None:
        for name, gradient in gradients.items():
            parameter = self._parameters.get(name)
            if parameter is None:
                raise InvalidRequest(f'The server has no parameter "{name}"; all workers must have the same model.')
            _require_like(name, gradient, parameter)

    def _require_same(self, tensors: Mapping[str, torch.Tensor]) -> None:
        if tensors.keys() != self._parameters.keys():
            raise InvalidRequest(
                f"The server has the parameters {', '.join(self._parameters) or 'none'}, but a worker starts with "
                f"{', '.join(tensors) or 'none'}; all workers, and the checkpoint, must have the same model."
            )
        for name, each in tensors.items():
            _require_like(name, each, self._parameters[name])


def _require_like(name: str, received: torch.Tensor, expected: torch.Tensor) -> None:
    if received.shape != expected.shape or received.dtype != expected.dtype:
        raise InvalidRequest(
            f'"{name}" has shape {tuple(received.shape)} and type {received.dtype}, but the server has '
            f"{tuple(expected.shape)} and {expected.dtype}; all workers must have the same model."
        )


def _tuples(options: Mapping[str, Any]) -> dict[str, Any]:
    """Convert lists to tuples, which options such as betas need and JSON does not have."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
