"""One tensor of a trial."""

from collections.abc import Sequence
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainyard.formats.tensors.contract import Mode, TensorInfo
from trainyard.formats.tensors.errors import ShapeUnavailableForStep, TensorUnavailable, TensorUnavailableForStep
from trainyard.formats.tensors.recordings.contract import UNKNOWN_SHAPE, Reductions
from trainyard.formats.tensors.recordings.step_index import Numbers, merge_steps
from trainyard.formats.tensors.statistics import reductions
from trainyard.formats.tensors.statistics.histograms import Counts
from trainyard.formats.tensors.statistics.histograms import join as join_counts
from trainyard.formats.tensors.trials.step_view import StepView, WorkerStep
from trainyard.foundation.errors import InvalidRequest


class Tensor:
    """One tensor of a trial, over all its steps. Without a worker, the first that has it answers."""

    def __init__(self, name: str, view: StepView) -> None:
        self.name, self._view = name, view

    @property
    def original_name(self) -> str:
        return self.name

    @property
    def info(self) -> TensorInfo:
        """The description of the tensor, as last recorded by the first worker that has it."""
        for worker in self._view.workers:
            if self.name in worker.tensors():
                return worker.tensors()[self.name]
        raise TensorUnavailable(self.name, trial="")

    def steps(self, mode: Mode = Mode.GLOBAL, show_incomplete_steps: bool = False) -> list[int]:
        """Return the complete steps in which it was saved."""
        self._view.maybe_refresh()
        until = inf if show_incomplete_steps else self._view.horizon()
        found: list[Numbers] = []
        for worker in self._view.workers:
            rows = _intersect(worker.saved_rows(self.name), self._view.rows(worker, mode, until=until))
            found.append(worker.index.labels(rows, mode))
        return merge_steps(found)

    def prev_steps(self, step: int, n: int | None = None, mode: Mode = Mode.GLOBAL) -> list[int]:
        """Return the steps up to and including `step` in which it was saved, or the last `n` of them."""
        earlier = [each for each in self.steps(mode) if each <= step]
        return earlier if n is None else earlier[max(0, len(earlier) - n) :]

    def workers(self, step_num: int, mode: Mode = Mode.GLOBAL) -> list[str]:
        """Return the workers that have it in a step."""
        return [found.worker.name for found in self._worker_steps(step_num, mode, None)]

    def shape(self, step_num: int, mode: Mode = Mode.GLOBAL, worker: str | None = None) -> tuple[int, ...]:
        for found in self._worker_steps(step_num, mode, worker):
            raw, info = found.worker.raw(self.name, found.row), found.worker.info(self.name, found.row)
            if raw is not None:
                return raw.shape
            if info is not None and info.shape != UNKNOWN_SHAPE:
                return info.shape
        raise ShapeUnavailableForStep(self.name, step=step_num, mode=mode)

    def value(self, step_num: int, mode: Mode = Mode.GLOBAL, worker: str | None = None) -> NDArray[Any]:
        """Return the tensor if it was saved; with one element, its exact value in any step.

        A dtype that numpy lacks becomes float32.
        """
        found = self._worker_steps(step_num, mode, worker)
        value = self._value(found)
        if value is None:
            raise self._unavailability("no saved values", step_num, mode, found=found)
        return value

    def values(self, mode: Mode = Mode.GLOBAL, worker: str | None = None) -> dict[int, NDArray[Any]]:
        """Return the tensor at each step in which it was saved, if it was saved raw or has one element."""
        at_steps = {step: self._value(self._worker_steps(step, mode, worker)) for step in self.steps(mode)}
        return {step: value for step, value in at_steps.items() if value is not None}

    def reduction_value(
        self,
        step_num: int,
        reduction_name: str,
        mode: Mode = Mode.GLOBAL,
        worker: str | None = None,
        abs: bool = False,  # noqa: A002 - as smdebug calls it
    ) -> float:
        """Return a reduction of the tensor in any step that captured it.

        min, max, mean, std, variance, sum, l1 and l2 follow from the statistics, as do all but min of the absolute
        values; others are available if they or the tensor were saved. The parts of several workers are joined.
        """
        if reduction_name not in reductions.REDUCTIONS:
            words = ", ".join(reductions.REDUCTIONS)
            raise InvalidRequest(f'There is no reduction "{reduction_name}"; there are {words}.')
        found = self._worker_steps(step_num, mode, worker)
        if len(found) > 1 and self._is_in_parts(worker):
            return self._join_parts(found, f"abs_{reduction_name}" if abs else reduction_name, step_num, mode)
        for each in found:
            known = each.worker.reductions(self.name, each.row)
            if (reduction_name, abs) in known:
                return known[reduction_name, abs]
        value = self._value(found)
        if value is None:
            raise self._unavailability(f"no reduction {reduction_name}", step_num, mode, found=found)
        return reductions.reduce_values(value, reduction_name, is_abs=abs)

    def reduction_values(
        self, step_num: int, mode: Mode = Mode.GLOBAL, worker: str | None = None
    ) -> dict[tuple[str, bool], float]:
        """Return all known reductions of the tensor in a step, by name and whether of absolute values."""
        found = self._worker_steps(step_num, mode, worker)[0]
        return dict(found.worker.reductions(self.name, found.row))

    def histogram(self, step_num: int, mode: Mode = Mode.GLOBAL, worker: str | None = None) -> Counts:
        """Return the counts in the bins of `histograms.py`; the parts of several workers are joined."""
        found = self._worker_steps(step_num, mode, worker)
        told = [counts[0] for each in found if len(counts := _histograms_at(each, self.name))]
        if not told:
            raise self._unavailability("no histogram", step_num, mode, found=found)
        return join_counts(np.stack(told)) if self._is_in_parts(worker) else told[0]

    def histograms(self, mode: Mode = Mode.GLOBAL, worker: str | None = None) -> dict[int, Counts]:
        """Return the histograms of one worker at all steps that have them."""
        self._view.maybe_refresh()
        chosen = self._view.worker(worker)
        found = chosen.histograms(self.name)
        wanted = np.isin(found.rows, self._view.rows(chosen, mode), assume_unique=True)
        labels = chosen.index.labels(found.rows[wanted], mode)
        return dict(zip(labels.tolist(), found.values[wanted], strict=True))

    def _worker_steps(self, step: int, mode: Mode, worker: str | None) -> list[WorkerStep]:
        """Return the step of each worker that has the tensor there."""
        self._view.maybe_refresh()
        there = self._view.require(step, mode, worker)
        found = [each for each in there if each.worker.info(self.name, each.row) is not None]
        if not found:
            raise self._unavailability("no data", step, mode, found=[])
        return found

    def _is_in_parts(self, worker: str | None) -> bool:
        return worker is None and bool(self.info.whole_shape)

    def _value(self, found: Sequence[WorkerStep]) -> NDArray[Any] | None:
        return next((value for each in found if (value := _value_at(each, self.name)) is not None), None)

    def _join_parts(self, found: Sequence[WorkerStep], statistic: str, step: int, mode: Mode) -> float:
        if statistic not in reductions.STATISTICS:
            raise self._unavailability(f"no reduction {statistic} of all its parts", step, mode, found=found)
        told = [each.worker.step(each.row) for each in found]
        places = [each.table.places[self.name] for each in told]
        sizes = [each.table.tensors[place].size for each, place in zip(told, places, strict=True)]
        parts = [each.statistics[place] for each, place in zip(told, places, strict=True)]
        return float(reductions.derive(reductions.join(parts, sizes), statistic, size=sum(sizes)))

    def _unavailability(
        self, lacking: str, step: int, mode: Mode, *, found: Sequence[WorkerStep]
    ) -> TensorUnavailableForStep:
        known: Reductions = found[0].worker.reductions(self.name, found[0].row) if found else {}
        words = [f"abs_{word}" if is_abs else word for word, is_abs in known]
        return TensorUnavailableForStep(self.name, step=step, mode=mode, lacking=lacking, statistics=words)


def _intersect(rows: Numbers, others: Numbers) -> Numbers:
    return np.intersect1d(rows, others, assume_unique=True)


def _histograms_at(found: WorkerStep, name: str) -> Counts:
    told = found.worker.histograms(name)
    return np.asarray(told.values[told.rows == found.row])


def _value_at(found: WorkerStep, name: str) -> NDArray[Any] | None:
    raw = found.worker.raw(name, found.row)
    if raw is not None:
        return raw.array()
    scalar, info = found.worker.scalar(name, found.row), found.worker.info(name, found.row)
    if scalar is None or info is None:
        return None
    return np.full(info.shape, scalar, info.dtype if info.dtype in np.sctypeDict else "float32")
