"""The results of the studies as a page of the docs, which `python -m benchmarks.tuning.table` writes.

It also stores the results in the repository, so that nobody has to run the studies again.
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
from trainyard.foundation.jobs.tuning import HyperparameterRange, RangeKind, Scaling

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tuning" / "benchmark.md"
# As a fraction of random's regret: what a curve shows for a study that found the optimum.
LEAST_SHARE = 1e-6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=FRESH)
    write(parser.parse_args().results)


def write(fresh: Path) -> None:
    """Write the page with its pictures, and store the results that it shows."""
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
    parts += ["## What was compared", _configurations(results), "## The problems", _PROBLEMS]
    parts += [
        "### DEVELOPMENT",
        _problems(development()),
        "### FINAL",
        _problems(final()),
        "## Running it",
        _AGAIN,
    ]
    return "\n\n".join(parts) + "\n"


def regret_curves(results: Results, mode: str) -> str:
    names = [problem.name for problem in final()]
    engines = results.engines(names, mode)
    curves: dict[str, list[float]] = {}
    for engine in engines:
        shares = []
        for name in names:
            unit = float(np.median(results.studies["random", name, mode][:, -1]))
            # While every trial of a study has failed, it counts as the worst of all.
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
        *([f"Not in this table, because they have not yet run on every problem: {absent}."] if absent else []),
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


def _configurations(results: Results) -> str:
    rows = [["engine", "version", "configuration"], ["---"] * 3]
    for engine in ENGINES:
        if engine.name in results.versions:
            version = results.versions[engine.name]
            shown = _own(engine, version) if engine.name == "trainyard" else version.replace(" ", "&nbsp;", 1)
            rows.append([engine.title, shown, _USED[engine.name]])
    return "\n".join(table_row(row) for row in rows)


def _own(engine: Offer, version: str) -> str:
    return f"source `{version}`" + ("" if version == engine.version else f", changed since then to `{engine.version}`")


def _problems(problems: Iterable[Problem]) -> str:
    rows = [["problem", "ranges", "noise"], ["---"] * 3]
    rows += [[each.name, _ranges(each.ranges), f"{each.noise:g}" if each.noise else ""] for each in problems]
    return "\n".join(table_row(row) for row in rows)


def _ranges(ranges: Sequence[HyperparameterRange]) -> str:
    kinds: dict[str, int] = {}
    for each in ranges:
        kinds[_kind(each)] = kinds.get(_kind(each), 0) + 1
    return ", ".join(f"{count} {kind}" for kind, count in kinds.items())


def _kind(within: HyperparameterRange) -> str:
    if within.kind is RangeKind.CATEGORICAL:
        return f"categorical of {len(within.values)}"
    scaling = {Scaling.LINEAR: "", Scaling.LOGARITHMIC: "log ", Scaling.REVERSE_LOGARITHMIC: "reverse-log "}
    return scaling[within.scaling] + ("integer" if within.kind is RangeKind.INTEGER else "continuous")


_OPENING = f"""# The tuning benchmark

<!-- `python -m benchmarks.tuning` writes this page; change benchmarks/tuning/table.py. -->

The Bayesian strategy, compared with random search and other engines. Each engine has {EVALUATIONS} evaluations of every
problem: one trial at a time, and with 4 workers that each start a trial as soon as they are free. On the simulated
clock, a trial takes a lognormal time (standard deviation 0.5 of the logarithm); durations and noise are the same for
every engine. Regret is the distance of the trial with the best measured value from the optimum, without noise. The rank
of an engine on a problem, 1 for the best, is its mean rank when one study of each engine is drawn; ties share a rank.
Intervals come from {RESAMPLES} bootstrap draws of problems and studies; "best in" is the fraction of these draws in
which the engine has the best mean rank."""

_TIME = """CPU seconds for the next suggestion after this many trials of `{problem}`, which has two continuous, two
integer and two categorical ranges; the median of three. CMA-ES learns only from trials that it suggested itself, so its
figures are those of its start."""

_PROBLEMS = """Functions and trainings of DEVELOPMENT may be used while a strategy is written and its constants are
chosen. The tables above show only those of FINAL; no decision about a strategy may be based on them. Scalings are
always given, never Auto, so that every engine has the same information. In problems whose names end in `failing`,
trials fail in a part of the space. Trainings are tabulated on data sets of scikit-learn (wine and iris for DEVELOPMENT;
digits, breast cancer and diabetes for FINAL): cross-validation on a full grid, interpolated linearly between its nodes
on the scale of each range, so that every engine sees the same function with a known minimum."""

_AGAIN = """`python -m benchmarks.tuning` creates the environment of the peers, runs missing studies and writes this
page. The results are in `benchmarks/tuning/results/runs.jsonl.gz`; a study runs again only if its engine (for ours: the
code, without comments and docstrings) or its problem has changed. It can be stopped and restarted at any time.
`python -m benchmarks.tuning.running --help` shows how to run a part, `python -m benchmarks.tuning.tabulation` computes
the tables of the trainings again, and `python -m benchmarks.tuning --development` compares engines on DEVELOPMENT."""

_USED = {
    "trainyard": "strategy `Bayesian`, through the call that the yard makes",
    "random": "uniform on the scale of each range",
    "optuna-tpe": "`TPESampler(multivariate=True, constant_liar=True)`",
    "optuna-cma": "`CmaEsSampler()`; it draws categories at random",
    "optuna-gp": "`GPSampler()`",
    "botorch": "`qLogNoisyExpectedImprovement` with pending trials, on `SingleTaskGP`, with categories "
    "`MixedSingleTaskGP`; a Sobol sequence first; a failed trial counts as the worst value",
    "syne-tune": "`BoTorchSearcher`, its Gaussian process; configurations and values, which it pairs wrongly when "
    "trials end in another order than they began, are put in order, and a failed trial counts as the worst value",
}


if __name__ == "__main__":
    main()
