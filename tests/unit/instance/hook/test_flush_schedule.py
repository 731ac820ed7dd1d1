"""When steps are written: soon, in batches of equal size, and at a bounded cost."""

import math

from trainyard.instance.hook.flush_schedule import MAX_DELAY_S, MIN_DELAY_S, FlushSchedule


def batches(schedule: FlushSchedule, *, gap_s: float, steps: int, flush_s: float = 0.0001) -> list[int]:
    """Make steps at one pace and flush when they are due; return the sizes of the batches."""
    sizes = []
    for number in range(steps):
        now = number * gap_s
        if schedule.due_at <= now:
            sizes.append(schedule.pending)
            schedule.record_flush(flush_s)
        schedule.add_step(now)
        if schedule.due_at <= now:
            sizes.append(schedule.pending)
            schedule.record_flush(flush_s)
    return sizes


def test_a_slow_step_is_due_at_once() -> None:
    assert batches(FlushSchedule(), gap_s=0.1, steps=20) == [1] * 20


def test_fast_steps_are_written_in_equal_batches_within_the_delay() -> None:
    sizes = batches(FlushSchedule(), gap_s=0.001, steps=2000)
    assert set(sizes[len(sizes) // 2 :]) == {16}
    assert MIN_DELAY_S >= 16 * 0.001


def test_the_last_steps_of_a_burst_are_due_soon() -> None:
    schedule = FlushSchedule()
    batches(schedule, gap_s=0.001, steps=1000)
    schedule.add_step(1.0)
    assert 1.0 < schedule.due_at <= 1.0 + 2 * MIN_DELAY_S


def test_nothing_is_due_without_a_step() -> None:
    assert FlushSchedule().due_at == math.inf


def test_expedited_steps_are_due_at_once() -> None:
    schedule = FlushSchedule()
    batches(schedule, gap_s=0.001, steps=1000)
    schedule.expedite()
    schedule.add_step(1.0)
    assert schedule.due_at < 1.0


def test_writing_that_takes_long_takes_a_small_share_of_the_time() -> None:
    sizes = batches(FlushSchedule(), gap_s=0.01, steps=5000, flush_s=0.001)
    assert 0.001 / (sizes[-1] * 0.01) < 0.01


def test_writing_that_takes_very_long_is_never_put_off_for_long() -> None:
    schedule = FlushSchedule()
    batches(schedule, gap_s=0.01, steps=5000, flush_s=0.5)
    schedule.record_flush(0.5)
    schedule.add_step(100.0)
    assert schedule.due_at <= 100.0 + 2 * MAX_DELAY_S
