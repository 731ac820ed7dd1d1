"""The origin of the first number that is not finite."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trainyard.formats.tensors.contract import Kind, Statistic, Step, TensorInfo
from trainyard.insight.rules.contract import DebuggerRule, Finding, Need, Parameter, Severity
from trainyard.insight.rules.readings import ChosenTensors, Flags, Places, Reader, Reading, Track

ACTIVATIONS = r"_(input|output)_\d+$"
# How many modules a message names at most.
MAX_SUSPECTS = 8
PARAMETERS = (Kind.WEIGHT, Kind.BIAS)


class NotANumber(DebuggerRule):
    """Finds the module, the pass and the rank in which numbers stopped being finite."""

    name = "NotANumber"
    parameters = (
        Parameter("activations", bool, True, "Check the inputs and outputs of all modules, to name the one at fault."),
        Parameter("gradient_patience", int, 1, "For how many steps gradients alone must be affected.", at_least=1),
    )

    def __init__(self, *, activations: bool, gradient_patience: int) -> None:
        regexes = (ACTIVATIONS,) if activations else ()
        self._needs = Need(collections=("losses", "weights", "biases", "gradients"), regexes=regexes)
        self._patience, self._reader = gradient_patience, Reader(self._needs)
        self._orders: dict[ChosenTensors, _TensorOrder] = {}
        self._losses: defaultdict[str, Track] = defaultdict(Track)
        # Consecutive bad steps by worker.
        self._count: defaultdict[str, int] = defaultdict(int)

    @property
    def needs(self) -> Need:
        return self._needs

    def check(self, step: Step) -> Iterator[Finding]:
        reading = self._reader.read(step)
        order = self._tensor_order(reading.chosen)
        for loss in reading.values()[order.is_kind(Kind.LOSS)][:1]:
            self._losses[step.worker].add(step.number, float(loss))
        nans, infs = reading.column(Statistic.NANS) > 0, reading.column(Statistic.INFS) > 0
        # Activations such as masked scores are infinite on purpose. Once something is NaN, they may be its cause.
        bad = nans | (infs & ~order.is_kind(Kind.INPUT, Kind.OUTPUT))
        self._count[step.worker] = self._count[step.worker] + 1 if bad.any() else 0
        is_of_gradients = not (bad & ~order.is_kind(Kind.GRADIENT)).any()
        if bad.any() and self._count[step.worker] == (self._patience if is_of_gradients else 1):
            yield self._finding(reading, order.cause(bad | (infs & order.is_kind(Kind.OUTPUT))))

    def _tensor_order(self, chosen: ChosenTensors) -> "_TensorOrder":
        if chosen not in self._orders:
            self._orders[chosen] = _TensorOrder(chosen.tensors)
        return self._orders[chosen]

    def _finding(self, reading: Reading, cause: "_Cause") -> Finding:
        step, tensor = reading.step, reading.tensors[cause.index]
        count = int(reading.rows[cause.index, Statistic.NANS] + reading.rows[cause.index, Statistic.INFS])
        return Finding(
            step.number,
            step.mode,
            step.worker,
            tensor.name,
            f"In step {step.number} of {step.worker}, {count} of the {tensor.size} elements of {tensor.name} are NaN "
            f"or infinite, {cause.where}.",
            value=float(count),
            threshold=0.0,
            severity=Severity.CRITICAL,
            evidence=(self._losses[step.worker].evidence("loss"),),
            module=cause.module,
        )


@dataclass(frozen=True, slots=True)
class _Cause:
    """The tensor at fault; `where` is the end of the sentence about it."""

    index: int
    module: str
    where: str


class _TensorOrder:
    """The kinds of the tensors of a table, and the order in which a step computes them."""

    def __init__(self, tensors: Sequence[TensorInfo]) -> None:
        self._tensors = tensors
        self._kinds = np.array([tensor.kind for tensor in tensors])

    def is_kind(self, *kinds: Kind) -> Flags:
        return np.isin(self._kinds, kinds)

    def cause(self, bad: Flags) -> _Cause:
        """Return the first tensor that is not finite, in the order of the computation, and what caused it."""
        forward = np.flatnonzero(bad & self.is_kind(Kind.INPUT, Kind.OUTPUT))
        losses = np.flatnonzero(bad & self.is_kind(Kind.LOSS))
        gradients = np.flatnonzero(bad & self.is_kind(Kind.GRADIENT))
        parameters = np.flatnonzero(bad & self.is_kind(*PARAMETERS))
        if len(forward):
            return self._activation(int(forward[0]), parameters)
        if len(parameters) and (not self._order or not len(losses) + len(gradients)):
            return self._parameter(int(parameters[0]))
        if len(losses):
            return _Cause(int(losses[0]), "", "although its inputs are finite: the loss function produced them")
        return self._gradient(gradients)

    def _activation(self, index: int, parameters: Places) -> _Cause:
        tensor = self._tensors[index]
        module = tensor.module or "the model"
        if tensor.kind is Kind.INPUT:
            is_first = tensor.module == "" or not np.any(self.is_kind(Kind.OUTPUT)[:index])
            came_from = (
                "they are in the batch" if is_first else "an operation before it that is not a module produced them"
            )
            return _Cause(index, tensor.module, f"the first in the forward pass, as an input of {module}: {came_from}")
        for parameter in parameters:
            if self._tensors[parameter].module == tensor.module:
                return self._parameter(int(parameter))
        where = f"the first in the forward pass, while its inputs are finite: the module {module} produced them"
        return _Cause(index, tensor.module, where)

    def _parameter(self, index: int) -> _Cause:
        where = "before anything was computed with it: the previous update or the program produced them"
        return _Cause(index, self._tensors[index].module, where)

    def _gradient(self, gradients: Places) -> _Cause:
        """Return the first bad gradient: the one whose module comes last in the forward pass."""
        index = int(max(gradients, key=self._forward_place))
        module = self._tensors[index].module
        between = self._modules_after(index, set(gradients.tolist()))
        made = f"the backward pass of {module or 'the model'} or of a later module produced them"
        if between:
            made += f" ({', '.join(between[:MAX_SUSPECTS])}{', …' if len(between) > MAX_SUSPECTS else ''})"
        where = f"the first in the backward pass, while the forward pass and its loss are finite: {made}"
        return _Cause(index, module, where)

    @cached_property
    def _order(self) -> Mapping[str, int]:
        """The modules with known outputs, and the position of the last output of each."""
        return {tensor.module: place for place, tensor in enumerate(self._tensors) if tensor.kind is Kind.OUTPUT}

    def _forward_place(self, index: int) -> int:
        return self._order.get(self._tensors[index].module, index - len(self._tensors))

    def _modules_after(self, index: int, bad: set[int]) -> list[str]:
        """Return the modules that a gradient passed through since it was last finite."""
        start = self._forward_place(index)
        sound = [
            self._forward_place(place)
            for place in np.flatnonzero(self.is_kind(Kind.GRADIENT)).tolist()
            if place not in bad and self._forward_place(place) > start
        ]
        end = min(sound, default=len(self._tensors))
        names = [name for name, place in self._order.items() if name and start < place <= end]
        return [name for name in names if not any(other.startswith(f"{name}.") for other in self._order)]
