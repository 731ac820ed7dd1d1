import os
import signal
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from trainyard.foundation.errors import Unavailable
from trainyard.foundation.jobs.tuning import (
    Direction,
    EarlyStopping,
    HyperparameterRange,
    Objective,
    RangeKind,
    StrategyKind,
    TrialStatus,
    TuningDefinition,
    TuningPlan,
    TuningTrial,
)
from trainyard.foundation.plain import to_plain
from trainyard.insight.tuning.contract import TrialCurve
from trainyard.server.control.tuning.advisor import ProcessAdvisor, ProcessPruner, StrategyProcess
from trainyard.server.control.tuning.contract import Question
from trainyard.server.control.tuning.strategy_process import StudyStates
from trainyard.server.control.tuning.suggestions import suggest_at_random

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
LETTERS = HyperparameterRange("letter", RangeKind.CATEGORICAL, values=("a", "b", "c"))


def plan(strategy: StrategyKind = StrategyKind.GRID, **changed: Any) -> TuningPlan:
    definition = TuningDefinition("", Objective("loss", Direction.MINIMIZE), (LETTERS,))
    return TuningPlan(strategy, (definition,), max_parallel=2, max_trials=3, **changed)


def trial(number: int, letter: str, **changed: Any) -> TuningTrial:
    told = {"status": TrialStatus.COMPLETED, "objective": 0.5, "created_at": NOON, **changed}
    return TuningTrial(number, f"job-{number}", "", {"letter": letter}, **told)


@pytest.fixture(scope="module")
def process() -> Iterator[StrategyProcess]:
    made = StrategyProcess()
    with closing(ProcessAdvisor(made)):
        yield made


@pytest.fixture
def advisor(process: StrategyProcess) -> ProcessAdvisor:
    return ProcessAdvisor(process)


def test_a_grid_is_asked_for_point_by_point_and_has_an_end(advisor: ProcessAdvisor) -> None:
    trials: list[TuningTrial] = []
    for number in (1, 2, 3):
        suggestion = advisor.suggest(Question(plan(), number, trials, study="grid"))
        assert suggestion is not None
        trials = [*trials, trial(number, suggestion.values["letter"])]
    assert {each.values["letter"] for each in trials} == {"a", "b", "c"}
    assert advisor.suggest(Question(plan(), 4, trials, study="grid")) is None


def test_a_killed_child_is_restarted_and_receives_the_whole_history(
    advisor: ProcessAdvisor, process: StrategyProcess
) -> None:
    trials = [trial(1, "a"), trial(2, "b")]
    question = Question(plan(), 3, trials, study="killed")
    first = advisor.suggest(question)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    assert first == advisor.suggest(question)
    assert first is not None
    assert first.values == {"letter": "c"}


def broken(program: str) -> StrategyProcess:
    """A child that does what no real one can be made to do at will."""
    return StrategyProcess([sys.executable, "-c", program])


@pytest.mark.parametrize(
    "program",
    [
        "raise SystemExit(1)",
        "import sys; sys.stdin.readline(); sys.stdout.write('no json\\n'); sys.stdout.flush(); sys.stdin.readline()",
        'import sys; sys.stdin.readline(); print(\'{"error": "ZeroDivisionError"}\', flush=True); sys.stdin.readline()',
        "import sys; sys.stdin.readline(); sys.stdin.readline()",
    ],
    ids=["dies", "babbles", "fails", "hangs"],
)
def test_a_trial_is_chosen_by_chance_when_the_strategy_cannot_be_asked(program: str) -> None:
    searched = plan(StrategyKind.BAYESIAN)
    with closing(ProcessAdvisor(broken(program), limit=timedelta(seconds=0.5))) as advisor:
        assert advisor.suggest(Question(searched, 2, study="s")) == suggest_at_random(searched, 2)


def test_a_grid_waits_for_its_strategy_because_chance_would_be_wrong() -> None:
    with closing(ProcessAdvisor(broken("raise SystemExit(1)"))) as advisor, pytest.raises(Unavailable):
        advisor.suggest(Question(plan(), 1, study="s"))


def test_nothing_is_asked_once_the_yard_closes() -> None:
    advisor = ProcessAdvisor()
    advisor.close()
    with pytest.raises(Unavailable, match="closing"):
        advisor.suggest(Question(plan(), 1, study="s"))


def line(number: int, trials: list[TuningTrial], **changed: Any) -> dict[str, Any]:
    return {"study": "s", "number": number, "trials": to_plain(trials), **changed}


def test_a_study_is_sent_once_and_then_only_its_news() -> None:
    studies, begun = StudyStates(), {"plan": to_plain(plan()), "parents": {}}
    assert studies.answer(line(1, [])) == {"is_unknown": True}
    first = studies.answer(line(1, [], **begun))
    second = studies.answer(line(2, [trial(1, first["values"]["letter"])]))
    third = studies.answer(line(3, [trial(2, second["values"]["letter"])]))
    assert {each["values"]["letter"] for each in (first, second, third)} == {"a", "b", "c"}
    assert studies.answer(line(4, [trial(3, third["values"]["letter"])])) == {"is_exhausted": True}


def test_an_error_is_an_answer_and_the_next_request_works() -> None:
    studies, begun = StudyStates(), {"plan": to_plain(plan()), "parents": {}}
    answer = studies.answer({"study": "s", "number": 1, "trials": [{"number": 1}], **begun})
    assert "Corrupt" in answer["error"]
    assert "values" in studies.answer(line(1, []))


def curve(number: int, start: float) -> TrialCurve:
    return TrialCurve(number, tuple(start / step for step in range(1, 21)), is_over=True)


@pytest.mark.parametrize("stopping", [EarlyStopping.MEDIAN, EarlyStopping.CURVE])
def test_a_pruner_says_why_a_trial_is_not_promising(stopping: EarlyStopping, process: StrategyProcess) -> None:
    pruner = ProcessPruner(process)
    searched = plan(StrategyKind.BAYESIAN, early_stopping=stopping)
    finished = [curve(number, 1 + number / 100) for number in range(1, 7)]
    bad = TrialCurve(7, (5.0, 5.0, 5.0, 5.0, 5.1, 5.2))
    why = pruner.stop_reason("s", searched, definition="", run=bad, others=finished)
    assert why is not None
    assert why.startswith("loss was 5.2 at report 6")
    good = TrialCurve(8, tuple(0.5 / step for step in range(1, 7)))
    assert pruner.stop_reason("s", searched, definition="", run=good, others=[*finished, bad]) is None


def test_a_trial_continues_when_its_rule_does_not_answer() -> None:
    searched = plan(StrategyKind.BAYESIAN, early_stopping=EarlyStopping.CURVE)
    with closing(ProcessPruner(broken("raise SystemExit(1)"))) as pruner:
        assert pruner.stop_reason("s", searched, definition="", run=TrialCurve(1, (1.0,)), others=[]) is None
