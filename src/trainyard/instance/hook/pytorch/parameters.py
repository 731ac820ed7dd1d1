"""Plans which parameters, gradients and optimizer states to observe when an optimizer steps."""

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch

from trainyard.formats.tensors.contract import Kind, TensorInfo
from trainyard.instance.hook.pytorch import naming, values
from trainyard.instance.hook.pytorch.roots import Root, parameters_of
from trainyard.instance.hook.recording import HookRecording
from trainyard.instance.hook.selection import SaveRequest, TensorSettings
from trainyard.instance.hook.steps import OpenStep


@dataclass(frozen=True, slots=True)
class NamedParameter:
    parameter: torch.Tensor
    name: str
    module: str


@dataclass(frozen=True, slots=True)
class PlannedTensor:
    """A tensor to observe. Gradients and the optimizer's state are looked up at that moment."""

    parameter: torch.Tensor
    name: str
    kind: Kind
    module: str
    settings: TensorSettings
    state: Callable[[], torch.Tensor | None] | None = None

    @property
    def is_frozen(self) -> bool:
        return self.kind is not Kind.GRADIENT and not self.parameter.requires_grad

    @property
    def tensor(self) -> torch.Tensor | None:
        if self.kind is Kind.GRADIENT:
            return self.parameter.grad
        return self.parameter if self.state is None else self.state()


@dataclass(frozen=True, slots=True)
class StepTensors:
    """What to observe of a plan in steps of one kind. `places` are the same tuples in all of them."""

    entries: tuple[PlannedTensor, ...]
    places: tuple[int, ...]
    with_histogram: tuple[PlannedTensor, ...]
    histogram_places: tuple[int, ...]
    saved: tuple[tuple[PlannedTensor, int, SaveRequest], ...]
    lacks: int


