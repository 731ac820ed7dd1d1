"""The errors of a trial, each with the request that failed.

    NotFound
    ├── TensorUnavailable           no worker ever had a tensor of that name
    ├── TensorUnavailableForStep    the tensor lacks the requested data in that step
    ├── ShapeUnavailableForStep     its shape in that step is not known
    ├── StepUnavailable             the step was skipped, or never saved
    ├── NoMoreData                  the training ended before the step
    └── MissingCollectionFiles      there is no trial, or it ended without data
    Unavailable
    └── StepNotYetAvailable         the step may still come
    InvalidRequest
    └── InvalidWorker               no worker has that name

All derive from errors of `trainyard.foundation.errors`, so a caller may catch these as well.
"""

from collections.abc import Sequence

from trainyard.formats.tensors.contract import Mode
from trainyard.foundation.errors import InvalidRequest, NotFound, TrainyardError, Unavailable


class TensorUnavailable(NotFound):
    """No worker of the trial ever had a tensor of that name."""

    def __init__(self, name: str, *, trial: str) -> None:
        _set_message(self, f'The trial "{trial}" has no tensor "{name}"; `tensor_names()` lists its tensors.')
        self.kind, self.name, self.trial = "tensor", name, trial


class TensorUnavailableForStep(NotFound):
    """A tensor lacks the requested data in that step. `statistics` names what is available."""

    def __init__(self, name: str, *, step: int, mode: Mode, lacking: str, statistics: Sequence[str] = ()) -> None:
        known = "The step has no data of this tensor"
        if statistics:
            known = f"The step has these statistics, which `reduction_value` returns: {', '.join(statistics)}"
        _set_message(
            self,
            f'The tensor "{name}" has {lacking} in step {step} of {mode}. {known}. To save its values, configure a '
            "collection that includes it, with save_raw_tensor and a save_interval that matches the step.",
        )
        self.kind, self.name, self.step, self.mode = "tensor", name, step, mode
        self.statistics = tuple(statistics)

    @property
    def has_reductions(self) -> bool:
        return bool(self.statistics)


class ShapeUnavailableForStep(NotFound):
    """The shape of a tensor in that step is not known."""

    def __init__(self, name: str, *, step: int, mode: Mode) -> None:
        _set_message(self, f'The shape of the tensor "{name}" in step {step} of {mode} was not saved.')
        self.kind, self.name, self.step, self.mode = "tensor", name, step, mode


class StepUnavailable(NotFound):
    """The step was skipped: a later step exists, but this one does not."""

    def __init__(self, step: int, mode: Mode) -> None:
        _set_message(self, f"Step {step} of {mode} was not saved; `steps()` lists the saved steps.")
        self.kind, self.name, self.step, self.mode = "step", str(step), step, mode


class StepNotYetAvailable(Unavailable):
    """The training has not reached the step, or not every worker has."""

    def __init__(self, step: int, mode: Mode) -> None:
        super().__init__(f"Step {step} of {mode} is not available yet; `wait_for_steps` waits for it.")
        self.step, self.mode = step, mode


class NoMoreData(NotFound):
    """The training ended before the step."""

    def __init__(self, step: int, mode: Mode, *, last_step: int) -> None:
        _set_message(
            self,
            f"Step {step} of {mode} will not come: the training has ended, and its last saved step is {last_step}.",
        )
        self.kind, self.name, self.step, self.mode, self.last_step = "step", str(step), step, mode, last_step


class MissingCollectionFiles(NotFound):
    """There is no trial, or it ended before all its workers had written anything."""

    def __init__(self, path: str, why: str) -> None:
        _set_message(self, f'There is no trial at "{path}": {why}.')
        self.kind, self.name = "trial", path


class InvalidWorker(InvalidRequest):
    """No worker of the trial has that name."""

    def __init__(self, worker: str, workers: Sequence[str]) -> None:
        super().__init__(f'The trial has no worker "{worker}"; it has {", ".join(workers) or "none yet"}.')
        self.worker = worker


def _set_message(error: NotFound, message: str) -> None:
    """Replace the message that NotFound makes from a kind and a name."""
    TrainyardError.__init__(error, message)
