"""The models of a program and the optimizers that step them, named by the program or found automatically."""

import weakref
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import nn

from trainyard.instance.hook.pytorch import naming, patches
from trainyard.instance.hook.pytorch.parameters import (
    ParameterPlan,
    parameters_of,
    plan_models,
    plan_optimizer,
    signature,
)
from trainyard.instance.hook.pytorch.roots import ForwardListener, ModuleRegistry, Root, all_modules, trained_children
from trainyard.instance.hook.recording import HookRecording

_MAX_RETRIES = 5


class WatchedModels:
    """Knows the watched models, and plans what to observe of their parameters.

    If it `finds` models, they are the outermost modules around the parameters of each optimizer. `attach` is called for
    each model, to attach to its layers as well.
    """

    def __init__(
        self, recording: HookRecording, listener: ForwardListener, *, finds: bool, attach: Callable[[Root], None]
    ) -> None:
        self._recording, self._listener, self._finds, self._attach = recording, listener, finds, attach
        self._modules = ModuleRegistry()
        self._plans: weakref.WeakKeyDictionary[torch.optim.Optimizer, ParameterPlan] = weakref.WeakKeyDictionary()
        self._steps_ours: weakref.WeakKeyDictionary[torch.optim.Optimizer, tuple[tuple[int, ...], bool]]
        self._steps_ours = weakref.WeakKeyDictionary()
        self._searched: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._optimizers: weakref.WeakKeyDictionary[torch.optim.Optimizer, None] = weakref.WeakKeyDictionary()
        self._plan_of_all: ParameterPlan | None = None
        self._retries = 0
        self.roots: list[Root] = []
        if not finds:
            self._observe_existing()

    @property
    def finds(self) -> bool:
        return self._finds

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """The optimizers observed so far, in that order."""
        return list(self._optimizers)

    @property
    def models(self) -> list[nn.Module]:
        return [model for root in self.roots if (model := root.model) is not None]

    def observe_module(self, module: nn.Module) -> None:
        self._modules.add(module)

    def observe_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizers[optimizer] = None
        if self._finds:
            self._find(optimizer, searches=False)

    def observe_step(self, optimizer: torch.optim.Optimizer) -> bool:
        """Observe an optimizer about to step; return whether it steps any of the models."""
        self._optimizers[optimizer] = None
        if self._finds and optimizer not in self._searched:
            self._searched.add(optimizer)
            self._find(optimizer, searches=True)
        return self.is_stepped_by(optimizer)

    def is_stepped_by(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether an optimizer steps any parameter of the models. Always true if models are found automatically."""
        if self._finds:
            return True
        known, now = self._steps_ours.get(optimizer), signature(optimizer, has_state=False)
        if known is None or known[0] != now:
            own = {id(parameter) for parameter in self.parameters()}
            known = self._steps_ours[optimizer] = (
                now,
                any(id(parameter) in own for parameter in parameters_of(optimizer)),
            )
        return known[1]

    def add(self, top: nn.Module) -> None:
        """Watch a model with its wrappers. If it is watched already, attach to these wrappers instead."""
        model = naming.chain(top)[-1]
        for root in self.roots:
            if root.model is model:
                root.attach(top)
                return
        # If a program trains one model after the other, each gets the same names.
        self.roots = [root for root in self.roots if root.model is not None]
        name = naming.class_name(model)
        same = sum(1 for root in self.roots if root.name.rstrip("0123456789") == name)
        root = Root(top, f"{name}{same or ''}", self._listener, is_first=not self.roots)
        self.roots.append(root)
        self._attach(root)
        self._plans.clear()
        self._steps_ours.clear()
        self._plan_of_all = None

    def detach(self) -> None:
        for root in self.roots:
            root.detach()

    def plan(self, optimizer: torch.optim.Optimizer) -> ParameterPlan:
        """Return what to observe when an optimizer steps."""
        plan = self._plans.get(optimizer)
        if plan is None or not plan.is_of(optimizer):
            plan = self._plans[optimizer] = plan_optimizer(self._recording, self.roots, optimizer)
        return plan

    def plan_of_all(self) -> ParameterPlan:
        """Return what to observe of all models if there is no optimizer."""
        if self._plan_of_all is None:
            self._plan_of_all = plan_models(self._recording, self.roots)
        return self._plan_of_all

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

    def _observe_existing(self) -> None:
        """Register existing modules, because a hook that is created late has missed their creation."""
        for module in all_modules():
            self._modules.add(module)
            if isinstance(module, nn.modules.loss._Loss):
                patches.attach_to_loss(module)

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
