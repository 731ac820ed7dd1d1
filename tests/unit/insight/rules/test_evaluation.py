from collections.abc import Iterable, Iterator
from time import thread_time
from typing import ClassVar

import numpy as np
import pytest

from tests.unit.insight.rules.steps import Run
from trainyard.formats.tensors.contract import Mode, Step
from trainyard.foundation.jobs.status import RuleStatus
from trainyard.insight.rules.catalog import make_rule
from trainyard.insight.rules.contract import DebuggerRule, Evaluation, Finding, Need, Parameter
from trainyard.insight.rules.evaluation import RuleEvaluator

HEALTHY = {"gradient/Net_1.weight": np.ones((2, 2)), "gradient/Net_2.weight": np.ones((2, 2))}
FIRST_GONE = HEALTHY | {"gradient/Net_1.weight": np.zeros((2, 2))}
BOTH_GONE = FIRST_GONE | {"gradient/Net_2.weight": np.zeros((2, 2))}


class Broken(DebuggerRule):
    """Raises at its second step."""

    name = "Broken"
    parameters: ClassVar[tuple[Parameter, ...]] = ()

    @property
    def needs(self) -> Need:
        return Need()

    def check(self, step: Step) -> Iterable[Finding]:
        if step.number == 1:
            raise ZeroDivisionError("division by zero")
        return ()


class Slow(Broken):
    """Takes two milliseconds for a step."""

    def check(self, step: Step) -> Iterable[Finding]:
        until = thread_time() + 2e-3
        while thread_time() < until:
            pass
        return ()


class Waiting(Broken):
    """Finds that nothing came for ten seconds, and at the end that the end has come."""

    def check(self, step: Step) -> Iterable[Finding]:
        return ()

    def idle(self, seconds: float) -> Iterator[Finding]:
        if seconds >= 10:
            yield Finding(0, Mode.TRAIN, "worker_0", "", "Nothing came for ten seconds.")

    def end(self) -> Iterator[Finding]:
        yield Finding(0, Mode.TRAIN, "worker_0", "last", "The end has come.")


class Told:
    """What a judge tells."""

    def __init__(self) -> None:
        self.changes: list[tuple[Evaluation, Finding | None]] = []

    def __call__(self, evaluation: Evaluation, finding: Finding | None) -> None:
        self.changes.append((evaluation, finding))

    @property
    def statuses(self) -> list[str]:
        return [f"{evaluation.rule} {evaluation.status}" for evaluation, _ in self.changes]


def vanishing() -> DebuggerRule:
    return make_rule("VanishingGradient", {})


def test_a_healthy_run_ends_with_no_issues_and_is_told_once() -> None:
    told, run = Told(), Run()
    judge = RuleEvaluator({"gradients": vanishing()}, on_change=told)
    for _ in range(3):
        judge.take(run.step(HEALTHY))
    assert judge.evaluations[0].status is RuleStatus.IN_PROGRESS
    judge.end()
    judge.end()
    assert told.statuses == ["gradients NoIssuesFound"]
    assert told.changes[0][0].steps_judged == 3
    assert told.changes[0][0].details == ""


def test_the_first_finding_is_told_at_once_and_stays() -> None:
    told, run = Told(), Run()
    judge = RuleEvaluator({"gradients": vanishing()}, on_change=told)
    for tensors in (HEALTHY, FIRST_GONE, HEALTHY, FIRST_GONE):
        judge.take(run.step(tensors))
    (evaluation, finding) = told.changes[0]
    assert finding is not None
    assert (evaluation.status, finding.step, finding.tensor) == (RuleStatus.ISSUES_FOUND, 1, "gradient/Net_1.weight")
    assert evaluation.details == finding.message
    judge.end()
    assert told.statuses == ["gradients IssuesFound"]
    assert judge.evaluations[0].counts == {"gradient/Net_1.weight": 2}
    assert len(judge.evaluations[0].findings) == 1


def test_no_finding_is_told_before_all_rules_have_judged_the_step() -> None:
    run = Run()
    seen: list[list[str]] = []
    judge = RuleEvaluator(
        {"first": vanishing(), "second": vanishing()},
        on_change=lambda _evaluation, _finding: seen.append([str(each.status) for each in judge.evaluations]),
    )
    judge.take(run.step(FIRST_GONE))
    assert seen == [["IssuesFound", "IssuesFound"]] * 2


def test_other_tensors_are_told_when_the_first_has_cooled_down() -> None:
    told, run = Told(), Run()
    judge = RuleEvaluator({"gradients": vanishing()}, on_change=told, cool_down_s=60)
    judge.take(run.step(FIRST_GONE, at_s=1000))
    judge.take(run.step(BOTH_GONE, at_s=1010))
    assert len(told.changes) == 1
    judge.take(run.step(HEALTHY, at_s=1061))
    (evaluation, finding) = told.changes[1]
    assert finding is not None
    assert (finding.tensor, finding.step) == ("gradient/Net_2.weight", 1)
    assert evaluation.counts == {"gradient/Net_1.weight": 2, "gradient/Net_2.weight": 1}
    assert "In total, it found 2 tensors." in evaluation.details


