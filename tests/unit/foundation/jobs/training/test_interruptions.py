from datetime import timedelta
from statistics import fmean

import pytest

from trainyard.foundation.jobs.training.interruptions import InterruptionSchedule, share_between

MINUTE = timedelta(minutes=1)


def test_a_seed_always_gives_the_same_times() -> None:
    """Written down, so that a drill of last year can be repeated."""
    times = [InterruptionSchedule(7, MINUTE).after(attempt) for attempt in (3, 1, 2)]
    assert times == [InterruptionSchedule(7, MINUTE).after(attempt) for attempt in (3, 1, 2)]
    assert [round(time.total_seconds(), 3) for time in times if time] == [2.651, 3.399, 65.245]


def test_other_seeds_and_other_attempts_have_other_times() -> None:
    times = {InterruptionSchedule(seed, MINUTE).after(attempt) for seed in range(20) for attempt in range(1, 20)}
    assert len(times) == 20 * 19


def test_the_times_are_spread_around_their_mean() -> None:
    drawn = [InterruptionSchedule(seed, MINUTE).after(1) for seed in range(4000)]
    seconds = [time.total_seconds() for time in drawn if time is not None]
    assert fmean(seconds) == pytest.approx(60, rel=0.05)
    assert min(seconds) < 1
    assert max(seconds) > 300


def test_after_the_last_interruption_an_attempt_is_left_alone() -> None:
    schedule = InterruptionSchedule(7, MINUTE, most=2)
    assert [schedule.after(attempt) is None for attempt in (1, 2, 3, 4)] == [False, False, True, True]


def test_a_share_of_a_run_lies_within_its_bounds() -> None:
    shares = [share_between(seed, 0.4, 0.6) for seed in range(200)]
    assert all(0.4 <= share <= 0.6 for share in shares)
    assert max(shares) - min(shares) > 0.15
    assert share_between(3, 0.4, 0.6) == shares[3]
