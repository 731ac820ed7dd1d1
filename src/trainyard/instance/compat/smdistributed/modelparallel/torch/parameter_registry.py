"""Releases the tensors that other ranks hold, and remembers what replaced a script's parameters."""

from collections.abc import Collection, Iterable

import torch

from .stages import all_tensors

Replacements = dict[int, torch.nn.Parameter | None]


class ParameterRegistry:
    """Maps a script's original parameters to what replaced them: themselves, the shard held here, or nothing.

    Optimizers that were created before the model was split have the originals. These stay alive, without their memory,
    so that no other object gets the id of one.
    """

    def __init__(self) -> None:
        self._originals: list[torch.nn.Parameter] = []
        self._replacements: Replacements = {}
        # The names of parameters held here, by id.
        self.names: dict[int, str] = {}

    def replace(self, old: torch.nn.Parameter, new: torch.nn.Parameter | None) -> None:
        """Record what replaced a parameter, and free its memory."""
        self._originals.append(old)
        self._replacements[id(old)] = new
        old.grad = None
        if not old.is_meta:
            old.data = torch.empty(0, dtype=old.dtype, device=old.device)

    def replacement(self, parameter: torch.nn.Parameter) -> torch.nn.Parameter | None:
        """Return what an optimizer should have in place of a parameter."""
        return self._replacements.get(id(parameter), parameter)


def release_tensors(model: torch.nn.Module, names: Collection[str], registry: ParameterRegistry) -> None:
    """Release the memory of these parameters and buffers, keeping only shape and type."""
    replaced: dict[int, torch.nn.Parameter] = {}
    for name in names:
        owner, attribute = _owner(model, name)
        if attribute in owner._buffers:
            owner._buffers[attribute] = torch.empty_like(owner._buffers[attribute], device="meta")
            continue
        old = owner._parameters[attribute]
        if id(old) not in replaced:
            replaced[id(old)] = torch.nn.Parameter(
                torch.empty_like(old, device="meta"), requires_grad=old.requires_grad
            )
            registry.replace(old, None)
        owner._parameters[attribute] = replaced[id(old)]


def initialize_tensors(model: torch.nn.Module, names: Collection[str], device: torch.device) -> None:
    """Allocate and initialize those of these tensors that have only a shape so far."""
    owners: dict[str, torch.nn.Module] = {}
    for name, tensor in all_tensors(model):
        if name in names and tensor.is_meta:
            owner, _ = _owner(model, name)
            owners[name.rpartition(".")[0]] = owner
    for path, owner in owners.items():
        if not hasattr(owner, "reset_parameters"):
            raise RuntimeError(
                f'The initialization of "{path}" was delayed, but {type(owner).__name__} has no reset_parameters() '
                "to catch up. Define one, or create this module outside of smp.delay_param_initialization()."
            )
        _materialize(owner, device)
        owner.reset_parameters()


def _materialize(owner: torch.nn.Module, device: torch.device) -> None:
    """Allocate memory for the module's own tensors. Parameters become new objects."""
    for own in (owner._parameters, owner._buffers):
        for attribute, tensor in own.items():
            if tensor is not None and tensor.is_meta:
                allocated = torch.empty_like(tensor, device=device)
                is_parameter = isinstance(tensor, torch.nn.Parameter)
                own[attribute] = torch.nn.Parameter(allocated, tensor.requires_grad) if is_parameter else allocated


def held_tensors(model: torch.nn.Module, names: Collection[str]) -> Iterable[tuple[str, torch.Tensor]]:
    """Yield the model's parameters and buffers with these names, once each."""
    seen: set[int] = set()
    for name, tensor in all_tensors(model):
        if name in names and id(tensor) not in seen:
            seen.add(id(tensor))
            yield name, tensor


def _owner(model: torch.nn.Module, name: str) -> tuple[torch.nn.Module, str]:
    path, _, attribute = name.rpartition(".")
    return model.get_submodule(path), attribute
