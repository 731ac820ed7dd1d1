"""One tensor of a trial, as rules and notebooks ask for it."""

from enum import Enum
from typing import TYPE_CHECKING, Any, NoReturn

from numpy.typing import NDArray

from trainyard.formats.tensors import tensor as tensors

from ..exceptions import SMDebugNotImplementedError, StepUnavailable, TensorUnavailableForStep
from .modes import ModeKeys, to_mode
from .translation import translated

if TYPE_CHECKING:
    from ..trials.trial import Trial

_SCALAR = "scalar/"


class StepState(Enum):
    """Whether a step can be had."""

    UNAVAILABLE = 0
    AVAILABLE = 1
    NOT_YET_AVAILABLE = 2


class Tensor:
    """What was saved of one tensor. Without a worker, the first one's is given.

    A value is of the steps in which it was asked to be saved; reductions are known of every step.
    """

    def __init__(self, name: str, trial: "Trial", told: tensors.Tensor) -> None:
        self.name, self.trial, self._told = name, trial, told

    @property
    def original_name(self) -> str:
        return self._told.original_name

    def steps(self, mode: ModeKeys = ModeKeys.GLOBAL, show_incomplete_steps: bool = False) -> list[int]:
        with translated():
            return self._told.steps(to_mode(mode), show_incomplete_steps)

    def prev_steps(self, step: int, n: int | None = None, mode: ModeKeys = ModeKeys.GLOBAL) -> list[int]:
        """The saved steps up to and with one, or the last `n` of them."""
        with translated():
            return self._told.prev_steps(step, n or None, to_mode(mode))

    def workers(self, step_num: int, mode: ModeKeys = ModeKeys.GLOBAL) -> list[str]:
        with translated():
            return self._told.workers(step_num, to_mode(mode))

    def value(self, step_num: int, mode: ModeKeys = ModeKeys.GLOBAL, worker: str | None = None) -> NDArray[Any]:
        with translated():
            self._require_saved(step_num, mode)
            return self._shown(self._told.value(step_num, to_mode(mode), worker))

    def values(self, mode: ModeKeys = ModeKeys.GLOBAL, worker: str | None = None) -> dict[int, NDArray[Any]]:
        """The value at every saved step; TensorUnavailableForStep where only reductions were saved."""
        with translated():
            steps, found = self._told.steps(to_mode(mode)), self._told.values(to_mode(mode), worker)
        lacking = [step for step in steps if step not in found]
        if lacking:
            raise TensorUnavailableForStep(self.name, lacking[0], mode, has_reductions=True)
        return {step: self._shown(value) for step, value in found.items()}

    def reduction_value(
        self,
        step_num: int,
        reduction_name: str,
        mode: ModeKeys = ModeKeys.GLOBAL,
        worker: str | None = None,
        abs: bool = False,  # noqa: A002  # which is how it is spelled there
    ) -> float:
        with translated():
            return self._told.reduction_value(step_num, reduction_name, to_mode(mode), worker, abs)

    def reduction_values(
        self, step_num: int, mode: ModeKeys = ModeKeys.GLOBAL, worker: str | None = None
    ) -> dict[tuple[str, bool], float]:
        """All that is known of the tensor, by the name of the reduction and whether it is of absolute values."""
        with translated():
            return self._told.reduction_values(step_num, to_mode(mode), worker)

    def shape(self, step_num: int, mode: ModeKeys = ModeKeys.GLOBAL, worker: str | None = None) -> tuple[int, ...]:
        with translated():
            shape = self._told.shape(step_num, to_mode(mode), worker)
        return shape or (1,) if self.name.startswith(_SCALAR) else shape

    def step(self, *_arguments: Any, **_options: Any) -> NoReturn:
        raise SMDebugNotImplementedError(
            "A tensor has no step() any more; value() and reduction_value() have taken over."
        )

    def _require_saved(self, step: int, mode: ModeKeys) -> None:
        if step in self._told.steps(to_mode(mode), show_incomplete_steps=True):
            return
        state = self.trial.has_passed_step(step, mode)
        if state is StepState.AVAILABLE:
            raise TensorUnavailableForStep(self.name, step, mode)
        if state is StepState.UNAVAILABLE:
            raise StepUnavailable(step, mode)

    def _shown(self, value: NDArray[Any]) -> NDArray[Any]:
        """What a program tells by `save_scalar` is an array of one number there."""
        return value.reshape(1) if self.name.startswith(_SCALAR) and not value.shape else value
