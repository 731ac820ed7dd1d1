"""The tensors that a rule wants to be there before it judges a step."""

from collections.abc import Iterable, KeysView, ValuesView

from ..core.tensor import Tensor
from ..exceptions import TensorUnavailable
from ..trials.trial import Trial


class RequiredTensors:
    """What a rule asked for at a step, of each of its trials; without a trial, the one that it judges is meant."""

    def __init__(self, base_trial: Trial, other_trials: Iterable[Trial] | None) -> None:
        self.base_trial = base_trial
        self._of_trials = {id(trial): RequiredTensorsForTrial(trial) for trial in (base_trial, *(other_trials or ()))}

    def add(self, name: str, steps: list[int], trial: Trial | None = None, should_match_regex: bool = False) -> None:
        """Ask for a tensor at some steps, or for all whose names a regex finds."""
        self._of(trial).add(name, steps, should_match_regex=should_match_regex)

    def get_tensor_steps(self, name: str, trial: Trial | None = None) -> list[int]:
        return self._of(trial).get_tensor_steps(name)

    def get_names(self, trial: Trial | None = None) -> KeysView[str]:
        return self._of(trial).get_names()

    def get(self, trial: Trial | None = None) -> ValuesView[Tensor]:
        return self._of(trial).get()

    def clear(self) -> None:
        for required in self._of_trials.values():
            required.clear()

    def fetch(self) -> None:
        """Wait for all that was asked for; raises where it will not come."""
        for required in self._of_trials.values():
            required.fetch()

    def _of(self, trial: Trial | None) -> "RequiredTensorsForTrial":
        return self._of_trials[id(self.base_trial if trial is None else trial)]


class RequiredTensorsForTrial:
    """What a rule asked for of one trial."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self._steps: dict[str, list[int]] = {}
        self._tensors: dict[str, Tensor] = {}

    def add(self, name: str, steps: list[int], should_match_regex: bool = False) -> None:
        names = self.trial.tensor_names(regex=[name]) if should_match_regex else [name]
        for each in names:
            if not self.trial.has_tensor(each):
                raise TensorUnavailable(each)
            self._steps.setdefault(each, []).extend(steps)
            self._tensors[each] = self.trial.tensor(each)

    def get_tensor_steps(self, name: str) -> list[int]:
        return self._steps[name]

    def get_names(self) -> KeysView[str]:
        return self._steps.keys()

    def get(self) -> ValuesView[Tensor]:
        return self._tensors.values()

    def clear(self) -> None:
        self._steps.clear()
        self._tensors.clear()

    def fetch(self) -> None:
        self.trial.wait_for_steps(sorted({step for steps in self._steps.values() for step in steps}))
        for name, steps in self._steps.items():
            for step in steps:
                self._tensors[name].value(step)
