import pytest

from benchmarks.tuning.engines import Random
from benchmarks.tuning.functions import DEVELOPMENT
from benchmarks.tuning.problem import Problem, Values
from benchmarks.tuning.simulation import Ended, regrets, simulate

NOISY = next(each for each in DEVELOPMENT if each.name == "ackley5_noisy")
FAILING = next(each for each in DEVELOPMENT if each.name == "cliff3_failing")


class Watched(Random):
    """Random search that remembers how many trials were pending when it was asked."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.ranges, seed=1, workers=1)
        self.pending: set[int] = set()
        self.counts: list[int] = []

    def ask(self, number: int) -> Values:
        self.counts.append(len(self.pending))
        self.pending.add(number)
        return super().ask(number)

    def tell(self, number: int, value: float | None) -> None:
        self.pending.remove(number)


def _run(problem: Problem, *, workers: int, seed: int = 3) -> list[tuple[object, ...]]:
    engine = Random(problem.ranges, seed=seed, workers=workers)
    ended = simulate(problem, engine, workers=workers, evaluations=30, seed=seed)
    return [(trial.number, trial.values, trial.truth, trial.told, trial.at) for trial in ended]


@pytest.mark.parametrize("workers", [1, 4])
def test_the_same_seed_gives_the_same_history(workers: int) -> None:
    assert _run(NOISY, workers=workers) == _run(NOISY, workers=workers)
    assert _run(NOISY, workers=workers) != _run(NOISY, workers=workers, seed=4)


def test_one_worker_ends_each_trial_before_the_next_begins() -> None:
    engine = Watched(NOISY)
    ended = simulate(NOISY, engine, workers=1, evaluations=20, seed=0)
    assert [trial.number for trial in ended] == list(range(1, 21))
    assert set(engine.counts) == {0}


def test_four_workers_are_always_busy_and_end_in_an_order_of_their_own() -> None:
    engine = Watched(NOISY)
    ended = simulate(NOISY, engine, workers=4, evaluations=40, seed=0)
    numbers = [trial.number for trial in ended]
    assert sorted(numbers) == list(range(1, 41))
    assert numbers != sorted(numbers)
    assert [trial.at for trial in ended] == sorted(trial.at for trial in ended)
    assert engine.counts == [0, 1, 2] + [3] * 37


def test_noise_is_in_the_reported_value_and_not_in_the_truth() -> None:
    engine = Random(NOISY.ranges, seed=0, workers=1)
    trials = simulate(NOISY, engine, workers=1, evaluations=10, seed=0)
    assert all(trial.truth == NOISY.truth(trial.values) for trial in trials)
    assert all(trial.told != trial.truth for trial in trials)


def test_a_failed_trial_is_reported_as_none() -> None:
    engine = Random(FAILING.ranges, seed=0, workers=1)
    trials = simulate(FAILING, engine, workers=1, evaluations=40, seed=0)
    failed = [trial for trial in trials if trial.truth is None]
    assert failed
    assert all(trial.told is None for trial in failed)


def test_regret_is_the_true_one_of_what_was_measured_best() -> None:
    trials = [
        Ended(1, {}, None, None, 1.0, 0.0),
        Ended(2, {}, 3.0, 2.0, 2.0, 0.0),
        Ended(3, {}, 1.0, 2.5, 3.0, 0.0),
        Ended(4, {}, 4.0, 1.5, 4.0, 0.0),
    ]
    problem = Problem("plain", (), lambda _: 0.5, {})
    assert regrets(problem, trials) == [None, 2.5, 2.5, 3.5]
