"""What the studies came to, as a page of the docs: `python -m benchmarks.tuning.table` writes it of what was run.

It keeps what was run in the repository too, so that nobody has to run it again.
"""

import argparse
import gzip
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.tuning.comparison import median_rows, rank_rows, table_row
from benchmarks.tuning.drawing import picture
from benchmarks.tuning.engines import ENGINES, Offer, offer
from benchmarks.tuning.functions import FINAL
from benchmarks.tuning.problem import Problem
from benchmarks.tuning.ranking import RESAMPLES
from benchmarks.tuning.running import (
    EVALUATIONS,
    FRESH,
    KEPT,
    OBSERVATIONS,
    TIMED_ON,
    WORKERS,
    development,
    final,
    read_lines,
)
from benchmarks.tuning.studies import Results, gather
from benchmarks.tuning.tasks import FINAL_TASKS
from trainyard.foundation.tuning import ParameterRange, RangeKind, Scaling

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tuning" / "benchmark.md"
LEAST_SHARE = 1e-6  # of random's regret: what a curve shows of a study that found the optimum


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=FRESH)
    write(parser.parse_args().results)


def write(fresh: Path) -> None:
    """Write the page with its pictures, and keep the lines that it is made of."""
    lines = read_lines(fresh)
    results = gather(lines, final())
    KEPT.parent.mkdir(exist_ok=True)
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in results.lines)
    KEPT.write_bytes(gzip.compress(text.encode(), mtime=0))
    PAGE.parent.mkdir(exist_ok=True)
    for mode in WORKERS:
        PAGE.with_name(f"regret-{mode}.svg").write_text(regret_curves(results, mode))
    PAGE.write_text(page(results))
    print(PAGE)


def page(results: Results) -> str:
    names = [problem.name for problem in final()]
    parts = [_OPENING]
    for mode, workers in WORKERS.items():
        title = "One trial at a time" if workers == 1 else f"{workers} trials at once"
        parts += [f"## {title}", *_section(results, names, mode)]
    parts += ["## How long a suggestion takes", _TIME.format(problem=TIMED_ON), "\n".join(_times(results))]
    parts += ["## What was compared", _compared(results), "## The problems", _PROBLEMS]
    parts += ["### DEVELOPMENT", _described(development()), "### FINAL", _described(final()), "## Running it", _AGAIN]
    return "\n\n".join(parts) + "\n"


def regret_curves(results: Results, mode: str) -> str:
    names = [problem.name for problem in final()]
    engines = results.engines(names, mode)
    curves: dict[str, list[float]] = {}
    for engine in engines:
        shares = []
        for name in names:
            unit = float(np.median(results.studies["random", name, mode][:, -1]))
            # The worst that any study had stands for studies of which every trial has failed so far.
            curve = np.median(results.studies[engine, name, mode], axis=0)
            worst = np.max(curve[np.isfinite(curve)])
            shares.append(np.maximum(np.where(np.isfinite(curve), curve, worst) / unit, LEAST_SHARE))
        curves[offer(engine).title] = np.exp(np.mean(np.log(shares), axis=0)).tolist()
    title = f"Regret beside that of 50 random trials, {mode}"
    return picture(title, curves, across="evaluations; geometric mean over problems of the median over seeds")


def _section(results: Results, names: Sequence[str], mode: str) -> list[str]:
    functions, tasks = [each.name for each in FINAL], [each.name for each in FINAL_TASKS]
    columns = {"all": names, "functions": functions, "trainings": tasks}
    engines = results.engines(names, mode)
    absent = ", ".join(each.title for each in ENGINES if each.name not in engines)
    return [
        "\n".join(rank_rows(results, columns, mode)),
        *([f"Not in this table, as they have not yet run on every problem: {absent}."] if absent else []),
        f"![Regret of every engine, by evaluations](regret-{mode}.svg)",
        f"The median regret after {EVALUATIONS} evaluations:",
        "\n".join(median_rows(results, names, mode, engines=engines)),
    ]


def _times(results: Results) -> list[str]:
    rows = [["engine", *(f"{count} observations" for count in OBSERVATIONS)], ["---"] * (len(OBSERVATIONS) + 1)]
    for engine in ENGINES:
        times = [results.seconds.get((engine.name, count)) for count in OBSERVATIONS]
        if any(each is not None for each in times):
            rows.append([engine.title, *("" if each is None else f"{each:.3f} s" for each in times)])
    return [table_row(row) for row in rows]


