"""Studies on a simulated clock: each worker runs one trial, and the engine is asked when a worker is free."""

import heapq
import time
import zlib
from dataclasses import dataclass

import numpy as np

from benchmarks.tuning.engines import Engine
from benchmarks.tuning.problem import Problem, Values

# Standard deviation of the logarithm of the duration of a trial.
DEVIATION = 0.5


@dataclass(frozen=True, slots=True)
class Ended:
    """A trial of a simulated study. `told` is the value that the engine saw, `truth` the one without noise."""

    number: int
    values: Values
    truth: float | None
    told: float | None
    # On the simulated clock; the median trial takes one unit.
    at: float
    # CPU seconds for the suggestion.
    asked_s: float


def simulate(problem: Problem, engine: Engine, *, workers: int, evaluations: int, seed: int) -> list[Ended]:
    """Run a study, and return its trials in the order in which they ended.

    Noise and durations depend only on the problem, the seed and the number of a trial, so they are the same for every
    engine.
    """
    ended: list[Ended] = []
    running: list[tuple[float, int, Ended]] = []
    now = 0.0
    for number in range(1, evaluations + 1):
        if len(running) == workers:
            now = _end_first(running, ended, engine)
        trial = _begin(problem, engine, number=number, now=now, seed=seed)
        heapq.heappush(running, (trial.at, number, trial))
    while running:
        _end_first(running, ended, engine)
    return ended


def regrets(problem: Problem, ended: list[Ended]) -> list[float | None]:
    """Return, after each trial, the true distance of the trial with the best measured value from the optimum."""
    curve: list[float | None] = []
    best_told, regret = float("inf"), None
    for trial in ended:
        if trial.told is not None and trial.truth is not None and trial.told < best_told:
            best_told, regret = trial.told, max(trial.truth - problem.least, 0.0)
        curve.append(regret)
    return curve


def _begin(problem: Problem, engine: Engine, *, number: int, now: float, seed: int) -> Ended:
    chance = np.random.default_rng([zlib.crc32(problem.name.encode()), seed, number])
    duration, disturbance = float(chance.lognormal(0.0, DEVIATION)), problem.noise * float(chance.standard_normal())
    started = time.process_time()
    values = engine.ask(number)
    asked_s = time.process_time() - started
    truth = problem.truth(values)
    told = None if truth is None else truth + disturbance
    return Ended(number, values, truth, told, now + duration, asked_s)


def _end_first(running: list[tuple[float, int, Ended]], ended: list[Ended], engine: Engine) -> float:
    at, number, trial = heapq.heappop(running)
    engine.tell(number, trial.told)
    ended.append(trial)
    return at
