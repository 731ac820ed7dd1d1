import itertools

import pytest

from trainyard.formats.profiles.contract import StepPhase
from trainyard.formats.profiles.step_times import EVAL, TRAIN, StepRow
from trainyard.instance.hook.profiling import step_clock
from trainyard.instance.hook.profiling.step_clock import StepClock


class FakeTime:
    """Starts at one second; every test advances it by hand."""

    def __init__(self) -> None:
        self.now_ns = 10**9

    def perf_counter_ns(self) -> int:
        return self.now_ns

    def time_ns(self) -> int:
        return self.now_ns + 10**18

    def advance(self, ms: int) -> None:
        self.now_ns += ms * 10**6


@pytest.fixture
def clock_time(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    fake = FakeTime()
    monkeypatch.setattr(step_clock, "time", fake)
    return fake


def spend(clock: StepClock, clock_time: FakeTime, phase: StepPhase, ms: int) -> None:
    clock.enter(phase)
    clock_time.advance(ms)
    clock.leave()


def take(clock: StepClock) -> StepRow:
    """Close the step that has ended, and return it."""
    assert clock.close_step()
    (step,) = clock.drain()
    return step


def milliseconds(step: StepRow) -> dict[StepPhase, int]:
    return {phase: ns // 10**6 for phase, ns in zip(StepPhase, step.phases_ns, strict=True) if ns}


def test_phases_and_what_none_of_them_claims_add_up_to_the_step(clock_time: FakeTime) -> None:
    clock = StepClock()
    spend(clock, clock_time, StepPhase.DATA_WAIT, 3)
    clock_time.advance(2)
    spend(clock, clock_time, StepPhase.FORWARD, 5)
    spend(clock, clock_time, StepPhase.BACKWARD, 7)
    clock.end_step()
    step = take(clock)
    assert milliseconds(step) == {
        StepPhase.DATA_WAIT: 3,
        StepPhase.FORWARD: 5,
        StepPhase.BACKWARD: 7,
        StepPhase.OTHER: 2,
    }
    assert step.ended_us - step.started_us == 17_000


def test_an_inner_phase_does_not_count_for_the_outer_one(clock_time: FakeTime) -> None:
    clock = StepClock()
    clock.enter(StepPhase.FORWARD)
    clock_time.advance(1)
    spend(clock, clock_time, StepPhase.COMMUNICATION, 4)
    clock_time.advance(1)
    clock.leave()
    clock.end_step()
    assert milliseconds(take(clock)) == {StepPhase.FORWARD: 2, StepPhase.COMMUNICATION: 4}


def test_what_happens_before_the_first_data_is_part_of_no_step(clock_time: FakeTime) -> None:
    clock = StepClock()
    spend(clock, clock_time, StepPhase.CHECKPOINT, 500)
    clock_time.advance(500)
    spend(clock, clock_time, StepPhase.DATA_WAIT, 3)
    clock.end_step()
    assert milliseconds(take(clock)) == {StepPhase.DATA_WAIT: 3}


def test_what_happens_between_two_steps_is_part_of_the_second(clock_time: FakeTime) -> None:
    clock = StepClock()
    spend(clock, clock_time, StepPhase.FORWARD, 1)
    clock.end_step()
    first = take(clock)
    spend(clock, clock_time, StepPhase.CHECKPOINT, 20)
    spend(clock, clock_time, StepPhase.FORWARD, 1)
    clock.end_step()
    second = take(clock)
    assert milliseconds(second) == {StepPhase.CHECKPOINT: 20, StepPhase.FORWARD: 1}
    assert (first.number, second.number) == (0, 1)
    assert second.started_us == first.ended_us


def test_a_step_that_ends_twice_before_it_is_closed_is_one(clock_time: FakeTime) -> None:
    clock = StepClock()
    spend(clock, clock_time, StepPhase.FORWARD, 1)
    for _ in range(2):
        spend(clock, clock_time, StepPhase.OPTIMIZER, 2)
        clock.end_step()
    assert milliseconds(take(clock)) == {StepPhase.FORWARD: 1, StepPhase.OPTIMIZER: 4}
    assert not clock.close_step()
    assert clock.drain() == []


def test_a_phase_that_an_exception_left_open_ends_with_its_step(clock_time: FakeTime) -> None:
    clock = StepClock()
    clock.enter(StepPhase.FORWARD)
    clock_time.advance(1)
    clock.end_step(EVAL)
    assert take(clock).mode == EVAL
    clock_time.advance(2)
    clock.end_step()
    step = take(clock)
    assert (step.mode, milliseconds(step)) == (TRAIN, {StepPhase.OTHER: 2})


def test_the_end_of_a_step_ends_the_phases_that_are_open(clock_time: FakeTime) -> None:
    clock = StepClock()
    clock.enter(StepPhase.FORWARD)
    clock_time.advance(1)
    clock.enter(StepPhase.COMMUNICATION)
    clock_time.advance(2)
    clock.end_step()
    assert clock.phase == StepPhase.OTHER
    assert milliseconds(take(clock)) == {StepPhase.FORWARD: 1, StepPhase.COMMUNICATION: 2}
    # An end that comes late belongs to no phase of this step.
    clock_time.advance(4)
    clock.leave()
    clock.end_step()
    assert milliseconds(take(clock)) == {StepPhase.OTHER: 4}


def test_a_phase_tells_when_it_begins_and_ends(clock_time: FakeTime) -> None:
    clock = StepClock()
    assert clock.enter(StepPhase.CHECKPOINT) == 0
    began = clock.enter(StepPhase.DATA_WAIT)
    clock_time.advance(3)
    assert clock.leave() - began == 3 * 10**6


def test_steps_that_are_handed_on_together_are_those_that_were_closed_one_by_one(clock_time: FakeTime) -> None:
    clock = StepClock()
    expected = []
    for number in range(5):
        spend(clock, clock_time, StepPhase.FORWARD, number + 1)
        clock.end_step(EVAL if number == 2 else TRAIN)
        assert clock.ended_mode == (EVAL if number == 2 else TRAIN)
        assert clock.close_step() == (EVAL if number == 2 else TRAIN)
        assert clock.ended_mode == ""
        expected.append((number, EVAL if number == 2 else TRAIN, {StepPhase.FORWARD: number + 1}))
    steps = [*clock.drain(), *clock.drain()]
    assert [(step.number, step.mode, milliseconds(step)) for step in steps] == expected
    assert all(after.started_us == before.ended_us for before, after in itertools.pairwise(steps))


def test_the_phase_of_this_moment_does_not_depend_on_what_is_counted(clock_time: FakeTime) -> None:
    clock = StepClock()
    found = []
    for is_counted in (False, True):
        for enter in (StepPhase.FORWARD, StepPhase.COMMUNICATION, None, StepPhase.CHECKPOINT, None, None, None):
            if enter is None:
                clock.leave()
            else:
                clock.enter(enter)
            if is_counted:
                clock.drain()
            found.append(clock.phase)
    inner = [StepPhase.FORWARD, StepPhase.COMMUNICATION, StepPhase.FORWARD, StepPhase.CHECKPOINT, StepPhase.FORWARD]
    assert found == [*inner, StepPhase.OTHER, StepPhase.OTHER] * 2


def test_a_program_that_never_ends_a_step_fills_no_memory(
    clock_time: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_clock, "MAX_MARKS", 16)
    clock = StepClock()
    for _ in range(100):
        spend(clock, clock_time, StepPhase.FORWARD, 1)
        assert len(clock.marks) <= 16
    clock.end_step()
    assert milliseconds(take(clock)) == {StepPhase.FORWARD: 100}


def test_a_listener_receives_the_phases_that_began_and_ended_while_it_listened(clock_time: FakeTime) -> None:
    clock = StepClock()
    received: list[tuple[int, int, int, int]] = []
    spend(clock, clock_time, StepPhase.FORWARD, 1)
    clock.end_step()
    take(clock)
    clock.listen(lambda *phase: received.append(phase))
    began_ns = clock_time.time_ns()
    clock.enter(StepPhase.FORWARD)
    clock_time.advance(1)
    spend(clock, clock_time, StepPhase.COMMUNICATION, 4)
    # An exception skips the end of the forward.
    spend(clock, clock_time, StepPhase.OPTIMIZER, 2)
    clock.end_step()
    clock.close_step()
    spend(clock, clock_time, StepPhase.DATA_WAIT, 3)
    clock.listen(None)
    spend(clock, clock_time, StepPhase.DATA_WAIT, 3)
    clock.drain()
    ms = [
        (phase, (began - began_ns) // 10**6, (ended - began_ns) // 10**6, step)
        for phase, began, ended, step in received
    ]
    assert ms == [
        (StepPhase.COMMUNICATION, 1, 5, 1),
        (StepPhase.OPTIMIZER, 5, 7, 1),
        (StepPhase.FORWARD, 0, 7, 1),
        (StepPhase.DATA_WAIT, 7, 10, 2),
    ]
