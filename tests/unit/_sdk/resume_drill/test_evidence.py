from tests.unit._sdk.resume_drill.runs import losses, run
from trainyard._sdk.resume_drill.evidence import find_evidence
from trainyard.foundation.jobs.training.plan import MetricDefinition

LOSS = [MetricDefinition("loss", "loss ([0-9.e-]+)")]
WHOLE = run(losses(1, 20))


def test_the_metric_tells_where_a_script_went_on() -> None:
    evidence = find_evidence(WHOLE, run(losses(1, 9), losses(7, 20)), LOSS)
    assert evidence.has_started_over is False
    assert evidence.sentence == 'It resumed after value 6 of 20 of "loss"; 3 came twice.'


def test_the_metric_tells_that_a_script_started_over() -> None:
    evidence = find_evidence(WHOLE, run(losses(1, 9), losses(1, 20)), LOSS)
    assert evidence.has_started_over is True
    assert evidence.sentence.startswith('The second attempt reported "loss" 20 times')


def test_without_a_metric_lines_that_come_again_tell_it() -> None:
    assert find_evidence(WHOLE, run(losses(1, 9), losses(1, 20)), []).has_started_over is True
    evidence = find_evidence(WHOLE, run(["loading", *losses(1, 9)], ["loading", *losses(7, 20)]), [])
    assert evidence.has_started_over is False
    assert evidence.sentence == "The second attempt repeated 3 of the 9 lines that the first had printed."


def stamped(texts: list[str], start: int) -> list[str]:
    return [f"{start + number}: {text}" for number, text in enumerate(texts)]


def test_when_no_lines_are_equal_their_number_decides() -> None:
    whole = run(stamped(losses(1, 20), 100))
    before = stamped(losses(1, 9), 200)
    assert find_evidence(whole, run(before, stamped(losses(1, 20), 300)), []).has_started_over is True
    assert find_evidence(whole, run(before, stamped(losses(7, 20), 300)), []).has_started_over is False


def test_a_silent_script_is_judged_by_its_time_if_that_is_long() -> None:
    whole = run([], seconds=100.0)
    assert find_evidence(whole, run([], [], seconds=95.0), LOSS).has_started_over is True
    assert find_evidence(whole, run([], [], seconds=60.0), LOSS).has_started_over is False


def test_nothing_tells_of_a_short_and_silent_script() -> None:
    evidence = find_evidence(run([], seconds=5.0), run([], [], seconds=5.0), LOSS)
    assert evidence.has_started_over is None
    assert "define a metric" in evidence.sentence


def test_a_metric_without_values_before_the_interruption_proves_nothing() -> None:
    whole = run([f"line {number}" for number in range(20)] + losses(1, 3))
    again = run([f"line {number}" for number in range(9)], [f"line {number}" for number in range(6, 20)] + losses(1, 3))
    assert find_evidence(whole, again, LOSS).has_started_over is False