def test_what_has_not_cooled_down_is_told_at_the_end() -> None:
    told, run = Told(), Run()
    judge = RuleEvaluator({"gradients": vanishing()}, on_change=told)
    judge.take(run.step(FIRST_GONE))
    judge.take(run.step(BOTH_GONE))
    judge.end()
    assert [finding.tensor for _, finding in told.changes if finding] == [
        "gradient/Net_1.weight",
        "gradient/Net_2.weight",
    ]


def test_a_broken_rule_is_an_error_with_its_reason_and_hurts_no_other() -> None:
    told, run = Told(), Run()
    judge = RuleEvaluator({"broken": Broken(), "gradients": vanishing()}, on_change=told)
    for tensors in (HEALTHY, HEALTHY, FIRST_GONE):
        judge.take(run.step(tensors))
    judge.end()
    assert told.statuses == ["broken Error", "gradients IssuesFound"]
    broken, gradients = judge.evaluations
    assert "failed at step 1" in broken.details
    assert "ZeroDivisionError: division by zero" in broken.details
    assert gradients.steps_judged == 3


def test_a_rule_that_is_too_slow_judges_fewer_steps_and_says_so() -> None:
    run = Run()
    judge = RuleEvaluator({"slow": Slow(), "gradients": vanishing()}, budget_s=1e-3)
    for _ in range(40):
        judge.take(run.step(HEALTHY))
    slow, gradients = judge.evaluations
    assert slow.steps_judged < 30
    assert slow.steps_judged + slow.steps_dropped == 40
    assert "over its budget of 1.0 ms" in slow.details
    assert gradients.steps_judged == 40


def test_dropped_steps_show_in_every_evaluation() -> None:
    run = Run()
    judge = RuleEvaluator({"gradients": vanishing()})
    judge.take(run.step(HEALTHY))
    judge.drop(3)
    judge.end()
    (evaluation,) = judge.evaluations
    assert evaluation.steps_dropped == 3
    assert evaluation.details == "3 of 4 steps were dropped and not evaluated."


def test_steps_that_a_hook_dropped_are_told_by_the_gaps_they_left() -> None:
    run = Run()
    judge = RuleEvaluator({"gradients": vanishing()}, counts_gaps=True)
    steps = [run.step(HEALTHY) for _ in range(8)]
    for number in (2, 3, 6, 7):  # the first is where a resumed training goes on
        judge.take(steps[number])
    assert (judge.evaluations[0].steps_judged, judge.evaluations[0].steps_dropped) == (4, 2)


def test_a_run_without_the_tensors_of_a_rule_says_that_nothing_was_judged() -> None:
    judge = RuleEvaluator({"gradients": vanishing()})
    judge.take(Run().step({"CrossEntropyLoss_output_0": 1.0}))
    judge.end()
    assert judge.evaluations[0].status is RuleStatus.NO_ISSUES_FOUND
    assert "none of the tensors that this rule checks" in judge.evaluations[0].details


def test_a_rule_that_found_nothing_before_a_stop_is_stopped() -> None:
    told, run = Told(), Run()
    judge = RuleEvaluator({"gradients": vanishing(), "broken": Broken()}, on_change=told)
    judge.take(run.step(FIRST_GONE))
    judge.stop()
    assert told.statuses == ["gradients IssuesFound", "broken Stopped"]


def test_a_rule_may_find_something_while_no_step_comes_and_at_the_end() -> None:
    told = Told()
    judge = RuleEvaluator({"waiting": Waiting()}, on_change=told)
    judge.idle(5)
    assert told.changes == []
    judge.idle(10)
    judge.idle(20)
    judge.end()
    assert [finding.message for _, finding in told.changes if finding] == [
        "Nothing came for ten seconds.",
        "The end has come.",
    ]
    assert judge.evaluations[0].counts == {"": 2, "last": 1}


@pytest.mark.parametrize("budget_s", [None, 1e-3])
def test_details_stay_within_what_aws_allows(budget_s: float | None) -> None:
    class Wordy(Broken):
        def check(self, step: Step) -> Iterator[Finding]:
            yield Finding(step.number, step.mode, step.worker, "x", "word " * 500)

    judge = RuleEvaluator({"wordy": Wordy()}, budget_s=budget_s)
    judge.take(Run().step(HEALTHY))
    assert len(judge.evaluations[0].details) == 1024


def test_what_is_found_once_more_is_told_to_the_second_when_it_has_cooled_down() -> None:
    told, run = Told(), Run()
    judge = RuleEvaluator({"many": Many(count=1)}, on_change=told)
    for at_s in (1000, 1030, 1059.999, 1060, 1119.999, 1050, 1120):
        judge.take(run.step(HEALTHY, at_s=at_s))
    assert [(evaluation.steps_judged, finding and finding.tensor) for evaluation, finding in told.changes] == [
        (1, "0-0"),
        (4, "1-0"),
        (7, "4-0"),
    ]


