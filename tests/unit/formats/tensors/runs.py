"""Trials to read: a small training whose numbers follow from the step and the tensor."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from trainyard.formats.tensors.contract import (
    ABSENT,
    CollectionInfo,
    Kind,
    Measure,
    Mode,
    Probe,
    Statistic,
    Step,
    TensorInfo,
    TensorTable,
)
from trainyard.formats.tensors.recordings.trial_writer import TrialWriter
from trainyard.formats.tensors.statistics.reductions import statistics_of

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)

WEIGHT, GRADIENT, LOSS = "Net_fc.weight", "gradient/Net_fc.weight", "CrossEntropyLoss_output_0"

TABLE = TensorTable(
    (
        TensorInfo(WEIGHT, Kind.WEIGHT, (2, 3), "float32", ("weights",), "fc"),
        TensorInfo(LOSS, Kind.LOSS, (), "float32", ("losses",)),
        TensorInfo(GRADIENT, Kind.GRADIENT, (2, 3), "bfloat16", ("gradients",), "fc"),
    ),
    (Measure(0, Probe("update_ratio", (1e-9,))),),
)
COLLECTIONS = (CollectionInfo("weights", (r"weight$",)), CollectionInfo("losses"), CollectionInfo("gradients"))


class Clock:
    """A clock that advances a little with every reading."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        self.now += timedelta(microseconds=10)
        return self.now


def values_at(step: int, tensor: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """What a tensor of the table is in a step."""
    shape = TABLE.tensors[tensor].shape
    size = int(np.prod(shape, dtype=int))
    return ((np.arange(size) - 2) * (tensor + 1) / (step + 1)).astype(np.float32).reshape(shape)


def step_of(
    number: int,
    *,
    mode: Mode = Mode.TRAIN,
    mode_step: int | None = None,
    worker: str = "worker_0",
    saved: Sequence[bool] = (False, False, False),
    absent: Iterable[int] = (),
    table: TensorTable = TABLE,
) -> Step:
    statistics = np.stack([statistics_of(values_at(number, TABLE.places[each.name])) for each in table.tensors])
    statistics[list(absent)] = 0
    statistics[list(absent), Statistic.NANS] = ABSENT
    return Step(
        number,
        mode,
        number if mode_step is None else mode_step,
        number * 1000,
        worker,
        table,
        statistics,
        np.full(len(table.measures), 0.001 * number, np.float32),
        np.array([1 / (number + 1)]),
        saved=np.array(saved, bool),
    )


def write_run(folder: Path, steps: int = 100, *, every: int = 10, ends: bool = True) -> TrialWriter:
    """A training of one worker that saved its weights every so often, and its loss whenever it saved anything."""
    writer = TrialWriter(folder, collections=COLLECTIONS, clock=Clock())
    for number in range(steps):
        is_saved = number % every == 0
        writer.append(step_of(number, saved=(is_saved, is_saved, False)))
        if is_saved:
            writer.save_values(number, {WEIGHT: values_at(number, 0)})
    writer.flush()
    if ends:
        writer.close()
    return writer