def _compared(results: Results) -> str:
    rows = [["engine", "version", "as it is used"], ["---"] * 3]
    for engine in ENGINES:
        if engine.name in results.versions:
            version = results.versions[engine.name]
            shown = _own(engine, version) if engine.name == "trainyard" else version.replace(" ", "&nbsp;", 1)
            rows.append([engine.title, shown, _USED[engine.name]])
    return "\n".join(table_row(row) for row in rows)


def _own(engine: Offer, version: str) -> str:
    return f"source `{version}`" + ("" if version == engine.version else f", changed since then to `{engine.version}`")


def _described(problems: Iterable[Problem]) -> str:
    rows = [["problem", "ranges", "told with"], ["---"] * 3]
    rows += [[each.name, _ranges(each.ranges), f"noise of {each.noise:g}" if each.noise else ""] for each in problems]
    return "\n".join(table_row(row) for row in rows)


def _ranges(ranges: Sequence[ParameterRange]) -> str:
    kinds: dict[str, int] = {}
    for each in ranges:
        kinds[_kind(each)] = kinds.get(_kind(each), 0) + 1
    return ", ".join(f"{count} {kind}" for kind, count in kinds.items())


def _kind(within: ParameterRange) -> str:
    if within.kind is RangeKind.CATEGORICAL:
        return f"categorical of {len(within.values)}"
    scaling = {Scaling.LINEAR: "", Scaling.LOGARITHMIC: "log ", Scaling.REVERSE_LOGARITHMIC: "reverse-log "}
    return scaling[within.scaling] + ("integer" if within.kind is RangeKind.INTEGER else "continuous")


_OPENING = f"""# The tuning benchmark

<!-- `python -m benchmarks.tuning` writes this page; change benchmarks/tuning/table.py. -->

The Bayesian strategy beside random search and the engines of others: each is given {EVALUATIONS} evaluations of every
problem, one trial at a time, and with 4 workers that take a trial each whenever they are free. On the simulated clock
a trial takes a lognormal time (deviation 0.5); durations and noise are the same for every engine. Regret is how far the
trial that was measured best truly is from the optimum, without noise. The rank of an engine on a problem, 1 the best,
is the one it has on average when one study of each engine is drawn; ties share a rank. Intervals are of {RESAMPLES}
draws, with replacement, of problems and of studies; "best in" is the share of these draws in which the engine has the
best mean rank."""

_TIME = """Seconds of one core for the next suggestion, with so many trials measured of `{problem}`, which has two
continuous, two integer and two categorical ranges; the middle of three. CMA-ES learns only from trials that it asked
for itself, so that its figures are those of its start."""

_PROBLEMS = """Functions and trainings of DEVELOPMENT may be used while a strategy is written and its constants are
chosen. Those of FINAL, and nothing else, are in the tables above; no decision about a strategy may come from them.
Scalings are always given, never Auto, so that every engine knows the same. Of a problem whose name ends in `failing`,
a part of the space fails. Trainings are tabulated: scikit-learn's data sets (wine and iris for DEVELOPMENT; digits,
breast cancer and diabetes for FINAL) by cross-validation on a full grid, linearly interpolated between its nodes on the
scale of each range, so that every engine sees the same function, of which the least value is known."""

_AGAIN = """`python -m benchmarks.tuning` makes the environment of the peers, runs the studies that are missing and
writes this page. What was run is in `benchmarks/tuning/results/runs.jsonl.gz`; a study is run again only when its
engine (for ours: the code, without comments and docstrings) or its problem has changed. It may be ended and started
again at any time. `python -m benchmarks.tuning.running --help` shows how to run a part,
`python -m benchmarks.tuning.tabulation` makes the tables of the trainings anew, and
`python -m benchmarks.tuning --development` compares on DEVELOPMENT."""

_USED = {
    "trainyard": "strategy `Bayesian`, through the call that the yard makes",
    "random": "uniform on the scale of each range",
    "optuna-tpe": "`TPESampler(multivariate=True, constant_liar=True)`",
    "optuna-cma": "`CmaEsSampler()`; it draws categories at random",
    "optuna-gp": "`GPSampler()`",
    "botorch": "`qLogNoisyExpectedImprovement` with pending trials, on `SingleTaskGP`, with categories "
    "`MixedSingleTaskGP`; a Sobol sequence first; a failed trial is told the worst value",
    "syne-tune": "`BoTorchSearcher`, its Gaussian process; configurations and values, which it pairs wrongly when "
    "trials end in another order than they began, are put in order, and a failed trial is told the worst value",
}


if __name__ == "__main__":
    main()
