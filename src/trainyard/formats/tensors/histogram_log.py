"""The histograms that a worker has kept, read when they are asked for."""

from dataclasses import dataclass

import numpy as np

from trainyard.formats.tensors.histograms import BINS, Counts
from trainyard.formats.tensors.segments import SegmentLog
from trainyard.formats.tensors.step_index import Numbers


@dataclass(frozen=True, slots=True)
class StepHistograms:
    """The histograms of a tensor: a row of counts for each of some steps, which rise."""

    steps: Numbers
    counts: Counts


class HistogramLog:
    """The histograms of one worker; of a step that a training repeated, those that came last."""

    def __init__(self, segments: SegmentLog) -> None:
        self._segments = segments

    def read(self, name: str) -> StepHistograms:
        for block in self._segments.refresh(is_thorough=True):
            self._segments.add(block)
        found: dict[int, Counts] = {}
        for block in self._segments.blocks:
            place = block.table.places.get(name)
            steps, tensors, counts = (block.column(each) for each in ("step", "tensor", "counts"))
            if place is not None and steps is not None and tensors is not None and counts is not None:
                rows = np.flatnonzero(tensors == place)
                found |= zip(steps[rows].tolist(), counts[rows], strict=True)
        steps_found = np.array(sorted(found), np.int64)
        stacked = [found[int(step)] for step in steps_found]
        return StepHistograms(steps_found, np.stack(stacked) if stacked else np.empty((0, BINS), np.uint32))
