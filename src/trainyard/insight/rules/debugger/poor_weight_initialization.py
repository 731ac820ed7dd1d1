"""Weights from which a network cannot learn."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from trainyard.formats.tensors.contract import Kind, Probe, Statistic, Step
from trainyard.formats.tensors.statistics.probes import QUANTILE_RANGE
from trainyard.insight.rules.contract import DebuggerRule, Evidence, Finding, Need, Parameter, Severity
from trainyard.insight.rules.readings import Reader, Reading, Streaks, Track, is_matrix, trains, worst

RANGE = Probe(QUANTILE_RANGE, (0.05, 0.95))
# From this share of zeros on, a gradient is taken for that of an embedding, of which a batch uses few rows.
SPARSE = 0.9


@dataclass(slots=True)
class _Beginning:
    """The first steps of a worker."""

    steps: int = 0
    losses: dict[str, list[float]] = field(default_factory=dict)
    tracks: dict[str, Track] = field(default_factory=lambda: defaultdict(Track))

    def track(self, label: str, *, step: Step, number: float) -> Evidence:
        """Add the number of this step and return all so far."""
        self.tracks[label].add(step.number, number)
        return self.tracks[label].evidence(label)


class PoorWeightInitialization(DebuggerRule):
    """Finds networks whose initial weights keep them from learning well."""

    name = "PoorWeightInitialization"
    parameters = (
        Parameter(
            "activation_inputs_regex",
            tuple,
            (".*relu_input",),
            "The inputs of activations.",
            advised=(r"(?i)(relu|gelu|silu|tanh|sigmoid)\d*_input",),
        ),
        Parameter("threshold", float, 10.0, "How many times their smallest variance the largest may be."),
        Parameter(
            "distribution_range",
            float,
            0.001,
            "How far the 5th and 95th percentile of a gradient must be apart.",
            advised=1e-9,
        ),
        Parameter(
            "range_patience", int, 1, "For how many consecutive steps they must be closer.", advised=3, at_least=1
        ),
        Parameter("patience", int, 5, "For how many steps the loss must not have fallen.", at_least=1),
        Parameter("steps", int, 10, "How many of the first steps are checked.", at_least=1),
    )

    def __init__(
        self,
        *,
        activation_inputs_regex: tuple[str, ...],
        threshold: float,
        distribution_range: float,
        range_patience: int,
        patience: int,
        steps: int,
    ) -> None:
        self._threshold, self._range, self._range_patience = threshold, distribution_range, range_patience
        self._patience, self._steps = patience, steps
        inputs, others = Need(regexes=activation_inputs_regex), Need(collections=("weights", "losses"))
        self._needs = Need(collections=("gradients",), probes=(RANGE,), also=(inputs, others))
        self._inputs, self._gradients = Reader(inputs), Reader(self._needs, is_matrix)
        self._weights = Reader(others, lambda tensor: tensor.kind is Kind.WEIGHT and is_matrix(tensor))
        self._losses = Reader(others, lambda tensor: tensor.kind is Kind.LOSS)
        self._narrow = Streaks()
        self._beginnings: dict[str, _Beginning] = {}

    @property
    def needs(self) -> Need:
        return self._needs

    def check(self, step: Step) -> Iterator[Finding]:
        beginning = self._beginnings.setdefault(step.worker, _Beginning())
        if not trains(step) or beginning.steps >= self._steps:
            return
        beginning.steps += 1
        yield from self._check_weights(self._weights.read(step))
        yield from self._check_variances(self._inputs.read(step), beginning)
        yield from self._check_gradients(self._gradients.read(step), beginning)
        yield from self._check_losses(self._losses.read(step), beginning)

    def _check_weights(self, reading: Reading) -> Iterator[Finding]:
        least, most = reading.column(Statistic.MIN), reading.column(Statistic.MAX)
        for index in worst((least == most) & (least != 0) & (reading.chosen.sizes > 1), reading.chosen.sizes):
            tensor, value = reading.tensors[index], float(least[index])
            yield Finding.at(
                reading.step,
                tensor,
                f"All elements of {tensor.name} are {value:.4g}, so all units of its layer are the same.",
                value=0.0,
                threshold=0.0,
                severity=Severity.CRITICAL,
                evidence=(Evidence("variance", (reading.step.number,), (0.0,)),),
            )

    def _check_variances(self, reading: Reading, beginning: _Beginning) -> Iterator[Finding]:
        variances = reading.column(Statistic.STD) ** 2
        if np.count_nonzero(np.isfinite(variances)) < 2:
            return
        least, most = int(np.nanargmin(variances)), int(np.nanargmax(variances))
        ratio = float(variances[most] / variances[least]) if variances[least] > 0 else np.inf
        evidence = beginning.track("largest / smallest variance", step=reading.step, number=ratio)
        if ratio <= self._threshold:
            return
        small, large = reading.tensors[least], reading.tensors[most]
        yield Finding.at(
            reading.step,
            small,
            f"The variance of {large.name} is {variances[most]:.3g} and that of {small.name} is "
            f"{variances[least]:.3g}, a ratio of {ratio:.3g}; the limit is {self._threshold:g}.",
            value=ratio,
            threshold=self._threshold,
            severity=Severity.CRITICAL,
            evidence=(evidence,),
        )

    def _check_gradients(self, reading: Reading, beginning: _Beginning) -> Iterator[Finding]:
        zeros = reading.column(Statistic.ZEROS) / reading.chosen.sizes
        ranges = np.where((zeros >= SPARSE) & (zeros < 1), np.nan, reading.measure(RANGE))
        ranges = np.where(zeros == 1, 0.0, ranges)
        is_narrow = self._narrow.count(reading, ranges < self._range) >= self._range_patience
        if not np.isfinite(ranges).any():
            return
        index = int(np.nanargmin(np.where(is_narrow | ~is_narrow.any(), ranges, np.nan)))
        narrowest = float(ranges[index])
        evidence = beginning.track("narrowest gradient", step=reading.step, number=narrowest)
        if not is_narrow[index]:
            return
        tensor = reading.tensors[index]
        yield Finding.at(
            reading.step,
            tensor,
            f"The 5th and the 95th percentile of {tensor.name} are {narrowest:.2g} apart, less than {self._range:g}.",
            value=narrowest,
            threshold=self._range,
            severity=Severity.CRITICAL,
            evidence=(evidence,),
        )

    def _check_losses(self, reading: Reading, beginning: _Beginning) -> Iterator[Finding]:
        for tensor, value in zip(reading.tensors, reading.values(), strict=True):
            losses = beginning.losses.setdefault(tensor.name, [])
            losses.append(float(value))
            evidence = beginning.track(tensor.name, step=reading.step, number=float(value))
            before, last = losses[: -self._patience], losses[-self._patience :]
            if len(before) < self._patience or not min(last) >= max(before):
                continue
            yield Finding.at(
                reading.step,
                tensor,
                f"The loss {tensor.name} was at least {min(last):.4g} in the last {self._patience} steps, and at most "
                f"{max(before):.4g} in the {len(before)} before them: it does not fall.",
                value=min(last),
                threshold=max(before),
                severity=Severity.CRITICAL,
                evidence=(evidence,),
            )
