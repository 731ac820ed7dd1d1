"""Runs missing studies of the benchmark in the environment of the peers, and writes a line of JSON for each.

    python -m benchmarks.tuning.running [--engines NAME ...] [--problems NAME ...] [--modes NAME ...] [--seeds N]

It can be stopped and restarted at any time: a study with a line is not run again unless its engine or its problem has
changed.
"""

import argparse
import contextlib
import gzip
import hashlib
import json
import multiprocessing
import os
import statistics
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.tuning.engines import ENGINES, Random, offer
from benchmarks.tuning.functions import DEVELOPMENT, FINAL
from benchmarks.tuning.problem import Problem
from benchmarks.tuning.simulation import regrets, simulate
from benchmarks.tuning.tasks import DEVELOPMENT_TASKS, FINAL_TASKS, TASKS

EVALUATIONS = 50
WORKERS = {"sequential": 1, "parallel": 4}
OBSERVATIONS = (10, 50, 200, 500)
TIMED_ON = "mixed6"
# Per measured time; the median counts.
ROUNDS = 3

KEPT = Path(__file__).parent / "results" / "runs.jsonl.gz"
FRESH = Path(__file__).parents[1] / "results" / "tuning.jsonl"

Line = dict[str, Any]


@cache
def development() -> tuple[Problem, ...]:
    return (*DEVELOPMENT, *(task.problem for task in DEVELOPMENT_TASKS))


@cache
def final() -> tuple[Problem, ...]:
    return (*FINAL, *(task.problem for task in FINAL_TASKS))


@dataclass(frozen=True, slots=True)
class Study:
    """One engine on one problem, once."""

    engine: str
    version: str
    problem: str
    digest: str
    mode: str
    seed: int

    def run(self) -> Line:
        problem = _problem(self.problem)
        engine = offer(self.engine).make(problem.ranges, seed=self.seed, workers=WORKERS[self.mode])
        ended = simulate(problem, engine, workers=WORKERS[self.mode], evaluations=EVALUATIONS, seed=self.seed)
        return {
            **_fields(self),
            "regret": [None if each is None else float(f"{each:.4g}") for each in regrets(problem, ended)],
            "asked_s": round(sum(trial.asked_s for trial in ended), 3),
            "failed": sum(trial.truth is None for trial in ended),
        }


@dataclass(frozen=True, slots=True)
class Timing:
    """How long an engine takes for a suggestion, given a number of observations."""

    engine: str
    version: str
    observations: int

    def run(self) -> Line:
        return {**_fields(self), "ask_s": statistics.median(self._measure(seed) for seed in range(ROUNDS))}

    def _measure(self, seed: int) -> float:
        problem = _problem(TIMED_ON)
        engine = offer(self.engine).make(problem.ranges, seed=seed, workers=1)
        chance = Random(problem.ranges, seed=seed, workers=1)
        for number in range(1, self.observations + 1):
            values = chance.ask(number)
            value = problem.truth(values)
            assert value is not None, f"{TIMED_ON} never fails."
            engine.learn(number, values, value)
        started = time.process_time()
        engine.ask(self.observations + 1)
        return round(time.process_time() - started, 4)


Cell = Study | Timing


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parse(arguments)
    known = {_key(line) for line in read_lines(options.results)}
    cells = [cell for cell in _cells(options) if _key(_fields(cell)) not in known]
    print(f"{len(cells)} to run, {len(known)} are known", flush=True)
    options.results.parent.mkdir(parents=True, exist_ok=True)
    with options.results.open("a", buffering=1) as file:
        for done, line in enumerate(_run_all(cells, jobs=options.jobs), start=1):
            file.write(json.dumps(line) + "\n")
            print(
                f"{done}/{len(cells)}", *[line[name] for name in line if name not in ("regret", "version")], flush=True
            )


def read_lines(fresh: Path = FRESH) -> list[Line]:
    """Return the stored lines and those written since, without a line that was cut off when a run was stopped."""
    texts = gzip.decompress(KEPT.read_bytes()).decode().splitlines() if KEPT.exists() else []
    texts += fresh.read_text().splitlines() if fresh.exists() else []
    lines = []
    for text in texts:
        with contextlib.suppress(json.JSONDecodeError):
            lines.append(json.loads(text))
    return lines


def digest(problem: Problem) -> str:
    """Return a digest of a problem: its ranges, its noise, and its values at some points."""
    chance = Random(problem.ranges, seed=0, workers=1)
    points = [chance.ask(number) for number in range(16)]
    said = repr((problem.ranges, problem.noise, [_round(problem.truth(point)) for point in (*points, problem.optimum)]))
    # The class had this name when the stored results were made.
    said = said.replace("HyperparameterRange(", "ParameterRange(")
    return hashlib.sha256(said.encode()).hexdigest()[:8]


def _round(value: float | None) -> str:
    """Drop the last digits, in which processors differ."""
    return "" if value is None else f"{value:.6g}"


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engines", nargs="+", default=[each.name for each in ENGINES])
    parser.add_argument("--problems", nargs="+", default=["final"], help="names, or development, final or timing")
    parser.add_argument("--modes", nargs="+", default=list(WORKERS), choices=list(WORKERS))
    parser.add_argument("--seeds", type=int, help="20, for slow engines 10, unless given")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--results", type=Path, default=FRESH)
    return parser.parse_args(arguments)


def _cells(options: argparse.Namespace) -> Iterator[Cell]:
    """Yield cells seed by seed, so that a stopped run has all engines on all problems, with fewer seeds."""
    problems = [(problem.name, digest(problem)) for problem in _problems(options.problems)]
    engines = [offer(name) for name in options.engines]
    if "timing" in options.problems:
        yield from (Timing(each.name, each.version, count) for each in engines for count in OBSERVATIONS)
    for seed in range(1, max(options.seeds or each.seeds for each in engines) + 1):
        for engine in engines:
            if seed <= (options.seeds or engine.seeds):
                for name, digested in problems:
                    for mode in options.modes:
                        yield Study(engine.name, engine.version, name, digested, mode, seed)


def _problems(names: Iterable[str]) -> list[Problem]:
    sets: dict[str, Callable[[], tuple[Problem, ...]]] = {"development": development, "final": final, "timing": tuple}
    return [problem for name in names for problem in (sets[name]() if name in sets else (_problem(name),))]


@cache
def _problem(name: str) -> Problem:
    for each in (*DEVELOPMENT, *FINAL):
        if each.name == name:
            return each
    return next(task.problem for task in TASKS if task.name == name)


def _run_all(cells: Sequence[Cell], *, jobs: int) -> Iterator[Line]:
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"), initializer=_settle) as pool:
        for future in as_completed([pool.submit(_run, cell) for cell in cells]):
            line = future.result()
            if line is not None:
                yield line


def _settle() -> None:
    os.nice(19)
    # About experimental features and models that are hard to fit.
    warnings.simplefilter("ignore")


def _run(cell: Cell) -> Line | None:
    """Return the line of a cell, or None if its engine raised. Such a cell shows its error and runs again next time."""
    try:
        return cell.run()
    except Exception:
        print(cell, traceback.format_exc(), sep="\n", file=sys.stderr, flush=True)
        return None


def _fields(cell: Cell) -> Line:
    return {name: getattr(cell, name) for name in cell.__slots__}


def _key(line: Line) -> tuple[Any, ...]:
    return tuple(line.get(name) for name in ("engine", "version", "problem", "digest", "mode", "seed", "observations"))


if __name__ == "__main__":
    main()
