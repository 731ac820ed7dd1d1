from datetime import UTC, datetime, timedelta

from trainyard.foundation.tuning import Trial
from trainyard.server.control.tuning.pace import Pace, Prepared

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)


def pace(*, trial_s: float, answer_s: float) -> Pace:
    trial = Trial(1, "job", "", {}, created_at=NOON, ended_at=NOON + timedelta(seconds=trial_s))
    made = Pace.of([trial])
    made.answer_s.append(answer_s)
    return made


def test_quick_answers_are_asked_for_when_the_last_result_is_there() -> None:
    quick = pace(trial_s=10, answer_s=0.5)
    assert not quick.is_asked_ahead
    assert not quick.accepts(Prepared(5, 3, None), ended=4)
    assert quick.accepts(Prepared(5, 4, None), ended=4)


def test_slow_answers_are_prepared_and_used_though_a_trial_has_ended_since() -> None:
    slow = pace(trial_s=10, answer_s=0.6)
    assert slow.is_asked_ahead
    assert slow.accepts(Prepared(5, 3, None), ended=4)


def test_before_anything_is_known_the_next_trial_is_prepared() -> None:
    assert Pace().is_asked_ahead


def test_only_the_latest_trials_and_answers_tell() -> None:
    made = pace(trial_s=1000, answer_s=0.1)
    for _ in range(20):
        made.add(Trial(1, "job", "", {}, created_at=NOON, ended_at=NOON + timedelta(seconds=1)))
    assert made.is_asked_ahead
