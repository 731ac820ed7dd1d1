"""How many trials a warm-started tuning job needs to be as good as its parent.

    python -m benchmarks.tuning.warm_start [--final] [--problems NAME ...] [--kinds KIND ...] [--seeds N] [--jobs N]

For each problem and seed, a parent runs 50 trials one after another. Then a child on the same function with changed
ranges (IdenticalDataAndAlgorithm) and a child on a relative with other optima and scaled values (TransferLearning) run
25 each. The benchmark compares the number of the first trial that is as good as the parent's best, in the parent and in
the child. A trial is as good if it differs by no more than a hundredth of the distance between the parent's best and
the median of its first ten trials; otherwise, functions without noise would be followed to the eighth digit, which no
training has. It can be stopped and restarted at any time: results are kept in results/.
"""

import argparse
import contextlib
import json
import math
import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.tuning.fingerprint import fingerprint
from benchmarks.tuning.functions import DEVELOPMENT, FINAL
from benchmarks.tuning.problem import Problem
from benchmarks.tuning.relatives import Related, shifted_and_scaled, with_changed_ranges
from trainyard.foundation.jobs.tuning import (
    Direction,
    Objective,
    StrategyKind,
    TrialStatus,
    TuningDefinition,
    TuningPlan,
    TuningTrial,
    WarmStart,
    WarmStartKind,
)
from trainyard.insight.tuning.advice import advise
from trainyard.insight.tuning.space import Space

EVALUATIONS = 50
FOLLOWED = 25  # trials of a child
TOLERANCE = 0.01
RESULTS = Path(__file__).parent / "results" / "warm_start.jsonl"
KINDS: dict[WarmStartKind, Callable[[Problem], Related]] = {
    WarmStartKind.IDENTICAL: with_changed_ranges,
    WarmStartKind.TRANSFER: shifted_and_scaled,
}

Line = dict[str, Any]
Parents = Mapping[str, Sequence[TuningTrial]]


@dataclass(frozen=True, slots=True)
class Case:
    """A parent and its children, once."""

    problem: str
    kind: WarmStartKind
    seed: int

    def run(self) -> Line:
        related = KINDS[self.kind](_problem(self.problem))
        parent = Study(related.parent, seed=self.seed)
        bests = parent.run(EVALUATIONS)
        child = Study(related.child, seed=1000 + self.seed, warm_start=self.kind, parents={"parent": parent.trials})
        followed = [related.as_parents(value) for value in child.run(FOLLOWED)]
        target = bests[-1] + TOLERANCE * (statistics.median(parent.truths[:10]) - bests[-1])
        return {
            "problem": self.problem,
            "kind": self.kind.value,
            "seed": self.seed,
            "parent": trials_needed(bests, target),
            "child": trials_needed(followed, target),
        }


