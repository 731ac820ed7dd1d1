"""The parameters that an optimizer steps, with their gradients and its state, as tensors of a step."""

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch

from trainyard.formats.tensors.contract import Kind, TensorInfo
from trainyard.instance.hook.collecting import Choice, Saved
from trainyard.instance.hook.pytorch import naming, values
from trainyard.instance.hook.pytorch.roots import Root
from trainyard.instance.hook.recording import Recording
from trainyard.instance.hook.steps import OpenStep


@dataclass(frozen=True, slots=True)
class Named:
    parameter: torch.Tensor
    name: str
    module: str


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor of the plan. Gradients and the optimizer's state are looked up when they are taken."""

    parameter: torch.Tensor
    name: str
    kind: Kind
    module: str
    choice: Choice
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
class Batch:
    """What of a plan is taken in steps of one sort. Places are the same tuples in all of them."""

    entries: tuple[Entry, ...]
    places: tuple[int, ...]
    shown: tuple[Entry, ...]  # those with a histogram
    shown_places: tuple[int, ...]
    saved: tuple[tuple[Entry, int, Saved], ...]
    lacks: int


@dataclass(slots=True)
class Plan:
    """All that is ever asked of an optimizer's parameters. Made once, and anew when the optimizer has changed."""

    entries: tuple[Entry, ...]
    signature: tuple[int, ...] = ()
    has_state: bool = False
    batches: dict[tuple[bool, frozenset[str]], Batch] = field(default_factory=dict)

    def is_of(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether the optimizer is still the same that the plan was made for."""
        return self.signature == signature(optimizer, has_state=self.has_state)

    def batch(self, recording: Recording, step: OpenStep) -> Batch:
        key = (step.is_full, step.due)
        found = self.batches.get(key)
        if found is None:
            found = self.batches[key] = self._make(recording, step)
        return found

    def _make(self, recording: Recording, step: OpenStep) -> Batch:
        taken: list[Entry] = []
        saved: list[tuple[Entry, Saved]] = []
        lacks = 0
        for entry in self.entries:
            wish = recording.saved(entry.choice, step)
            if wish is not None:
                saved.append((entry, wish))
            if wish is not None or (step.is_full and entry.choice.is_followed and not entry.is_frozen):
                taken.append(entry)
            elif entry.choice.is_followed and not entry.is_frozen:
                lacks += 1
        shown = {entry.name for entry, wish in saved if wish.has_histogram}
        plain = tuple(entry for entry in taken if entry.name not in shown)
        drawn = tuple(entry for entry in taken if entry.name in shown)
        recording.table.add(_info(entry) for entry in taken)
        places = {entry.name: recording.table.place(entry.name) or 0 for entry in taken}
        return Batch(
            plain,
            tuple(places[entry.name] for entry in plain),
            drawn,
            tuple(places[entry.name] for entry in drawn),
            tuple((entry, places[entry.name], wish) for entry, wish in saved),
            lacks,
        )


def make_plan(recording: Recording, roots: Sequence[Root], optimizer: torch.optim.Optimizer) -> Plan:
    """The gradients of the optimizer's parameters, then their values with those of the frozen ones beside them.

    A parameter that the optimizer was not given, though it can be trained, has its gradient taken too: rules tell it
    from one that is frozen by that.
    """
    stepped = parameters_of(optimizer)
    named = list(_named(roots, stepped))
    trained = {id(each.parameter) for each in named if each.parameter.requires_grad}
    entries = list(_entries(recording, named, trained | {id(parameter) for parameter in stepped}))
    entries += _states(recording, named, optimizer)
    has_state = _asks_for_state(recording, named)
    return Plan(tuple(entries), signature(optimizer, has_state=has_state), has_state)


def make_plan_of(recording: Recording, roots: Sequence[Root]) -> Plan:
    """Whatever steps them: all parameters of the models."""
    named = list(_named(roots, ()))
    trained = {id(each.parameter) for each in named if each.parameter.requires_grad}
    return Plan(tuple(_entries(recording, named, trained)))


def signature(optimizer: torch.optim.Optimizer, *, has_state: bool) -> tuple[int, ...]:
    """Changes when the optimizer is given other parameters, and when its state has come to be."""
    sizes = (len(group["params"]) for group in optimizer.param_groups)
    first = id(optimizer.param_groups[0]["params"][0]) if optimizer.param_groups[0]["params"] else 0
    return (*sizes, first, len(optimizer.state) if has_state else -1)


def parameters_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _named(roots: Sequence[Root], stepped: Sequence[torch.Tensor]) -> Iterator[Named]:
    """The parameters of all models that the optimizer has any of, and those of no model."""
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
                yield Named(parameter, f"{root.name}_{path}", path.rpartition(".")[0])
    for number, parameter in enumerate(stepped):
        if id(parameter) not in known:
            yield Named(parameter, f"Parameter_{number}.weight", "")


def _entries(recording: Recording, named: Sequence[Named], stepped: set[int]) -> Iterator[Entry]:
    choice = recording.selection.choice
    for each in named:
        asked = choice(f"gradient/{each.name}")
        if id(each.parameter) in stepped and _is_asked(asked):
            yield Entry(each.parameter, f"gradient/{each.name}", Kind.GRADIENT, each.module, asked)
    for each in named:
        asked = choice(each.name)
        if _is_asked(asked):
            kind = Kind.BIAS if each.name.rpartition(".")[2].startswith("bias") else Kind.WEIGHT
            yield Entry(each.parameter, each.name, kind, each.module, asked)


def _states(recording: Recording, named: Iterable[Named], optimizer: torch.optim.Optimizer) -> Iterator[Entry]:
    for each in named:
        state = optimizer.state.get(each.parameter, {})
        for word, value in state.items():
            asked = recording.selection.choice(f"optimizer/{word}/{each.name}")
            if isinstance(value, torch.Tensor) and value.dim() and _is_asked(asked):
                name = f"optimizer/{word}/{each.name}"
                look_up = _StateOf(optimizer, each.parameter, word)
                yield Entry(each.parameter, name, Kind.OPTIMIZER, each.module, asked, state=look_up)


class _StateOf:
    """Looks a state up: an optimizer that loads a checkpoint has other tensors from then on."""

    def __init__(self, optimizer: torch.optim.Optimizer, parameter: torch.Tensor, word: str) -> None:
        self._optimizer, self._parameter, self._word = weakref.ref(optimizer), parameter, word

    def __call__(self) -> torch.Tensor | None:
        optimizer = self._optimizer()
        found = None if optimizer is None else optimizer.state.get(self._parameter, {}).get(self._word)
        return found if isinstance(found, torch.Tensor) else None


_STATES = ("exp_avg", "exp_avg_sq", "momentum_buffer", "square_avg", "sum")


def _asks_for_state(recording: Recording, named: Iterable[Named]) -> bool:
    """Whether any state of a parameter is asked for, though it may not have come to be yet."""
    names = (f"optimizer/{word}/{each.name}" for each in named for word in _STATES)
    return any(recording.selection.is_asked(name) for name in names)


def _is_asked(choice: Choice) -> bool:
    return choice.is_followed or bool(choice.included)


def _info(entry: Entry) -> TensorInfo:
    # A gradient that is not there yet, or is sparse, has the shape of its parameter all the same.
    state = entry.state() if entry.state is not None else None
    return values.describe(entry.name, entry.kind, entry.parameter if state is None else state, module=entry.module)
