"""The models of a program and the optimizers that step them: those it names, or those that are found by themselves."""

import weakref
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import nn

from trainyard.instance.hook.pytorch import naming, patches
from trainyard.instance.hook.pytorch.parameters import Plan, make_plan, make_plan_of, parameters_of, signature
from trainyard.instance.hook.pytorch.roots import ModelWatcher, Modules, Root, all_modules, trained_children
from trainyard.instance.hook.recording import Recording

_MOST_LOOKS = 5


class Models:
    """Knows which models are watched, and plans what is taken of their parameters.

    Where it `finds` them, they are the outermost modules around the parameters of each optimizer. `hang` is called for
    each model, to listen to its layers as well.
    """

    def __init__(
        self, recording: Recording, watcher: ModelWatcher, *, finds: bool, hang: Callable[[Root], None]
    ) -> None:
        self._recording, self._watcher, self._finds, self._hang = recording, watcher, finds, hang
        self._modules = Modules()
        self._plans: weakref.WeakKeyDictionary[torch.optim.Optimizer, Plan] = weakref.WeakKeyDictionary()
        self._ours: weakref.WeakKeyDictionary[torch.optim.Optimizer, tuple[tuple[int, ...], bool]]
        self._ours = weakref.WeakKeyDictionary()
        self._searched: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._optimizers: weakref.WeakKeyDictionary[torch.optim.Optimizer, None] = weakref.WeakKeyDictionary()
        self._plan_of_all: Plan | None = None
        self._looks = 0
        self.roots: list[Root] = []
        if not finds:
            self._meet_existing()

    @property
    def finds(self) -> bool:
        return self._finds

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """Those that were seen, in the order in which they were."""
        return list(self._optimizers)

    @property
    def models(self) -> list[nn.Module]:
        return [model for root in self.roots if (model := root.model) is not None]

    def meet_module(self, module: nn.Module) -> None:
        self._modules.add(module)

    def meet_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizers[optimizer] = None
        if self._finds:
            self._find(optimizer, searches=False)

    def meet_step(self, optimizer: torch.optim.Optimizer) -> bool:
        """An optimizer is about to step; whether it steps any of the models."""
        self._optimizers[optimizer] = None
        if self._finds and optimizer not in self._searched:
            self._searched.add(optimizer)
            self._find(optimizer, searches=True)
        return self.is_stepped_by(optimizer)

    def is_stepped_by(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether an optimizer steps any parameter of the models; where models are found, it does."""
        if self._finds:
            return True
        known, now = self._ours.get(optimizer), signature(optimizer, has_state=False)
        if known is None or known[0] != now:
            own = {id(parameter) for parameter in self.parameters()}
            known = self._ours[optimizer] = now, any(id(parameter) in own for parameter in parameters_of(optimizer))
        return known[1]

    def add(self, top: nn.Module) -> None:
        """Watch a model, in whatever it is wrapped; one that is watched already is looked for in this wrapper."""
        model = naming.chain(top)[-1]
        for root in self.roots:
            if root.model is model:
                root.hang(top)
                return
        # A program that trains one model after the other gives each the same names.
        self.roots = [root for root in self.roots if root.model is not None]
        name = naming.class_name(model)
        same = sum(1 for root in self.roots if root.name.rstrip("0123456789") == name)
        root = Root(top, f"{name}{same or ''}", self._watcher, is_first=not self.roots)
        self.roots.append(root)
        self._hang(root)
        self._plans.clear()
        self._ours.clear()
        self._plan_of_all = None

    def remove(self) -> None:
        for root in self.roots:
            root.remove()

    def plan(self, optimizer: torch.optim.Optimizer) -> Plan:
        """What is taken when an optimizer steps."""
        plan = self._plans.get(optimizer)
        if plan is None or not plan.is_of(optimizer):
            plan = self._plans[optimizer] = make_plan(self._recording, self.roots, optimizer)
        return plan

    def plan_of_all(self) -> Plan:
        """What is taken of all models where no optimizer tells when."""
        if self._plan_of_all is None:
            self._plan_of_all = make_plan_of(self._recording, self.roots)
        return self._plan_of_all

    def parameters(self) -> Iterator[torch.Tensor]:
        for model in self.models:
            yield from model.parameters()

    def look_again(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer has stepped and no model was seen: it was wrapped since, compiled in place, or is never called
        itself, but its parts are."""
        self._looks += 1
        if self._looks == 1:
            for root in self.roots:
                if root.model is not None and not root.calls:
                    root.hang(self._modules.wrapper_of(root.model))
        elif self._looks <= _MOST_LOOKS and self._finds:
            self._descend(parameters_of(optimizer))

    def _meet_existing(self) -> None:
        """A hook that is made late has missed how modules were made."""
        for module in all_modules():
            self._modules.add(module)
            if isinstance(module, nn.modules.loss._Loss):
                patches.hang_on_loss(module)

    def _find(self, optimizer: torch.optim.Optimizer, *, searches: bool) -> None:
        known = {id(parameter) for parameter in self.parameters()}
        missing = [parameter for parameter in parameters_of(optimizer) if id(parameter) not in known]
        for top in self._modules.tops(missing, searches=searches) if missing else ():
            self.add(top)

    def _descend(self, stepped: Sequence[torch.Tensor]) -> None:
        for root in [root for root in self.roots if not root.calls]:
            children = trained_children(root.model, stepped) if root.model is not None else []
            if children:
                root.remove()
                self.roots.remove(root)
            for child in children:
                self.add(child)
