"""How many epochs the rules for early stopping save, and whether they still find the best trial.

    python -m benchmarks.tuning.early_stopping [--development] [--seeds N] [--only NAME ...] [--strategies NAME ...]

Studies of 50 trials on 4 workers use learning curves that are known to their end, once with each rule and once without,
everything else being equal. A trial reports after each epoch, trainings differ in speed, and the rule is evaluated
after each report, as the yard does. Random search draws trials from the table; a suggestion of another strategy stands
for the nearest untried trial in the table.

Two figures are compared: the trained epochs, as a fraction of those without a rule, and the loss of the best trial, as
a fraction of the gain of the study over its median trial without a rule. All are medians over the seeds.

A run can be stopped and restarted at any time: the result of each study is kept as long as the rule, the strategy and
the curves do not change.
"""

import argparse
import hashlib
import heapq
import json
import math
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks.tuning.fingerprint import fingerprint, meaning
from benchmarks.tuning.learning_curves import DEVELOPMENT, EPOCHS, FINAL, TASKS, Table, read_table
from benchmarks.tuning.synthetic_curves import DEVELOPMENT_CURVES, FINAL_CURVES, synthetic_table
from trainyard.foundation.jobs.tuning import Direction, HyperbandResources, Objective, StrategyKind
from trainyard.insight.tuning.bayesian import BayesianStrategy
from trainyard.insight.tuning.contract import Observation, Pruner, State, TrialCurve
from trainyard.insight.tuning.curves import CurveRule
from trainyard.insight.tuning.hyperband import Hyperband
from trainyard.insight.tuning.median import MedianRule
from trainyard.insight.tuning.space import Space

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tuning" / "early-stopping.md"
TRIALS, WORKERS = 50, 4
KEPT = Path(__file__).with_name("results") / "early_stopping.jsonl"

RULES: Mapping[str, Callable[[Objective], Pruner] | None] = {
    "none": None,
    "median": MedianRule,
    "curve": CurveRule,
    "Hyperband": lambda objective: Hyperband(objective, HyperbandResources(1, EPOCHS)),
}


# The modules that decide the verdicts of each rule. When one of them changes, its studies run again.
MODULES = {"none": (), "median": ("median",), "curve": ("curves", "curve_forecast"), "Hyperband": ("hyperband",)}


