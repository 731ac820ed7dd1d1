from tests.unit.insight.rules.steps import Run, found_by
from trainyard.formats.tensors.contract import Mode
from trainyard.insight.rules.catalog import make_rule
from trainyard.insight.rules.contract import Severity

LOSS = {"CrossEntropyLoss_output_0": 1.0}


def test_a_step_that_comes_too_late_is_found() -> None:
    run = Run()
    steps = [run.step(LOSS, at_s=second) for second in (0, 1, 2, 2000, 2001)]
    (finding,) = found_by("StalledTrainingRule", steps)
    assert (finding.step, finding.value, finding.threshold) == (3, 1998, 1800)
    assert finding.severity is Severity.CRITICAL
    assert list(finding.evidence[0].values) == [1, 1, 1998]


def test_steps_that_come_in_time_are_not_found() -> None:
    run = Run()
    assert found_by("StalledTrainingRule", [run.step(LOSS, at_s=second) for second in (0, 1800, 3600)]) == []


def test_a_training_of_which_nothing_comes_is_found_while_it_waits() -> None:
    rule = make_rule("StalledTrainingRule", {"threshold": "60"})
    assert list(rule.check(Run().step(LOSS))) == []
    assert list(rule.idle(60)) == []
    (finding,) = rule.idle(61)
    assert "There was no step for 61 s" in finding.message


def test_a_training_that_never_begins_is_found_too() -> None:
    (finding,) = make_rule("StalledTrainingRule", {"threshold": "60"}).idle(100)
    assert (finding.step, finding.mode, finding.worker, finding.value) == (0, Mode.GLOBAL, "worker_0", 100)
