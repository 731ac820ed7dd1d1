"""Tensors that no longer change."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from trainyard.formats.tensors.contract import Kind, Statistic, Statistics, Step
from trainyard.insight.rules.contract import DebuggerRule, Finding, Need, Parameter
from trainyard.insight.rules.parameters import COLLECTION_NAMES, TENSOR_REGEX, tensors_to_inspect
from trainyard.insight.rules.readings import (
    Flags,
    History,
    KeptRows,
    Reader,
    Reading,
    Streaks,
    others_text,
    trains,
    worst,
)

LEARNED = (Kind.WEIGHT, Kind.BIAS, Kind.OPTIMIZER)
COMPARED = [Statistic.MEAN, Statistic.STD, Statistic.MEAN_ABS, Statistic.MIN, Statistic.MAX]
COUNTED = [Statistic.NANS, Statistic.INFS]


class UnchangedTensor(DebuggerRule):
    """Finds tensors that no longer change."""

    name = "UnchangedTensor"
    parameters = (
        COLLECTION_NAMES,
        TENSOR_REGEX,
        Parameter("num_steps", int, 3, "For how many steps a tensor must not have changed.", advised=10, at_least=2),
        Parameter("rtol", float, 1e-5, "The relative tolerance for equality.", at_least=0),
        Parameter("atol", float, 1e-8, "The absolute tolerance for equality.", at_least=0),
        Parameter("equal_nan", bool, False, "Whether NaN is the same as NaN."),
        Parameter("only_trained", bool, False, "Leave out parameters without a gradient.", advised=True),
    )

    def __init__(
        self,
        *,
        collection_names: tuple[str, ...] | None,
        tensor_regex: tuple[str, ...] | None,
        num_steps: int,
        rtol: float,
        atol: float,
        equal_nan: bool,
        only_trained: bool,
    ) -> None:
        self._num_steps, self._rtol, self._atol, self._equal_nan = num_steps, rtol, atol, equal_nan
        # Tensors that are named explicitly are always checked.
        self._only_trained = only_trained and not tensor_regex
        self._inspected = tensors_to_inspect(self.name, collection_names, regexes=tensor_regex)
        self._training = Reader(self._inspected)
        self._evaluating = Reader(self._inspected, lambda tensor: tensor.kind not in LEARNED)
        self._kept, self._streaks, self._history = KeptRows(), Streaks(), History()

    @property
    def needs(self) -> Need:
        gradients = (Need(collections=("gradients",)),) if self._only_trained else ()
        return replace(self._inspected, also=gradients)

    def check(self, step: Step) -> Iterator[Finding]:
        reader = self._training if trains(step) else self._evaluating
        reading = reader.read(step)
        first = self._kept.rows(reading)
        is_same = self._is_close(reading.rows, first) & reading.is_seen
        self._kept.keep(reading, np.where((is_same | ~reading.is_seen)[:, None], first, reading.rows))
        self._history.add(reading, reading.column(Statistic.MEAN))
        streaks = self._streaks.count(reading, is_same) + 1
        hits = streaks >= self._num_steps
        if self._only_trained:
            hits = hits & (reading.chosen.is_trained | ~_is_learned(reading))
        for index in worst(hits, streaks.astype(float)):
            yield self._finding(reading, index, hits=hits, steps=int(streaks[index]))

    def _is_close(self, now: Statistics, before: Statistics) -> Flags:
        """Return whether each row fits a tensor with all elements close to the previous ones, as in numpy.allclose."""
        scales = np.abs(before[:, COMPARED])
        scales[:, :3] = np.hypot(before[:, [Statistic.MEAN]], before[:, [Statistic.STD]])
        with np.errstate(invalid="ignore"):
            is_near = np.abs(now[:, COMPARED] - before[:, COMPARED]) <= self._atol + self._rtol * scales
        is_near |= now[:, COMPARED] == before[:, COMPARED]
        if self._equal_nan:
            is_near |= np.isnan(now[:, COMPARED]) & np.isnan(before[:, COMPARED])
        has_as_many = now[:, COUNTED] == before[:, COUNTED]
        return np.asarray(is_near.all(axis=1) & has_as_many.all(axis=1))

    def _finding(self, reading: Reading, index: int, *, hits: Flags, steps: int) -> Finding:
        tensor = reading.tensors[index]
        return Finding.at(
            reading.step,
            tensor,
            f"{tensor.name} has not changed in {steps} steps{others_text(hits)}.",
            value=float(steps),
            threshold=float(self._num_steps),
            evidence=(self._history.evidence(reading, index, label="mean"),),
        )


def _is_learned(reading: Reading) -> Flags:
    return np.array([tensor.kind in LEARNED for tensor in reading.tensors], dtype=bool)
