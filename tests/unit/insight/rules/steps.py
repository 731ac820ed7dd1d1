"""Steps made by hand, from the values of their tensors."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trainyard.formats.tensors.contract import (
    ABSENT,
    Kind,
    Measure,
    Mode,
    Probe,
    Statistic,
    Step,
    TensorInfo,
    TensorTable,
)
from trainyard.insight.rules.catalog import make_rule
from trainyard.insight.rules.contract import DebuggerRule, Finding
from trainyard.insight.rules.readings import Reader

COLLECTIONS = {
    Kind.WEIGHT: ("weights",),
    Kind.BIAS: ("biases",),
    Kind.GRADIENT: ("gradients",),
    Kind.LOSS: ("losses",),
}


class Run:
    """A run of one worker that is told step by step; tensors are told by name, and their kinds follow from that."""

    def __init__(self, worker: str = "worker_0") -> None:
        self._worker = worker
        self._number = -1
        self._mode_steps: dict[Mode, int] = {}
        self._tables: dict[object, TensorTable] = {}

    def step(
        self,
        tensors: Mapping[str, ArrayLike | None],
        *,
        mode: Mode = Mode.TRAIN,
        measures: Mapping[tuple[str, Probe], float] | None = None,
        is_raw: bool = False,
        at_s: float | None = None,
    ) -> Step:
        """The next step; a tensor that is None was not looked at."""
        self._number += 1
        self._mode_steps[mode] = self._mode_steps.get(mode, -1) + 1
        arrays = {name: None if value is None else np.asarray(value) for name, value in tensors.items()}
        table = self._table(arrays, tuple(measures or ()))
        return Step(
            number=self._number,
            mode=mode,
            mode_step=self._mode_steps[mode],
            at_us=int((self._number if at_s is None else at_s) * 1e6),
            worker=self._worker,
            table=table,
            statistics=np.array([_statistics(array) for array in arrays.values()], np.float32).reshape(-1, 8),
            measures=np.array(list((measures or {}).values()), np.float32),
            scalars=np.array([_scalar(arrays[table.tensors[place].name]) for place in table.scalars]),
            values={name: array for name, array in arrays.items() if array is not None} if is_raw else {},
        )

    def _table(
        self, arrays: Mapping[str, NDArray[np.generic] | None], measured: tuple[tuple[str, Probe], ...]
    ) -> TensorTable:
        key = (tuple((name, array is None or array.shape) for name, array in arrays.items()), measured)
        if key not in self._tables:
            names = list(arrays)
            self._tables[key] = TensorTable(
                tuple(_info(name, array) for name, array in arrays.items()),
                tuple(Measure(names.index(name), probe) for name, probe in measured),
            )
        return self._tables[key]


def judged(rule: DebuggerRule, steps: Iterable[Step]) -> list[Finding]:
    """Everything that a rule finds in a run, of which it is told no more than it needs."""
    told, run = _Told(rule), list(steps)
    found = [finding for step in run for finding in rule.check(told.step(step))] + list(rule.end())
    tensors = {tensor for step in run for tensor in step.table.tensors if tensor.kind is not Kind.CUSTOM}
    modules = {tensor.name: tensor.module for tensor in tensors}
    for finding in found:
        _assert_is_whole(finding, rule)
        assert finding.module == modules.get(finding.tensor, finding.module)
    return found


# NaN has no magnitude to be shown, and steps of one mode are counted apart from the others.
_SHOWS_OTHER_STEPS = ("ExplodingTensor", "UnchangedTensor", "ReplicaDivergence", "LossNotDecreasing")


# What a chart of the evidence is titled; the losses and means of single tensors are titled by what they are of.
LABELS = {
    "AllZero": "zeros in %",
    "AttentionEntropyCollapse": "share of the maximum entropy",
    "CheckInputImages": "mean of the channel furthest from 0",
    "ClassImbalance": r"most frequent / rarest class|mispredicted share of class \d+",
    "Confusion": "accuracy",
    "DeadEmbedding": "share of rows never used",
    "DeadRelu": "dead units in %",
    "ExplodingTensor": "mean magnitude",
    "FeatureImportanceOverweight": r"importance of the first \d+",
    "GradientNoise": "cosine of successive gradients",
    "LearningRateTooHigh": r"median of \|update\| / \|weight\|",
    "LearningRateTooLow": r"largest \|update\| / \|weight\|",
    "LossNotDecreasing": "loss",
    "LossSpike": "loss",
    "NLPSequenceRatio": "share of the token in %",
    "NotANumber": "loss",
    "Overfit": r"\(validation - training\) / training",
    "Overtraining": "(training|validation) loss",
    "PoorWeightInitialization": "variance|largest / smallest variance|narrowest gradient|.*_output_0",
    "ReplicaDivergence": r"mean on worker_\d+",
    "SaturatedActivation": "saturated units in %",
    "SimilarAcrossRuns": ".*_output_0|.*weight|.*bias",
    "StalledTrainingRule": "seconds between steps",
    "UnchangedTensor": "mean",
    "VanishingGradient": r"mean \|gradient\|",
    "WeightUpdateRatio": r"\|update\| / \|weight\|",
}


def _assert_is_whole(finding: Finding, rule: DebuggerRule) -> None:
    """Whatever a rule finds, it says so in a sentence and shows what it has seen until then."""
    assert finding.message.endswith(".")
    assert "  " not in finding.message
    assert finding.evidence, "a finding shows what it follows from"
    for evidence in finding.evidence:
        assert re.fullmatch(LABELS.get(rule.name, ".+"), evidence.label)
        assert len(evidence.steps) == len(evidence.values)
        assert list(evidence.steps) == sorted(set(evidence.steps))
        assert rule.name in _SHOWS_OTHER_STEPS or evidence.steps[-1] == finding.step


class _Told:
    """Cuts steps down to what a rule says it needs, as a hook records no more than somebody asked for."""

    def __init__(self, rule: DebuggerRule) -> None:
        self._parts = [(Reader(part), part) for part in rule.needs.parts]
        # Probes are taken of raw values where those were saved for somebody else.
        self._has_values = any(part.is_raw or part.probes for part in rule.needs.parts)
        self._tables: dict[int, tuple[TensorTable, TensorTable]] = {}

    def step(self, step: Step) -> Step:
        table, places, measures = step.table, self._places(step.table), self._measures(step.table)
        renumbered = {place: index for index, place in enumerate(places)}
        _, cut = self._tables.setdefault(
            id(table),
            (
                table,
                TensorTable(
                    tuple(table.tensors[place] for place in places),
                    tuple(
                        replace(table.measures[index], tensor=renumbered[table.measures[index].tensor])
                        for index in measures
                    ),
                ),
            ),
        )
        is_told = [place in renumbered for place in table.scalars]
        saved = step.values if self._has_values else {}
        return replace(
            step,
            table=cut,
            statistics=step.statistics[places],
            measures=step.measures[measures],
            scalars=step.scalars[is_told],
            values={tensor.name: saved[tensor.name] for tensor in cut.tensors if tensor.name in saved},
        )

    def _places(self, table: TensorTable) -> list[int]:
        return sorted({int(place) for reader, _ in self._parts for place in reader.choose(table).places})

    def _measures(self, table: TensorTable) -> list[int]:
        wanted = {
            (int(place), probe)
            for reader, part in self._parts
            for place in reader.choose(table).places
            for probe in part.probes
        }
        return [index for index, each in enumerate(table.measures) if (each.tensor, each.probe) in wanted]


def found_by(word: str, steps: Iterable[Step], /, **parameters: str) -> list[Finding]:
    """Everything that the rule of that name finds in a run."""
    return judged(make_rule(word, parameters), steps)


def losses(values: Sequence[float], *, mode: Mode = Mode.TRAIN, run: Run | None = None) -> list[Step]:
    """Steps of which only the loss is known."""
    run = run or Run()
    return [run.step({"CrossEntropyLoss_output_0": value}, mode=mode) for value in values]


def _info(name: str, array: NDArray[np.generic] | None) -> TensorInfo:
    kind = _kind(name)
    shape = (4, 4) if array is None else array.shape
    dtype = "float32" if array is None else str(array.dtype)
    module = (
        ""
        if kind in (Kind.LOSS, Kind.SCALAR)
        else re.sub(r"^gradient/|^Net_|[._](weight|bias|input_\d+|output_\d+)$", "", name)
    )
    return TensorInfo(name, kind, shape, dtype, COLLECTIONS.get(kind, ()), module.removeprefix("Net_"))


def _kind(name: str) -> Kind:
    patterns = {
        r"^gradient/": Kind.GRADIENT,
        r"[Ll]oss_(?!input).*output|^[a-z]+-[a-z]+$": Kind.LOSS,
        r"^scalar/": Kind.SCALAR,
        r"_input_\d+$": Kind.INPUT,
        r"_output_\d+$": Kind.OUTPUT,
        r"weight$": Kind.WEIGHT,
        r"bias$": Kind.BIAS,
    }
    return next((kind for pattern, kind in patterns.items() if re.search(pattern, name)), Kind.CUSTOM)


def _scalar(array: NDArray[np.generic] | None) -> float:
    return 0.0 if array is None else float(array.reshape(()).item())


def _statistics(array: NDArray[np.generic] | None) -> list[float]:
    row = dict.fromkeys(Statistic, 0.0)
    if array is None:
        row[Statistic.NANS] = ABSENT
        return list(row.values())
    numbers = np.asarray(array, np.float64)
    with np.errstate(all="ignore"):
        row[Statistic.MEAN], row[Statistic.STD] = float(numbers.mean()), float(numbers.std())
        row[Statistic.MEAN_ABS] = float(np.abs(numbers).mean())
        row[Statistic.MIN], row[Statistic.MAX] = float(numbers.min()), float(numbers.max())
    row[Statistic.ZEROS] = float(np.count_nonzero(numbers == 0))
    row[Statistic.NANS] = float(np.count_nonzero(np.isnan(numbers)))
    row[Statistic.INFS] = float(np.count_nonzero(np.isinf(numbers)))
    return list(row.values())
