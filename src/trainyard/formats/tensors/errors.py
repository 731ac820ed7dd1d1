"""What cannot be had of a trial, each with what was asked for.

    NotFound
    ├── TensorUnavailable           no worker has ever had a tensor of that name
    ├── TensorUnavailableForStep    it has none of what was asked for in that step
    ├── ShapeUnavailableForStep     its shape in that step is not known
    ├── StepUnavailable             the step was passed over, or never saved
    ├── NoMoreData                  the training has ended before the step
    └── MissingCollectionFiles      it has ended, and left nothing behind
    Unavailable
    └── StepNotYetAvailable         the step may still come
    InvalidRequest
    └── InvalidWorker               no worker has that name

All are errors of `trainyard.foundation.errors`, by which they can be caught as well.
"""

from collections.abc import Sequence

from trainyard.formats.tensors.contract import Mode
from trainyard.foundation.errors import InvalidRequest, NotFound, TrainyardError, Unavailable


class TensorUnavailable(NotFound):
    """No worker of the trial has ever had a tensor of that name."""

    def __init__(self, name: str, *, trial: str) -> None:
        _say(self, f'The trial "{trial}" has no tensor "{name}"; `tensor_names()` tells those that it has.')
        self.kind, self.name, self.trial = "tensor", name, trial


class TensorUnavailableForStep(NotFound):
    """What was asked for of a tensor is not there in that step. `statistics` are those that are."""

    def __init__(self, name: str, *, step: int, mode: Mode, lacking: str, statistics: Sequence[str] = ()) -> None:
        known = "Nothing is known of it in that step"
        if statistics:
            known = f"What is known in that step: {', '.join(statistics)}, by `reduction_value`"
        _say(
            self,
            f'Of the tensor "{name}" {lacking} in step {step} of {mode}. {known}. To have its values saved, name a '
            "collection that includes it, with save_raw_tensor and a save_interval that meets the step.",
        )
        self.kind, self.name, self.step, self.mode = "tensor", name, step, mode
        self.statistics = tuple(statistics)

    @property
    def has_reductions(self) -> bool:
        return bool(self.statistics)


class ShapeUnavailableForStep(NotFound):
    """The shape of a tensor in that step is not known."""

    def __init__(self, name: str, *, step: int, mode: Mode) -> None:
        _say(self, f'The shape of the tensor "{name}" in step {step} of {mode} was not saved.')
        self.kind, self.name, self.step, self.mode = "tensor", name, step, mode


class StepUnavailable(NotFound):
    """The step was passed over: a later one is there, and it is not."""

    def __init__(self, step: int, mode: Mode) -> None:
        _say(self, f"Step {step} of {mode} was not saved; `steps()` tells those that were.")
        self.kind, self.name, self.step, self.mode = "step", str(step), step, mode


class StepNotYetAvailable(Unavailable):
    """The training has not come to the step, or not every worker has."""

    def __init__(self, step: int, mode: Mode) -> None:
        super().__init__(f"Step {step} of {mode} is not there yet; `wait_for_steps` waits for it.")
        self.step, self.mode = step, mode


class NoMoreData(NotFound):
    """The training has ended, and the step has not come."""

    def __init__(self, step: int, mode: Mode, *, last_step: int) -> None:
        _say(
            self,
            f"Step {step} of {mode} will not come: the training has ended, and its last saved step is {last_step}.",
        )
        self.kind, self.name, self.step, self.mode, self.last_step = "step", str(step), step, mode, last_step


class MissingCollectionFiles(NotFound):
    """There is nothing of a trial, or it ended before all its workers had written anything."""

    def __init__(self, path: str, why: str) -> None:
        _say(self, f'There is no trial at "{path}": {why}.')
        self.kind, self.name = "trial", path


class InvalidWorker(InvalidRequest):
    """No worker of the trial has that name."""

    def __init__(self, worker: str, workers: Sequence[str]) -> None:
        super().__init__(f'The trial has no worker "{worker}"; it has {", ".join(workers) or "none yet"}.')
        self.worker = worker


def _say(error: NotFound, message: str) -> None:
    """Give a NotFound a message of its own in place of the one it makes from a kind and a name."""
    TrainyardError.__init__(error, message)
