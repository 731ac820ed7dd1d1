"""A tensor of a trial, for rules and notebooks."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Any, NoReturn

from numpy.typing import NDArray

from trainyard.formats.tensors import errors
from trainyard.formats.tensors.trials import tensor as tensors
from trainyard.foundation.errors import InvalidRequest

from ..exceptions import (
    InvalidWorker,
    MissingCollectionFiles,
    NoMoreData,
    ShapeUnavailableForStep,
    SMDebugNotImplementedError,
    SMDebugValueError,
    StepNotYetAvailable,
    StepUnavailable,
    TensorUnavailable,
    TensorUnavailableForStep,
)
from .modes import ModeKeys, to_key, to_mode

if TYPE_CHECKING:
    from ..trials.trial import Trial

_SCALAR_PREFIX = "scalar/"


class StepState(Enum):
    """Whether a step can be read."""

    UNAVAILABLE = 0
    AVAILABLE = 1
    NOT_YET_AVAILABLE = 2


class Tensor:
    """What was saved of one tensor. The default worker is the first one.

    Values exist for the steps at which they were saved, reductions for every step.
    """

    def __init__(self, name: str, trial: "Trial", tensor: tensors.Tensor) -> None:
        self.name, self.trial, self._tensor = name, trial, tensor

    @property
    def original_name(self) -> str:
        return self._tensor.original_name

    def steps(self, mode: ModeKeys = ModeKeys.GLOBAL, show_incomplete_steps: bool = False) -> list[int]:
        with translate_errors():
            return self._tensor.steps(to_mode(mode), show_incomplete_steps)

    def prev_steps(self, step: int, n: int | None = None, mode: ModeKeys = ModeKeys.GLOBAL) -> list[int]:
        """Return the saved steps up to and including one, or the last `n` of them."""
        with translate_errors():
            return self._tensor.prev_steps(step, n or None, to_mode(mode))

    def workers(self, step_num: int, mode: ModeKeys = ModeKeys.GLOBAL) -> list[str]:
        with translate_errors():
            return self._tensor.workers(step_num, to_mode(mode))

    def value(self, step_num: int, mode: ModeKeys = ModeKeys.GLOBAL, worker: str | None = None) -> NDArray[Any]:
        with translate_errors():
            self._require_saved(step_num, mode)
            return self._as_saved(self._tensor.value(step_num, to_mode(mode), worker))

    def values(self, mode: ModeKeys = ModeKeys.GLOBAL, worker: str | None = None) -> dict[int, NDArray[Any]]:
        """Return the value at every saved step. Raises TensorUnavailableForStep if only reductions were saved."""
        with translate_errors():
            steps, values = self._tensor.steps(to_mode(mode)), self._tensor.values(to_mode(mode), worker)
        missing = [step for step in steps if step not in values]
        if missing:
            raise TensorUnavailableForStep(self.name, missing[0], mode, has_reductions=True)
        return {step: self._as_saved(value) for step, value in values.items()}

    def reduction_value(
        self,
        step_num: int,
        reduction_name: str,
        mode: ModeKeys = ModeKeys.GLOBAL,
        worker: str | None = None,
        abs: bool = False,  # noqa: A002
    ) -> float:
        with translate_errors():
            return self._tensor.reduction_value(step_num, reduction_name, to_mode(mode), worker, abs)

    def reduction_values(
        self, step_num: int, mode: ModeKeys = ModeKeys.GLOBAL, worker: str | None = None
    ) -> dict[tuple[str, bool], float]:
        """Return all known reductions of the tensor, by name and whether they are of absolute values."""
        with translate_errors():
            return self._tensor.reduction_values(step_num, to_mode(mode), worker)

    def shape(self, step_num: int, mode: ModeKeys = ModeKeys.GLOBAL, worker: str | None = None) -> tuple[int, ...]:
        with translate_errors():
            shape = self._tensor.shape(step_num, to_mode(mode), worker)
        return shape or (1,) if self.name.startswith(_SCALAR_PREFIX) else shape

    def step(self, *_arguments: Any, **_options: Any) -> NoReturn:
        raise SMDebugNotImplementedError("Tensor.step() was removed; use value() or reduction_value().")

    def _require_saved(self, step: int, mode: ModeKeys) -> None:
        if step in self._tensor.steps(to_mode(mode), show_incomplete_steps=True):
            return
        state = self.trial.has_passed_step(step, mode)
        if state is StepState.AVAILABLE:
            raise TensorUnavailableForStep(self.name, step, mode)
        if state is StepState.UNAVAILABLE:
            raise StepUnavailable(step, mode)

    def _as_saved(self, value: NDArray[Any]) -> NDArray[Any]:
        """Return a value in smdebug's shape, in which scalars of `save_scalar` are arrays of one number."""
        return value.reshape(1) if self.name.startswith(_SCALAR_PREFIX) and not value.shape else value


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise smdebug's errors, which scripts catch, in place of ours."""
    try:
        yield
    except errors.TensorUnavailable as error:
        raise TensorUnavailable(error.name) from error
    except errors.TensorUnavailableForStep as error:
        key = to_key(error.mode)
        raise TensorUnavailableForStep(error.name, error.step, key, error.has_reductions) from error
    except errors.ShapeUnavailableForStep as error:
        raise ShapeUnavailableForStep(error.name, error.step, to_key(error.mode)) from error
    except errors.StepUnavailable as error:
        raise StepUnavailable(error.step, to_key(error.mode)) from error
    except errors.StepNotYetAvailable as error:
        raise StepNotYetAvailable(error.step, to_key(error.mode)) from error
    except errors.NoMoreData as error:
        raise NoMoreData(error.step, to_key(error.mode), error.last_step) from error
    except errors.MissingCollectionFiles as error:
        raise MissingCollectionFiles from error
    except errors.InvalidWorker as error:
        raise InvalidWorker(error.worker) from error
    except InvalidRequest as error:
        raise SMDebugValueError(str(error)) from error
