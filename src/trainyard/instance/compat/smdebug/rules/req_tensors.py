"""The tensors that a rule needs to evaluate a step."""

from collections.abc import Iterable, KeysView, ValuesView

from ..core.tensor import Tensor
from ..exceptions import TensorUnavailable
from ..trials.trial import Trial


class RequiredTensors:
    """The tensors that a rule needs at a step, per trial. The default trial is the one that the rule evaluates."""

    def __init__(self, base_trial: Trial, other_trials: Iterable[Trial] | None) -> None:
        self.base_trial = base_trial
        self._by_trial = {id(trial): RequiredTensorsForTrial(trial) for trial in (base_trial, *(other_trials or ()))}

    def add(self, name: str, steps: list[int], trial: Trial | None = None, should_match_regex: bool = False) -> None:
        """Require a tensor at some steps, or all tensors whose names match a regex."""
        self._of(trial).add(name, steps, should_match_regex=should_match_regex)

    def get_tensor_steps(self, name: str, trial: Trial | None = None) -> list[int]:
        return self._of(trial).get_tensor_steps(name)

    def get_names(self, trial: Trial | None = None) -> KeysView[str]:
        return self._of(trial).get_names()

    def get(self, trial: Trial | None = None) -> ValuesView[Tensor]:
        return self._of(trial).get()

    def clear(self) -> None:
        for required in self._by_trial.values():
            required.clear()

    def fetch(self) -> None:
        """Wait for all required tensors. Raises if one will never be available."""
        for required in self._by_trial.values():
            required.fetch()

    def _of(self, trial: Trial | None) -> "RequiredTensorsForTrial":
        return self._by_trial[id(self.base_trial if trial is None else trial)]


class RequiredTensorsForTrial:
    """The tensors that a rule needs from one trial."""

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
