"""The models whose tensors are captured, named by the program or found automatically."""

import weakref
from collections.abc import Callable

import torch
from torch import nn

from trainyard.instance.hook.pytorch import patches
from trainyard.instance.hook.pytorch.model_finder import ModelFinder
from trainyard.instance.hook.pytorch.parameters import ParameterPlan, plan_models, plan_optimizer, signature
from trainyard.instance.hook.pytorch.roots import ForwardListener, Root, all_modules, parameters_of
from trainyard.instance.hook.recording import HookRecording


class WatchedModels(ModelFinder):
    """Plans what to observe of the models' parameters.

    `attach` is called for each model, to attach to its layers as well.
    """

    def __init__(
        self, recording: HookRecording, listener: ForwardListener, *, finds: bool, attach: Callable[[Root], None]
    ) -> None:
        super().__init__(listener, finds=finds)
        self._recording, self._attach = recording, attach
        self._plans: weakref.WeakKeyDictionary[torch.optim.Optimizer, ParameterPlan] = weakref.WeakKeyDictionary()
        self._steps_ours: weakref.WeakKeyDictionary[torch.optim.Optimizer, tuple[tuple[int, ...], bool]]
        self._steps_ours = weakref.WeakKeyDictionary()
        self._plan_of_all: ParameterPlan | None = None
        if not finds:
            self._observe_existing()

    def is_stepped_by(self, optimizer: torch.optim.Optimizer) -> bool:
        if self.finds:
            return True
        known, now = self._steps_ours.get(optimizer), signature(optimizer, has_state=False)
        if known is None or known[0] != now:
            own = {id(parameter) for parameter in self.parameters()}
            known = self._steps_ours[optimizer] = (
                now,
                any(id(parameter) in own for parameter in parameters_of(optimizer)),
            )
        return known[1]

    def add(self, top: nn.Module) -> Root | None:
        root = super().add(top)
        if root is not None:
            self._attach(root)
            self._plans.clear()
            self._steps_ours.clear()
            self._plan_of_all = None
        return root

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

    def _observe_existing(self) -> None:
        """Register existing modules, because a hook that is created late has missed their creation."""
        for module in all_modules():
            self.observe_module(module)
            if isinstance(module, nn.modules.loss._Loss):
                patches.attach_to_loss(module)
