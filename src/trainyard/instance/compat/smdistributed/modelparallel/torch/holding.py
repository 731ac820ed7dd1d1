"""Lets go of what other ranks hold, so that the memory of it is free."""

from collections.abc import Collection, Iterable

import torch

from .splitting import all_tensors

Fates = dict[int, torch.nn.Parameter | None]


class Registry:
    """What has become of the parameters that a script has made: itself, its part that is held here, or nothing.

    Optimizers that were made before the model was split have the old ones. It keeps those alive, without their memory,
    so that no other object gets the identity of one.
    """

    def __init__(self) -> None:
        self._kept: list[torch.nn.Parameter] = []
        self._fates: Fates = {}
        self.names: dict[int, str] = {}  # of those that are held here, by identity

    def replace(self, old: torch.nn.Parameter, new: torch.nn.Parameter | None) -> None:
        """Note what has become of one, and free the memory of what it was."""
        self._kept.append(old)
        self._fates[id(old)] = new
        old.grad = None
        if not old.is_meta:
            old.data = torch.empty(0, dtype=old.dtype, device=old.device)

    def fate(self, parameter: torch.nn.Parameter) -> torch.nn.Parameter | None:
        """What an optimizer is to have in its place."""
        return self._fates.get(id(parameter), parameter)


def let_go(model: torch.nn.Module, names: Collection[str], registry: Registry) -> None:
    """Leave of these parameters and buffers only the shape and the type."""
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


def initialize(model: torch.nn.Module, names: Collection[str], device: torch.device) -> None:
    """Make those of these tensors that have only a shape so far, as their modules do when they are made."""
    owners: dict[str, torch.nn.Module] = {}
    for name, tensor in all_tensors(model):
        if name in names and tensor.is_meta:
            owner, _ = _owner(model, name)
            owners[name.rpartition(".")[0]] = owner
    for path, owner in owners.items():
        if not hasattr(owner, "reset_parameters"):
            raise RuntimeError(
                f'The initialization of "{path}" was delayed, but {type(owner).__name__} has no reset_parameters() '
                "that makes up for it. Define one, or make this module outside of smp.delay_param_initialization()."
            )
        _materialize(owner, device)
        owner.reset_parameters()


def _materialize(owner: torch.nn.Module, device: torch.device) -> None:
    """Memory for what the module has of its own; parameters stay the same objects for none, as they had no memory."""
    for own in (owner._parameters, owner._buffers):
        for attribute, tensor in own.items():
            if tensor is not None and tensor.is_meta:
                made = torch.empty_like(tensor, device=device)
                is_parameter = isinstance(tensor, torch.nn.Parameter)
                own[attribute] = torch.nn.Parameter(made, tensor.requires_grad) if is_parameter else made


def held(model: torch.nn.Module, names: Collection[str]) -> Iterable[tuple[str, torch.Tensor]]:
    """Those of the model's parameters and buffers, once each."""
    seen: set[int] = set()
    for name, tensor in all_tensors(model):
        if name in names and id(tensor) not in seen:
            seen.add(id(tensor))
            yield name, tensor


def _owner(model: torch.nn.Module, name: str) -> tuple[torch.nn.Module, str]:
    path, _, attribute = name.rpartition(".")
    return model.get_submodule(path), attribute