class Study:
    """A tuning job whose trials run one after another, called as the yard calls it."""

    def __init__(
        self, problem: Problem, *, seed: int, warm_start: WarmStartKind | None = None, parents: Parents | None = None
    ) -> None:
        definition = TuningDefinition("", Objective("loss", Direction.MINIMIZE), problem.ranges)
        start = WarmStart(warm_start, ("parent",)) if warm_start else None
        self._plan = TuningPlan(StrategyKind.BAYESIAN, (definition,), max_parallel=1, seed=seed, warm_start=start)
        self._parents = parents or {} if warm_start else {}
        self._problem = problem
        self._space = Space(problem.ranges)
        self._noise = np.random.default_rng([seed, 1])
        self.trials: list[TuningTrial] = []
        self.truths: list[float] = []

    def run(self, count: int) -> list[float]:
        """Return, after each trial, the true value of the trial with the best measured value."""
        bests = []
        for number in range(1, count + 1):
            self._try(number)
            told = [math.inf if trial.objective is None else trial.objective for trial in self.trials]
            bests.append(self.truths[int(np.argmin(told))])
        return bests

    def _try(self, number: int) -> None:
        advice = advise(self._plan, self.trials, parents=self._parents, number=number)
        assert advice is not None, "Only a grid has an end."
        trial = TuningTrial(number, str(number), "", advice.values, TrialStatus.FAILED)
        truth = self._problem.truth(self._space.values(advice.values))
        disturbance = self._problem.noise * float(self._noise.standard_normal())
        if truth is not None:
            trial = replace(trial, status=TrialStatus.COMPLETED, objective=truth + disturbance)
        self.trials.append(trial)
        self.truths.append(math.inf if truth is None else truth)


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parse(arguments)
    version = fingerprint("trainyard.insight.tuning.advice")
    known = [line for line in _read_lines(options.results) if line["version"] == version]
    done = {(line["problem"], line["kind"], line["seed"]) for line in known}
    cases = [each for each in _cases(options) if (each.problem, each.kind.value, each.seed) not in done]
    options.results.parent.mkdir(parents=True, exist_ok=True)
    with options.results.open("a", buffering=1) as file:
        for line in _run_all(cases, jobs=options.jobs):
            known.append({**line, "version": version})
            file.write(json.dumps(known[-1]) + "\n")
    wanted = {each.name for each in _problems(options)}
    print(table([line for line in known if line["problem"] in wanted and line["seed"] < options.seeds]))


def table(lines: Sequence[Line]) -> str:
    """Return medians over the seeds, in Markdown."""
    rows = ["| problem | warm start | parent | child | share |", "|---|---|---|---|---|"]
    for kind in KINDS:
        of_kind = [each for each in lines if each["kind"] == kind]
        for name in sorted({line["problem"] for line in of_kind}):
            rows.append(_row(name, kind, [each for each in of_kind if each["problem"] == name]))
        rows.append(_row("**all**", kind, of_kind))
    return "\n".join(row for row in rows if row)


def trials_needed(bests: Sequence[float], target: float) -> int:
    """Return the number of the first trial that is as good as the target.

    If there is none, it is one more than the number of trials.
    """
    return next((number for number, value in enumerate(bests, start=1) if value <= target), len(bests) + 1)


def _row(name: str, kind: WarmStartKind, lines: Sequence[Line]) -> str:
    if not lines:
        return ""
    parent, child = (statistics.median(line[who] for line in lines) for who in ("parent", "child"))
    share = statistics.median(line["child"] / line["parent"] for line in lines)
    return f"| {name} | {kind} | {parent:g} | {child:g} | {share:.2f} |"


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--final", action="store_true", help="the functions of the published table")
    parser.add_argument("--problems", nargs="+", help="names; all unless given")
    parser.add_argument("--kinds", nargs="+", type=WarmStartKind, default=list(KINDS), help="both unless given")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser.parse_args(arguments)


def _cases(options: argparse.Namespace) -> list[Case]:
    problems = _problems(options)
    return [Case(each.name, kind, seed) for seed in range(options.seeds) for each in problems for kind in options.kinds]


def _problems(options: argparse.Namespace) -> list[Problem]:
    problems = FINAL if options.final else DEVELOPMENT
    return [each for each in problems if not options.problems or each.name in options.problems]


def _problem(name: str) -> Problem:
    return next(each for each in (*DEVELOPMENT, *FINAL) if each.name == name)


def _run_all(cases: Sequence[Case], *, jobs: int) -> Iterator[Line]:
    if jobs == 1:
        yield from (case.run() for case in cases)
        return
    with ProcessPoolExecutor(jobs) as pool:
        for future in as_completed([pool.submit(case.run) for case in cases]):
            yield future.result()


def _read_lines(path: Path) -> list[Line]:
    lines = []
    for text in path.read_text().splitlines() if path.exists() else ():
        # A run that is stopped can cut off a line.
        with contextlib.suppress(json.JSONDecodeError):
            lines.append(json.loads(text))
    return lines


if __name__ == "__main__":
    main()
