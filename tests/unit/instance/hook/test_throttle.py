"""The hook stays within its budget, on a clock that the test moves."""

import math

from trainyard.instance.hook.throttle import Throttle

MS = 1_000_000
STEP = 10 * MS


class Training:
    """Steps of ten milliseconds, with a fixed cost each, and a further cost if they are observed in full."""

    def __init__(self, budget: float | None, *, look_ns: int, least_ns: int = 0) -> None:
        self.throttle, self._look_ns, self._least_ns, self.now_ns = Throttle(budget), look_ns, least_ns, 1
        self.own_ns = 0

    def run(self, steps: int) -> list[bool]:
        return [self.step() for _ in range(steps)]

    def step(self, *, is_exempt: bool = False, pause_ns: int = 0) -> bool:
        is_full = self.throttle.begin(self.now_ns)
        spent = self._least_ns + (self._look_ns if is_full else 0)
        self.throttle.spend(spent)
        if is_exempt:
            self.throttle.exempt()
        self.own_ns += spent
        self.now_ns += STEP + spent + pause_ns
        return is_full


def test_statistics_within_the_budget_are_taken_at_every_step() -> None:
    assert all(Training(0.01, look_ns=STEP // 200).run(20_000))


def test_the_first_steps_are_all_observed_even_above_the_budget() -> None:
    assert all(Training(0.01, look_ns=1 * MS).run(400))


def test_statistics_at_ten_times_the_budget_are_taken_at_every_tenth_step() -> None:
    training = Training(0.01, look_ns=1 * MS)
    training.run(2000)
    looks = training.run(2000)
    assert 150 <= sum(looks) <= 250
    longest = max(len(gap) for gap in "".join("x" if look else "." for look in looks).split("x"))
    assert longest <= 15


def test_the_whole_cost_stays_within_the_budget_and_half_a_second() -> None:
    training = Training(0.01, look_ns=2 * MS)
    training.run(20_000)
    assert training.own_ns <= 0.01 * training.now_ns + 0.5e9 + 10 * MS


def test_the_fixed_cost_of_a_step_is_charged_up_to_half_of_the_budget() -> None:
    training = Training(0.01, look_ns=2 * MS, least_ns=STEP // 250)
    training.run(20_000)
    assert training.own_ns <= 0.01 * training.now_ns + 0.5e9 + 10 * MS


def test_a_model_whose_every_step_exceeds_the_budget_is_still_observed_now_and_then() -> None:
    training = Training(0.01, look_ns=1 * MS, least_ns=2 * MS)
    training.run(2000)
    looks = training.run(6000)
    assert 80 <= sum(looks) <= 125  # half of the budget: 0.06 ms of a step, where a look costs 3


def test_without_a_budget_every_step_is_observed() -> None:
    assert all(Training(None, look_ns=50 * MS).run(5000))


def test_a_budget_of_zero_allows_only_the_first_half_second() -> None:
    training = Training(0.0, look_ns=1 * MS)
    assert sum(training.run(3000)) <= 501


def test_requested_saves_are_not_charged_to_the_budget() -> None:
    training = Training(0.01, look_ns=1 * MS)
    for _ in range(3000):
        assert training.step(is_exempt=True)


def test_a_pause_earns_no_more_than_a_few_steps() -> None:
    training = Training(0.01, look_ns=1 * MS)
    training.run(2000)
    training.step(pause_ns=60_000 * MS)
    assert sum(training.run(20)) <= 5


def test_a_loss_that_is_not_finite_opens_steps_on_credit_but_not_forever() -> None:
    training = Training(0.001, look_ns=1 * MS)
    training.run(2000)
    while training.step():
        pass
    assert training.throttle.observe_loss(math.nan)
    assert training.run(2) == [True, True]
    looks = []
    for _ in range(100):
        training.throttle.observe_loss(math.nan)
        looks.append(training.step())
    assert sum(looks) < 10


def test_a_loss_that_jumps_is_unusual_and_one_that_falls_or_fluctuates_is_not() -> None:
    throttle = Throttle(0.01)
    usual = [throttle.observe_loss(2.0 * 0.99**number + 0.05 * (-1) ** number) for number in range(200)]
    assert not any(usual)
    assert throttle.observe_loss(25.0)


def test_the_overhead_is_a_moving_average() -> None:
    training = Training(None, look_ns=1 * MS)
    training.run(200)
    assert math.isclose(training.throttle.overhead, 1 / 11, rel_tol=0.01)