class Many(Broken):
    """Finds some other tensors at each step."""

    def __init__(self, count: int) -> None:
        self._count = count

    def check(self, step: Step) -> Iterator[Finding]:
        for index in range(self._count):
            yield Finding(step.number, step.mode, step.worker, f"{step.number}-{index}", f"{index} is bad.")


@pytest.mark.parametrize(("count", "kept"), [(63, 63), (64, 64), (65, 64), (200, 64)])
def test_so_many_findings_are_kept_and_all_are_counted(count: int, kept: int) -> None:
    judge = RuleEvaluator({"many": Many(count)})
    judge.take(Run().step(HEALTHY))
    (evaluation,) = judge.evaluations
    assert [finding.tensor for finding in evaluation.findings] == [f"0-{index}" for index in range(kept)]
    assert len(evaluation.counts) == count
    assert evaluation.details == f"0 is bad. In total, it found {count} tensors."


class Failing(Broken):
    """Raises when no step comes, and at the end."""

    def check(self, step: Step) -> Iterable[Finding]:
        return ()

    def idle(self, seconds: float) -> Iterator[Finding]:
        if seconds > 30:
            raise ValueError("idle")
        return iter(())

    def end(self) -> Iterator[Finding]:
        raise ValueError("over")


def test_a_rule_that_fails_while_no_step_comes_or_at_the_end_says_when() -> None:
    told = Told()
    idle, ended = (
        RuleEvaluator({"failing": Failing()}, on_change=told),
        RuleEvaluator({"failing": Failing()}, on_change=told),
    )
    idle.idle(12)
    idle.idle(60.4)
    idle.take(Run().step(HEALTHY))
    idle.end()
    ended.end()
    assert [evaluation.details for evaluation, _ in told.changes] == [
        "The rule failed after 60 s without a step and was turned off: ValueError: idle",
        "The rule failed at the end and was turned off: ValueError: over",
    ]
    assert told.statuses == ["failing Error"] * 2
    assert idle.evaluations[0].steps_judged == 0


def test_a_rule_is_not_asked_for_the_end_of_a_training_that_was_stopped() -> None:
    judge = RuleEvaluator({"waiting": Waiting()})
    judge.stop()
    judge.end()
    (evaluation,) = judge.evaluations
    assert (evaluation.status, evaluation.findings) == (RuleStatus.STOPPED, ())


def test_gaps_are_those_of_each_worker_for_itself() -> None:
    first, second = Run("worker_0"), Run("worker_1")
    steps = [[run.step(HEALTHY) for _ in range(6)] for run in (first, second)]
    judge = RuleEvaluator({"gradients": vanishing()}, counts_gaps=True)
    for worker, number in ((0, 0), (1, 0), (0, 1), (1, 3), (0, 2), (1, 4), (1, 2), (0, 5)):
        judge.take(steps[worker][number])
    assert (judge.evaluations[0].steps_judged, judge.evaluations[0].steps_dropped) == (8, 4)
    without = RuleEvaluator({"gradients": vanishing()})
    for number in (0, 5):
        without.take(steps[0][number])
    assert without.evaluations[0].steps_dropped == 0


UNIT_S = 2.0**-10  # so that sums are exact


class Timed(Broken):
    """Takes so many units of time for each step, by a clock of its own."""

    def __init__(self, *took: float) -> None:
        self.now_s = 0.0
        self._took = list(took)

    def check(self, step: Step) -> Iterable[Finding]:
        self.now_s += self._took.pop(0) * UNIT_S
        return ()


def judged_steps(rule: Timed, steps: int, monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], str]:
    """The numbers of the steps that a rule with a budget of one unit judges, and what it says at the end."""
    monkeypatch.setattr("trainyard.insight.rules.evaluation.thread_time", lambda: rule.now_s)
    judge, run, judged = RuleEvaluator({"timed": rule}, budget_s=UNIT_S), Run(), []
    for number in range(steps):
        before = judge.evaluations[0].steps_judged
        judge.take(run.step(HEALTHY))
        if judge.evaluations[0].steps_judged > before:
            judged.append(number)
    return judged, judge.evaluations[0].details


def test_a_slow_rule_judges_as_many_steps_as_its_budget_lets_after_the_first_sixteen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judged, details = judged_steps(Timed(*[2.5] * 30), 31, monkeypatch)
    assert judged == [*range(16), 18, 21, 24, 27, 30]
    assert details == (
        "10 of 31 steps were dropped and not evaluated. It takes 2.4 ms per step, over its budget of 1.0 ms, so it "
        "checks only one step in 3."
    )


def test_a_rule_within_its_budget_judges_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    judged, details = judged_steps(Timed(*[1.0] * 40), 40, monkeypatch)
    assert (judged, details) == (list(range(40)), "")


def test_one_slow_step_is_averaged_over_sixteen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert judged_steps(Timed(*[0.0] * 20, 15.9, *[0.0] * 20), 41, monkeypatch)[0] == list(range(41))
    judged, details = judged_steps(Timed(*[0.0] * 20, 17.6, *[0.0] * 20), 41, monkeypatch)
    assert judged == [*range(21), 22, *range(24, 41)]
    assert "It takes 1.0 ms per step, over its budget of 1.0 ms, so it checks only one step in 2." in details
