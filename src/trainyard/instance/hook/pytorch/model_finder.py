"""Finds the models of a program: the outermost modules around the parameters that its optimizers step."""

import weakref
from collections.abc import Iterator, Sequence

import torch
from torch import nn

from trainyard.instance.hook.pytorch import naming
from trainyard.instance.hook.pytorch.roots import (
    ForwardListener,
    ModuleRegistry,
    Root,
    parameters_of,
    trained_children,
)

_MAX_RETRIES = 5


class ModelFinder:
    """Knows the models of a program and the optimizers that step them; its listener receives their forwards.

    If it `finds` models, it adds those around the parameters of each optimizer by itself. `references` has the
    optimizers that were observed so far and are alive, by id. `searched` has the ids of those that have stepped; to
    observe another step of theirs changes nothing.
    """

    def __init__(self, listener: ForwardListener, *, finds: bool = True) -> None:
        self._listener, self._finds = listener, finds
        self._modules = ModuleRegistry()
        # Ids are looked up faster than what weak containers compare.
        self.references: dict[int, weakref.ref[torch.optim.Optimizer]] = {}
        self.searched: set[int] = set()
        self._retries = self._unoptimized_searches = 0
        self.roots: list[Root] = []

    @property
    def finds(self) -> bool:
        return self._finds

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """The optimizers observed so far, in that order."""
        alive = (reference() for reference in list(self.references.values()))
        return [optimizer for optimizer in alive if optimizer is not None]

    @property
    def models(self) -> list[nn.Module]:
        return [model for root in self.roots if (model := root.model) is not None]

    def observe_module(self, module: nn.Module) -> None:
        self._modules.add(module)

    def observe_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        self._remember(optimizer)
        if self._finds:
            self._find(optimizer, searches=False)

    def observe_step(self, optimizer: torch.optim.Optimizer) -> bool:
        """Observe an optimizer about to step; return whether it steps any of the models."""
        key = id(optimizer)
        if key not in self.searched:
            self._remember(optimizer)
            self.searched.add(key)
            if self._finds:
                self._find(optimizer, searches=True)
        return self.is_stepped_by(optimizer)

    def find_without_optimizer(self) -> None:
        """Find the outermost modules that have gradients, in a program that steps its parameters itself."""
        self._unoptimized_searches += 1
        if self._finds and not self.roots and self._unoptimized_searches <= _MAX_RETRIES:
            for top in self._modules.tops_with_gradients():
                self.add(top)

    def is_stepped_by(self, _optimizer: torch.optim.Optimizer) -> bool:
        """Whether an optimizer steps any parameter of the models. Always true if models are found automatically."""
        return True

    def add(self, top: nn.Module) -> Root | None:
        """Watch a model with its wrappers. If it is watched already, attach to these wrappers and return None."""
        model = naming.chain(top)[-1]
        for root in self.roots:
            if root.model is model:
                root.attach(top)
                return None
        # If a program trains one model after the other, each gets the same names.
        self.roots = [root for root in self.roots if root.model is not None]
        name = naming.class_name(model)
        same = sum(1 for root in self.roots if root.name.rstrip("0123456789") == name)
        root = Root(top, f"{name}{same or ''}", self._listener, is_first=not self.roots)
        self.roots.append(root)
        return root

    def detach(self) -> None:
        for root in self.roots:
            root.detach()

    def parameters(self) -> Iterator[torch.Tensor]:
        for model in self.models:
            yield from model.parameters()

    def retry_attaching(self, optimizer: torch.optim.Optimizer) -> None:
        """Attach again after an optimizer stepped without an observed forward.

        The model was wrapped later or compiled in place, or the program calls only its parts.
        """
        self._retries += 1
        if self._retries == 1:
            for root in self.roots:
                if root.model is not None and not root.calls:
                    root.attach(self._modules.wrapper_of(root.model))
        elif self._retries <= _MAX_RETRIES and self._finds:
            self._descend(parameters_of(optimizer))

    def _remember(self, optimizer: torch.optim.Optimizer) -> None:
        key = id(optimizer)

        def forget(_: weakref.ref[torch.optim.Optimizer]) -> None:
            # Another one may get the same id.
            self.references.pop(key, None)
            self.searched.discard(key)

        if key not in self.references:
            self.references[key] = weakref.ref(optimizer, forget)

    def _find(self, optimizer: torch.optim.Optimizer, *, searches: bool) -> None:
        known = {id(parameter) for parameter in self.parameters()}
        missing = [parameter for parameter in parameters_of(optimizer) if id(parameter) not in known]
        for top in self._modules.tops(missing, searches=searches) if missing else ():
            self.add(top)

    def _descend(self, stepped: Sequence[torch.Tensor]) -> None:
        for root in [root for root in self.roots if not root.calls]:
            children = trained_children(root.model, stepped) if root.model is not None else []
            if children:
                root.detach()
                self.roots.remove(root)
            for child in children:
                self.add(child)
