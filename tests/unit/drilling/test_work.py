from tests.unit.drilling.runs import losses, run
from trainyard.drilling.work import work_of
from trainyard.foundation.jobs import MetricDefinition

LOSS = [MetricDefinition("loss", "loss ([0-9.e-]+)")]
WHOLE = run(losses(1, 20))


def test_the_metric_tells_where_a_script_went_on() -> None:
    work = work_of(WHOLE, run(losses(1, 9), losses(7, 20)), LOSS)
    assert work.has_started_over is False
    assert work.evidence == 'It went on after value 6 of 20 of "loss"; 3 came twice.'


def test_the_metric_tells_that_a_script_started_over() -> None:
    work = work_of(WHOLE, run(losses(1, 9), losses(1, 20)), LOSS)
    assert work.has_started_over is True
    assert work.evidence.startswith('The second attempt told "loss" 20 times')


def test_without_a_metric_lines_that_come_again_tell_it() -> None:
    assert work_of(WHOLE, run(losses(1, 9), losses(1, 20)), []).has_started_over is True
    work = work_of(WHOLE, run(["loading", *losses(1, 9)], ["loading", *losses(7, 20)]), [])
    assert work.has_started_over is False
    assert work.evidence == "The second attempt printed 3 of the 9 lines again that the first had printed."


def stamped(texts: list[str], start: int) -> list[str]:
    return [f"{start + number}: {text}" for number, text in enumerate(texts)]


def test_where_no_line_is_ever_the_same_their_number_tells_it() -> None:
    whole = run(stamped(losses(1, 20), 100))
    before = stamped(losses(1, 9), 200)
    assert work_of(whole, run(before, stamped(losses(1, 20), 300)), []).has_started_over is True
    assert work_of(whole, run(before, stamped(losses(7, 20), 300)), []).has_started_over is False


def test_a_silent_script_is_judged_by_its_time_if_that_is_long() -> None:
    whole = run([], seconds=100.0)
    assert work_of(whole, run([], [], seconds=95.0), LOSS).has_started_over is True
    assert work_of(whole, run([], [], seconds=60.0), LOSS).has_started_over is False


def test_nothing_tells_of_a_short_and_silent_script() -> None:
    work = work_of(run([], seconds=5.0), run([], [], seconds=5.0), LOSS)
    assert work.has_started_over is None
    assert "define a metric" in work.evidence


def test_a_metric_that_was_not_told_before_the_interruption_tells_nothing() -> None:
    whole = run([f"line {number}" for number in range(20)] + losses(1, 3))
    again = run([f"line {number}" for number in range(9)], [f"line {number}" for number in range(6, 20)] + losses(1, 3))
    assert work_of(whole, again, LOSS).has_started_over is False
