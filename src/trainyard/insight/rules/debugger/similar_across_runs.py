"""Runs that repeat another run."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from trainyard.formats.tensors.contract import Statistic, Step
from trainyard.foundation.errors import InvalidRequest
from trainyard.insight.rules.contract import DebuggerRule, Finding, Need, Parameter, Severity, StepsOf
from trainyard.insight.rules.parameters import COLLECTION_NAMES, TENSOR_REGEX, tensors_to_inspect
from trainyard.insight.rules.readings import Flags, History, Numbers, Reader, Reading, Streaks, others_text, worst

COMPARED = (Statistic.MEAN, Statistic.STD, Statistic.MEAN_ABS, Statistic.MIN, Statistic.MAX)
# The defaults of numpy.allclose.
RTOL, ATOL = 1e-5, 1e-8


class SimilarAcrossRuns(DebuggerRule):
    """Finds runs whose tensors are the same as in another run."""

    name = "SimilarAcrossRuns"
    parameters = (
        Parameter("other_trials", tuple, None, "The locations of the tensors of the other runs.", is_required=True),
        COLLECTION_NAMES,
        TENSOR_REGEX,
        Parameter(
            "num_steps", int, 1, "For how many consecutive steps a tensor must be the same.", advised=10, at_least=1
        ),
    )

    def __init__(
        self,
        *,
        other_trials: tuple[str, ...],
        collection_names: tuple[str, ...] | None,
        tensor_regex: tuple[str, ...] | None,
        num_steps: int,
    ) -> None:
        self._num_steps = num_steps
        chosen = tensors_to_inspect(self.name, collection_names, regexes=tensor_regex, otherwise=("losses",))
        self._needs = replace(chosen, other_runs=other_trials)
        self._reader, self._history = Reader(self._needs), History()
        self._runs: Mapping[str, StepsOf] = {}
        self._streaks = {run: Streaks() for run in other_trials}

    @property
    def needs(self) -> Need:
        return self._needs

    def compare_with(self, runs: Mapping[str, StepsOf]) -> None:
        self._runs = runs

    def check(self, step: Step) -> Iterator[Finding]:
        reading = self._reader.read(step)
        self._history.add(reading, reading.values())
        for run, streaks in self._streaks.items():
            if run not in self._runs:
                raise InvalidRequest(f'The tensors of the other run "{run}" are not available, so nothing is compared.')
            other = self._runs[run](step.worker, step.number)
            if other is None or other.mode is not step.mode:
                continue
            hits = streaks.count(reading, self._is_same(reading, self._reader.read(other))) >= self._num_steps
            for index in worst(hits, -np.arange(len(hits), dtype=np.float64)):
                yield self._finding(reading, index, run=run, hits=hits)

    def _is_same(self, reading: Reading, other: Reading) -> Flags:
        places = {name: place for place, name in enumerate(other.chosen.names)}
        found = np.array([places.get(name, -1) for name in reading.chosen.names], dtype=np.intp)
        if not len(other.tensors):
            return np.zeros(len(found), dtype=bool)
        columns = [(reading.column(each), other.column(each)[found]) for each in COMPARED]
        pairs = [*columns, (reading.values(), other.values()[found])]
        return np.asarray((found >= 0) & np.all([_is_close(ours, theirs) for ours, theirs in pairs], axis=0))

    def _finding(self, reading: Reading, index: int, *, run: str, hits: Flags) -> Finding:
        tensor, step = reading.tensors[index], reading.step
        value = float(reading.values()[index])
        duration = f", for {self._num_steps} steps now" if self._num_steps > 1 else ""
        return Finding.at(
            step,
            tensor,
            f"{tensor.name} is {value:.7g}, the same as in the run {run} at this step{duration}{others_text(hits)}.",
            value=value,
            threshold=value,
            severity=Severity.NOTICE,
            evidence=(self._history.evidence(reading, index, label=tensor.name),),
        )


def _is_close(ours: Numbers, theirs: Numbers) -> Flags:
    with np.errstate(invalid="ignore"):
        return np.asarray((ours == theirs) | (np.abs(ours - theirs) <= ATOL + RTOL * np.abs(theirs)))
