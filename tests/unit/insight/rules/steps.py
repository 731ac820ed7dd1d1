"""Steps made by hand, from the values of their tensors."""

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trainyard.formats.tensors.contract import (
    ABSENT,
    Column,
    Kind,
    Measure,
    Mode,
    Probe,
    Step,
    TensorInfo,
    TensorTable,
)
from trainyard.insight.rules.catalog import make_rule
from trainyard.insight.rules.contract import DebuggerRule, Finding

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
    """Everything that a rule finds in a run."""
    return [finding for step in steps for finding in rule.check(step)] + list(rule.end())


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
    row = dict.fromkeys(Column, 0.0)
    if array is None:
        row[Column.NANS] = ABSENT
        return list(row.values())
    numbers = np.asarray(array, np.float64)
    with np.errstate(all="ignore"):
        row[Column.MEAN], row[Column.STD] = float(numbers.mean()), float(numbers.std())
        row[Column.MEAN_ABS] = float(np.abs(numbers).mean())
        row[Column.MIN], row[Column.MAX] = float(numbers.min()), float(numbers.max())
    row[Column.ZEROS] = float(np.count_nonzero(numbers == 0))
    row[Column.NANS] = float(np.count_nonzero(np.isnan(numbers)))
    row[Column.INFS] = float(np.count_nonzero(np.isinf(numbers)))
    return list(row.values())
