"""Weights that change far too much or hardly at all."""

import math
from collections import defaultdict, deque
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from trainyard.formats.tensors.contract import Probe, Step
from trainyard.formats.tensors.statistics.probes import UPDATE_RATIO
from trainyard.insight.rules.contract import DebuggerRule, Finding, Need, Parameter
from trainyard.insight.rules.probes import probe_values
from trainyard.insight.rules.readings import (
    Flags,
    History,
    Numbers,
    Reader,
    Reading,
    Streaks,
    duration_text,
    others_text,
    trains,
    worst,
)


class WeightUpdateRatio(DebuggerRule):
    """Finds weights whose relative updates are too large or too small."""

    name = "WeightUpdateRatio"
    parameters = (
        Parameter("num_steps", int, None, "How many steps back to compare; None is the previous step.", at_least=1),
        Parameter("large_threshold", float, 10.0, "The maximum ratio.", at_least=0),
        Parameter("small_threshold", float, 1e-8, "The minimum ratio.", at_least=0),
        Parameter("epsilon", float, 1e-9, "Added to each weight before dividing by it.", at_least=0),
        Parameter("patience", int, 1, "For how many consecutive steps this must hold.", advised=10, at_least=1),
        Parameter("only_trained", bool, False, "Leave out weights without a gradient.", advised=True),
    )

    def __init__(
        self,
        *,
        num_steps: int | None,
        large_threshold: float,
        small_threshold: float,
        epsilon: float,
        patience: int,
        only_trained: bool,
    ) -> None:
        self._num_steps, self._large, self._small = num_steps, large_threshold, small_threshold
        self._patience, self._only_trained = patience, only_trained
        self._probe = Probe(UPDATE_RATIO, (epsilon,))
        self._reader, self._history = Reader(self.needs), History()
        self._over, self._under = Streaks(), Streaks()
        self._saved: defaultdict[tuple[str, str], deque[tuple[int, NDArray[np.generic]]]] = defaultdict(deque)

    @property
    def needs(self) -> Need:
        gradients = (Need(collections=("gradients",)),) if self._only_trained else ()
        if self._num_steps is None:
            return Need(collections=("weights",), probes=(self._probe,), also=gradients)
        return Need(collections=("weights",), is_raw=True, also=gradients)

    def check(self, step: Step) -> Iterator[Finding]:
        if not trains(step):
            return
        reading = self._reader.read(step)
        ratios = self._ratios(reading)
        if self._only_trained:
            ratios = np.where(reading.chosen.is_trained, ratios, np.nan)
        self._history.add(reading, ratios)
        over = self._over.count(reading, ratios > self._large) >= self._patience
        under = self._under.count(reading, ratios < self._small) >= self._patience
        for index in worst(over, ratios):
            yield self._finding(reading, index, hits=over, ratio=float(ratios[index]), limit=self._large)
        for index in worst(under, -ratios):
            yield self._finding(reading, index, hits=under, ratio=float(ratios[index]), limit=self._small)

    def _ratios(self, reading: Reading) -> Numbers:
        """Return the relative change of each weight; NaN if there is no previous value."""
        if self._num_steps is None:
            return reading.measure(self._probe)
        step, back = reading.step, self._num_steps
        return np.array([self._from_saved(step, tensor.name, back=back) for tensor in reading.tensors])

    def _from_saved(self, step: Step, name: str, *, back: int) -> float:
        now = step.values.get(name)
        if now is None:
            return math.nan
        saved = self._saved[step.worker, name]
        while len(saved) > 1 and saved[0][0] < step.number - back:
            saved.popleft()
        before = saved[0][1] if saved else None
        saved.append((step.number, now))
        return probe_values(self._probe, now, before)

    def _finding(self, reading: Reading, index: int, *, hits: Flags, ratio: float, limit: float) -> Finding:
        tensor = reading.tensors[index]
        side = "over" if ratio > limit else "under"
        return Finding.at(
            reading.step,
            tensor,
            f"The elements of {tensor.name} changed by {ratio:.2g} of themselves on average, {side} {limit:g}"
            f"{duration_text(self._patience)}{others_text(hits)}.",
            value=ratio,
            threshold=limit,
            evidence=(self._history.evidence(reading, index, label="|update| / |weight|"),),
        )
