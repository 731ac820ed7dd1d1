"""Trees that grow too deep."""

from collections.abc import Iterator

import numpy as np

from trainyard.formats.tensors.contract import Statistic, Step
from trainyard.insight.rules.contract import DebuggerRule, Finding, Need, Parameter
from trainyard.insight.rules.readings import History, Reader, Reading

NODES = r"^trees/Node$"


class TreeDepth(DebuggerRule):
    """Finds boosted trees that are deeper than they should be."""

    name = "TreeDepth"
    parameters = (Parameter("depth", int, 4, "The maximum depth.", advised=6, at_least=0),)

    def __init__(self, *, depth: int) -> None:
        self._depth = depth
        self._reader, self._history = Reader(self.needs), History()

    @property
    def needs(self) -> Need:
        return Need(regexes=(NODES,))

    def check(self, step: Step) -> Iterator[Finding]:
        reading = self._reader.read(step)
        largest = reading.column(Statistic.MAX)
        depths = np.floor(np.log2(largest + 1))
        self._history.add(reading, depths)
        for index in np.flatnonzero(depths > self._depth):
            yield self._finding(reading, int(index), depth=int(depths[index]), node=int(largest[index]))

    def _finding(self, reading: Reading, index: int, *, depth: int, node: int) -> Finding:
        step = reading.step
        return Finding.at(
            step,
            reading.tensors[index].name,
            f"A tree of round {step.number} has node {node}, so its depth is at least {depth}, more than "
            f"{self._depth}.",
            value=float(depth),
            threshold=float(self._depth),
            evidence=(self._history.evidence(reading, index, label="depth"),),
        )
