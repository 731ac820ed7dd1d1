import os
import signal
import sys
import time
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
from trainyard.server.control.tuning.advisor import ProcessAdvisor, ProcessAnalyst, ProcessPruner, StrategyProcess
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


RATE = HyperparameterRange("rate", RangeKind.CONTINUOUS, low=0.0, high=1.0)


def searched_rate(count: int) -> tuple[TuningPlan, list[TuningTrial]]:
    """A study of one hyperparameter that is best at 0.6."""
    definition = TuningDefinition("", Objective("loss", Direction.MINIMIZE), (RATE, LETTERS))
    study = TuningPlan(StrategyKind.BAYESIAN, (definition,), max_parallel=2, max_trials=1000)
    trials = []
    for number in range(1, count + 1):
        values = {"rate": repr(number * 0.37 % 1), "letter": "abc"[number % 3]}
        loss = (float(values["rate"]) - 0.6) ** 2
        trials.append(TuningTrial(number, f"job-{number}", "", values, TrialStatus.COMPLETED, objective=loss))
    return study, trials


def test_an_analyst_explains_the_trial_that_an_advisor_suggests(process: StrategyProcess) -> None:
    study, trials = searched_rate(20)
    question = Question(study, 21, trials, study="explained")
    suggestion = ProcessAdvisor(process).suggest(question)
    explained = ProcessAnalyst(process).explain(question)
    assert suggestion is not None
    assert explained is not None
    assert explained.values == suggestion.values
    assert explained.expected == pytest.approx(0.0, abs=0.05)
    assert explained.chance is not None
    assert explained.reasons[0].startswith("The model expects loss")


def test_an_analyst_surveys_what_is_measured_and_learns_what_is_new(process: StrategyProcess) -> None:
    study, trials = searched_rate(40)
    analyst = ProcessAnalyst(process)
    assert analyst.survey(Question(study, 3, trials[:2], study="surveyed"), definition="") is None
    survey = analyst.survey(Question(study, 41, trials, study="surveyed"), definition="", names=("letter", "rate"))
    assert survey is not None
    assert survey["importances"][0]["name"] == "rate"
    assert survey["joint_names"] == ["letter", "rate"]
    assert survey["fitted_trials"] == 40


def test_a_study_of_500_trials_is_explained_and_surveyed_within_seconds(process: StrategyProcess) -> None:
    study, trials = searched_rate(500)
    question, analyst = Question(study, 501, trials, study="long"), ProcessAnalyst(process)
    began = time.monotonic()
    assert analyst.explain(question) is not None
    assert analyst.survey(question, definition="") is not None
    # Each takes 0.3 s on an idle machine.
    assert time.monotonic() - began < 10


def test_an_analyst_says_why_it_cannot_answer() -> None:
    study, trials = searched_rate(3)
    with closing(ProcessAnalyst(broken("raise SystemExit(1)"))) as analyst, pytest.raises(Unavailable):
        analyst.explain(Question(study, 4, trials, study="s"))
    failing = 'import sys; sys.stdin.readline(); print(\'{"error": "ZeroDivisionError"}\', flush=True); input()'
    with closing(ProcessAnalyst(broken(failing))) as analyst, pytest.raises(Unavailable, match="ZeroDivisionError"):
        analyst.survey(Question(study, 4, trials, study="s"), definition="")


def test_a_grid_that_was_tried_whole_has_nothing_to_explain(process: StrategyProcess) -> None:
    trials = [trial(number, letter) for number, letter in enumerate("abc", 1)]
    assert ProcessAnalyst(process).explain(Question(plan(), 4, trials, study="whole")) is None