@dataclass(slots=True)
class ParameterPlan:
    """Everything to observe of an optimizer's parameters. Built once, and again when the optimizer has changed."""

    entries: tuple[PlannedTensor, ...]
    signature: tuple[int, ...] = ()
    has_state: bool = False
    by_step_kind: dict[tuple[bool, frozenset[str]], StepTensors] = field(default_factory=dict)

    def is_of(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether the optimizer still has the parameters that the plan was built for."""
        return self.signature == signature(optimizer, has_state=self.has_state)

    def tensors_of(self, recording: HookRecording, step: OpenStep) -> StepTensors:
        key = (step.is_full, step.due)
        tensors = self.by_step_kind.get(key)
        if tensors is None:
            tensors = self.by_step_kind[key] = self._select(recording, step)
        return tensors

    def _select(self, recording: HookRecording, step: OpenStep) -> StepTensors:
        observed: list[PlannedTensor] = []
        saved: list[tuple[PlannedTensor, SaveRequest]] = []
        lacks = 0
        for entry in self.entries:
            request = recording.save_request(entry.settings, step)
            if request is not None:
                saved.append((entry, request))
            if request is not None or (step.is_full and entry.settings.is_tracked and not entry.is_frozen):
                observed.append(entry)
            elif entry.settings.is_tracked and not entry.is_frozen:
                lacks += 1
        shown = {entry.name for entry, request in saved if request.has_histogram}
        plain = tuple(entry for entry in observed if entry.name not in shown)
        with_histogram = tuple(entry for entry in observed if entry.name in shown)
        recording.table.add(_info(entry) for entry in observed)
        places = {entry.name: recording.table.place(entry.name) or 0 for entry in observed}
        return StepTensors(
            plain,
            tuple(places[entry.name] for entry in plain),
            with_histogram,
            tuple(places[entry.name] for entry in with_histogram),
            tuple((entry, places[entry.name], request) for entry, request in saved),
            lacks,
        )


def plan_optimizer(recording: HookRecording, roots: Sequence[Root], optimizer: torch.optim.Optimizer) -> ParameterPlan:
    """Plan the gradients of an optimizer's parameters, then the values of these and of frozen parameters.

    A trainable parameter that the optimizer does not have is planned with its gradient too: this is how rules
    distinguish it from a frozen one.
    """
    stepped = parameters_of(optimizer)
    named = list(_named_parameters(roots, stepped))
    trained = {id(each.parameter) for each in named if each.parameter.requires_grad}
    entries = list(_entries(recording, named, trained | {id(parameter) for parameter in stepped}))
    entries += _states(recording, named, optimizer)
    has_state = _selects_state(recording, named)
    return ParameterPlan(tuple(entries), signature(optimizer, has_state=has_state), has_state)


def plan_models(recording: HookRecording, roots: Sequence[Root]) -> ParameterPlan:
    """Plan all parameters of the models, whatever steps them."""
    named = list(_named_parameters(roots, ()))
    trained = {id(each.parameter) for each in named if each.parameter.requires_grad}
    return ParameterPlan(tuple(_entries(recording, named, trained)))


def signature(optimizer: torch.optim.Optimizer, *, has_state: bool) -> tuple[int, ...]:
    """Return a value that changes when the optimizer gets other parameters, and when its state is first created."""
    sizes = (len(group["params"]) for group in optimizer.param_groups)
    first = id(optimizer.param_groups[0]["params"][0]) if optimizer.param_groups[0]["params"] else 0
    return (*sizes, first, len(optimizer.state) if has_state else -1)


def _named_parameters(roots: Sequence[Root], stepped: Sequence[torch.Tensor]) -> Iterator[NamedParameter]:
    """Yield the parameters of all models that the optimizer steps, and its parameters outside of models."""
    wanted, known = {id(parameter) for parameter in stepped}, set()
    for root in roots:
        model = root.model
        own = list(model.named_parameters()) if model is not None else []
        if stepped and wanted.isdisjoint(id(parameter) for _, parameter in own):
            continue
        for name, parameter in own:
            if id(parameter) not in known:
                known.add(id(parameter))
                path = naming.path(name)
                yield NamedParameter(parameter, f"{root.name}_{path}", path.rpartition(".")[0])
    for number, parameter in enumerate(stepped):
        if id(parameter) not in known:
            yield NamedParameter(parameter, f"Parameter_{number}.weight", "")


def _entries(recording: HookRecording, named: Sequence[NamedParameter], stepped: set[int]) -> Iterator[PlannedTensor]:
    settings_of = recording.selection.settings
    for each in named:
        settings = settings_of(f"gradient/{each.name}")
        if id(each.parameter) in stepped and _is_selected(settings):
            yield PlannedTensor(each.parameter, f"gradient/{each.name}", Kind.GRADIENT, each.module, settings)
    for each in named:
        settings = settings_of(each.name)
        if _is_selected(settings):
            kind = Kind.BIAS if each.name.rpartition(".")[2].startswith("bias") else Kind.WEIGHT
            yield PlannedTensor(each.parameter, each.name, kind, each.module, settings)


def _states(
    recording: HookRecording, named: Iterable[NamedParameter], optimizer: torch.optim.Optimizer
) -> Iterator[PlannedTensor]:
    for each in named:
        state = optimizer.state.get(each.parameter, {})
        for word, value in state.items():
            settings = recording.selection.settings(f"optimizer/{word}/{each.name}")
            if isinstance(value, torch.Tensor) and value.dim() and _is_selected(settings):
                name = f"optimizer/{word}/{each.name}"
                look_up = _StateOf(optimizer, each.parameter, word)
                yield PlannedTensor(each.parameter, name, Kind.OPTIMIZER, each.module, settings, state=look_up)


class _StateOf:
    """Looks up a state each time: an optimizer that loads a checkpoint replaces its tensors."""

    def __init__(self, optimizer: torch.optim.Optimizer, parameter: torch.Tensor, word: str) -> None:
        self._optimizer, self._parameter, self._word = weakref.ref(optimizer), parameter, word

    def __call__(self) -> torch.Tensor | None:
        optimizer = self._optimizer()
        state = None if optimizer is None else optimizer.state.get(self._parameter, {}).get(self._word)
        return state if isinstance(state, torch.Tensor) else None


_COMMON_STATES = ("exp_avg", "exp_avg_sq", "momentum_buffer", "square_avg", "sum")


def _selects_state(recording: HookRecording, named: Iterable[NamedParameter]) -> bool:
    """Whether any state of a parameter is selected, even if it does not exist yet."""
    names = (f"optimizer/{word}/{each.name}" for each in named for word in _COMMON_STATES)
    return any(recording.selection.is_selected(name) for name in names)


def _is_selected(settings: TensorSettings) -> bool:
    return settings.is_tracked or bool(settings.included)


def _info(entry: PlannedTensor) -> TensorInfo:
    # A gradient has the shape of its parameter, even if it is sparse or does not exist yet.
    state = entry.state() if entry.state is not None else None
    return values.describe(entry.name, entry.kind, entry.parameter if state is None else state, module=entry.module)