@dataclass(frozen=True, slots=True)
class Case:
    table: str
    strategy: StrategyKind
    rule: str
    seed: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a study: its best final value, and its cost."""

    best: float
    middle: float
    epochs: int
    longest_verdict_s: float
    mean_verdict_s: float


@dataclass(slots=True)
class _Trial:
    number: int
    row: int
    pace: float  # seconds per epoch
    reports: int = 0
    is_over: bool = False
    is_cut_short: bool = False


@dataclass(slots=True)
class _Study:
    table: Table
    strategy: StrategyKind
    pruner: Pruner | None
    seed: int
    trials: list[_Trial] = field(default_factory=list)
    verdict_s: list[float] = field(default_factory=list)

    def run(self) -> Outcome:
        due = [(0.0, worker) for worker in range(WORKERS)]
        running: dict[int, _Trial] = {}
        while due:
            now, worker = heapq.heappop(due)
            trial = running.get(worker)
            if trial is not None:
                self._report(trial)
            if trial is None or trial.is_over:
                if len(self.trials) == TRIALS:
                    continue
                trial = running[worker] = self._begin()
            heapq.heappush(due, (now + trial.pace, worker))
        return self._outcome()

    def _begin(self) -> _Trial:
        number = len(self.trials) + 1
        pace = float(np.random.default_rng([self.seed, number]).lognormal(0.0, 0.3))
        trial = _Trial(number, self._row(number), pace)
        self.trials.append(trial)
        return trial

    def _row(self, number: int) -> int:
        """Return the row of the next trial in the table."""
        if self.strategy is StrategyKind.RANDOM:
            return int(np.random.default_rng([self.seed]).permutation(len(self.table.points))[number - 1])
        space = Space(self.table.ranges)
        strategy = BayesianStrategy(space, self.table.direction, seed=self.seed)
        suggestion = strategy.suggest([self._observation(trial) for trial in self.trials], number=number)
        wanted = space.encode(suggestion or {})
        assert wanted is not None, "a suggestion is within the ranges"
        tried = {trial.row for trial in self.trials}
        rows = [row for row in range(len(self.table.points)) if row not in tried]
        return min(rows, key=lambda row: self._distance(space, wanted, row))

    def _distance(self, space: Space, wanted: np.ndarray, row: int) -> float:
        apart = np.abs(wanted - space.encode(self.table.points[row]))
        return float(np.square(np.where(space.categorical, apart > 0, apart)).sum())

    def _observation(self, trial: _Trial) -> Observation:
        values = self.table.points[trial.row]
        curve = self._curve(trial)
        if not trial.is_over:
            return Observation(values, State.PENDING, curve=curve)
        if not math.isfinite(curve[-1]):
            return Observation(values, State.DIVERGED, curve=curve)
        return Observation(values, State.CUT_SHORT if trial.is_cut_short else State.MEASURED, curve[-1], curve)

    def _report(self, trial: _Trial) -> None:
        trial.reports += 1
        trial.is_over = trial.reports == len(self.table.curves[trial.row])
        if trial.is_over or self.pruner is None:
            return
        others = [self._curve_so_far(other) for other in self.trials if other is not trial]
        began = time.process_time()
        verdict = self.pruner.verdict(self._curve_so_far(trial), others)
        self.verdict_s.append(time.process_time() - began)
        trial.is_over = trial.is_cut_short = verdict is not None

    def _curve_so_far(self, trial: _Trial) -> TrialCurve:
        return TrialCurve(trial.number, self._curve(trial), trial.is_over, trial.is_cut_short)

    def _curve(self, trial: _Trial) -> tuple[float, ...]:
        return self.table.curves[trial.row][: trial.reports]

    def _outcome(self) -> Outcome:
        sign = 1.0 if self.table.direction is Direction.MINIMIZE else -1.0
        reached = [self._curve(trial)[-1] for trial in self.trials]
        losses = sorted(sign * value for value in reached if math.isfinite(value))
        return Outcome(
            best=losses[0],
            middle=statistics.median(losses),
            epochs=sum(trial.reports for trial in self.trials),
            longest_verdict_s=max(self.verdict_s, default=0.0),
            mean_verdict_s=statistics.fmean(self.verdict_s) if self.verdict_s else 0.0,
        )


def study(case: Case) -> Outcome:
    table = _read_or_make_table(case.table)
    rule = RULES[case.rule]
    pruner = rule(Objective("objective", table.direction)) if rule is not None else None
    return _Study(table, case.strategy, pruner, case.seed).run()


def _read_or_make_table(table: str) -> Table:
    return read_table(table) if table in TASKS else synthetic_table(table)


@dataclass(frozen=True, slots=True)
class Line:
    """The result of a rule on one table: medians over the seeds."""

    table: str
    strategy: str
    rule: str
    # As a fraction of those without a rule.
    epochs: float
    # Of the best trial, as a fraction of the gain.
    loss: float
    # The fraction of seeds in which the best trial is no worse.
    as_good: float
    # The 90th percentile over the seeds.
    worst_loss: float


def main() -> None:
    arguments = _arguments()
    names = arguments.only or _names(is_development=arguments.development)
    cases = [
        Case(name, StrategyKind(strategy), rule, seed)
        for strategy in arguments.strategies
        for name in names
        for rule in RULES
        for seed in range(arguments.seeds)
    ]
    outcomes = _outcomes(cases, processes=arguments.processes)
    table = _table(list(_lines(outcomes)))
    print(table)
    print(_speed(outcomes))
    if not arguments.development and not arguments.only:
        _write(table)


def _outcomes(cases: Sequence[Case], *, processes: int) -> dict[Case, Outcome]:
    """Return the outcomes of all cases. Run and store those that are missing or outdated."""
    known = dict(_load_outcomes())
    missing = [case for case in cases if (case, _version(case)) not in known]
    KEPT.parent.mkdir(exist_ok=True)
    with ProcessPoolExecutor(processes) as pool, KEPT.open("a") as kept:
        for case, outcome in zip(missing, pool.map(study, missing), strict=True):
            known[case, _version(case)] = outcome
            kept.write(json.dumps({**asdict(case), "version": _version(case), **asdict(outcome)}) + "\n")
            kept.flush()
    return {case: known[case, _version(case)] for case in cases}


def _load_outcomes() -> Iterator[tuple[tuple[Case, str], Outcome]]:
    if not KEPT.exists():
        return
    for line in KEPT.read_text().splitlines():
        read = json.loads(line)
        case = Case(read["table"], StrategyKind(read["strategy"]), read["rule"], read["seed"])
        yield (case, read["version"]), Outcome(**{each.name: read[each.name] for each in fields(Outcome)})


@cache
def _version_of(table: str, strategy: StrategyKind, rule: str) -> str:
    modules = [f"trainyard.insight.tuning.{name}" for name in MODULES[rule]]
    parts = [meaning(Path(str(sys.modules[name].__file__)).read_text()) for name in modules]
    parts.append(repr(_read_or_make_table(table)))
    parts.append(fingerprint("trainyard.insight.tuning.bayesian") if strategy is StrategyKind.BAYESIAN else "")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def _version(case: Case) -> str:
    return _version_of(case.table, case.strategy, case.rule)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure what early stopping saves, and what it costs.")
    parser.add_argument("--development", action="store_true", help="the tables that rules are designed on")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--strategies", nargs="+", default=["Random", "Bayesian"], choices=["Random", "Bayesian"])
    parser.add_argument("--processes", type=int, default=1)
    return parser.parse_args()


def _names(*, is_development: bool) -> list[str]:
    return [*DEVELOPMENT, *DEVELOPMENT_CURVES] if is_development else [*FINAL, *FINAL_CURVES]


def _lines(outcomes: Mapping[Case, Outcome]) -> Iterator[Line]:
    groups = dict.fromkeys((case.strategy, case.table, case.rule) for case in outcomes if case.rule != "none")
    for strategy, table, rule in groups:
        seeds = sorted({case.seed for case in outcomes})
        pairs = [
            (outcomes[Case(table, strategy, "none", seed)], outcomes[Case(table, strategy, rule, seed)])
            for seed in seeds
        ]
        losses = sorted((ruled.best - free.best) / ((free.middle - free.best) or 1.0) for free, ruled in pairs)
        yield Line(
            table=table,
            strategy=strategy.value,
            rule=rule,
            epochs=statistics.median(ruled.epochs / free.epochs for free, ruled in pairs),
            loss=statistics.median(losses),
            as_good=statistics.fmean(loss <= 0 for loss in losses),
            worst_loss=losses[math.ceil(0.9 * len(losses)) - 1],
        )


def _table(lines: Sequence[Line]) -> str:
    rows = [
        "| strategy | learning curves | rule | epochs | loss of the best | in 9 of 10 seeds at most | best no worse |",
        "|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*rows, *map(_row, lines), *map(_row, _middle(lines))])


def _row(line: Line) -> str:
    figures = (f"{line.epochs:.0%}", f"{line.loss:.1%}", f"{line.worst_loss:.1%}", f"{line.as_good:.0%}")
    return f"| {line.strategy} | {line.table} | {line.rule} | {' | '.join(figures)} |"


def _middle(lines: Sequence[Line]) -> Iterator[Line]:
    """Yield the result of each rule over all tables."""
    for strategy, rule in dict.fromkeys((line.strategy, line.rule) for line in lines):
        same = [line for line in lines if line.strategy == strategy and line.rule == rule]
        yield Line(
            table="**median of all**",
            strategy=strategy,
            rule=rule,
            epochs=statistics.median(line.epochs for line in same),
            loss=statistics.median(line.loss for line in same),
            as_good=statistics.fmean(line.as_good for line in same),
            worst_loss=statistics.median(line.worst_loss for line in same),
        )


def _speed(outcomes: Mapping[Case, Outcome]) -> str:
    def describe_rule(rule: str) -> str:
        own = [outcome for case, outcome in outcomes.items() if case.rule == rule]
        mean = statistics.fmean(outcome.mean_verdict_s for outcome in own) * 1000
        return f"{rule} {mean:.2g} ms, at most {max(outcome.longest_verdict_s for outcome in own) * 1000:.2g} ms"

    return "CPU time of a verdict: " + "; ".join(describe_rule(rule) for rule in RULES if rule != "none") + "."


def _write(table: str) -> None:
    """Replace the table in the page."""
    page = PAGE.read_text()
    PAGE.write_text(re.sub(r"\| strategy \|.*?\n\n", lambda _: f"{table}\n\n", page, count=1, flags=re.DOTALL))


if __name__ == "__main__":
    main()
