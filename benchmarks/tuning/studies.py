"""Selects the studies that count, by engine, problem and mode."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.tuning.engines import ENGINES
from benchmarks.tuning.problem import Problem
from benchmarks.tuning.ranking import Regrets
from benchmarks.tuning.running import Line, digest

Curves = npt.NDArray[np.float64]  # one row per study


@dataclass(frozen=True)
class Results:
    """The lines of the newest version of each engine on the current problems."""

    studies: Mapping[tuple[str, str, str], Curves]  # by engine, problem and mode
    # Per suggestion, by engine and number of observations.
    seconds: Mapping[tuple[str, int], float]
    versions: Mapping[str, str]
    lines: Sequence[Line]

    def engines(self, problems: Iterable[str], mode: str) -> list[str]:
        """Return the engines that have results for all the problems."""
        names = list(problems)
        return [each.name for each in ENGINES if all((each.name, name, mode) in self.studies for name in names)]

    def last_regrets(self, problem: str, mode: str, *, engines: Iterable[str]) -> Regrets:
        return {engine: self.studies[engine, problem, mode][:, -1] for engine in engines}


def gather(lines: Iterable[Line], problems: Sequence[Problem]) -> Results:
    """Select the lines that count: for each engine, those of the version that ran last."""
    known = list(lines)
    versions = {line["engine"]: line["version"] for line in known}
    digests = {problem.name: digest(problem) for problem in problems}
    counting = {
        (line["engine"], line.get("problem"), line.get("mode"), line.get("seed"), line.get("observations")): line
        for line in known
        if line["version"] == versions[line["engine"]]
        and ("observations" in line or digests.get(line["problem"]) == line["digest"])
    }
    studies: dict[tuple[str, str, str], list[list[float]]] = {}
    for line in counting.values():
        if "regret" in line:
            curve = [float("inf") if each is None else each for each in line["regret"]]
            studies.setdefault((line["engine"], line["problem"], line["mode"]), []).append(curve)
    seconds = {(line["engine"], line["observations"]): line["ask_s"] for line in counting.values() if "ask_s" in line}
    arrays = {key: np.array(curves) for key, curves in studies.items()}
    return Results(arrays, seconds, versions, list(counting.values()))
